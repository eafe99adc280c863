"""Errors of the SDK in the words of the command line."""

from __future__ import annotations

import pytest

from kafkabus.cli.wording import as_commands


@pytest.mark.parametrize(
    ("said", "here"),
    [
        (
            "queue sq has sessions: receive from it with session_id, which may be NEXT_AVAILABLE_SESSION",
            "queue sq has sessions: receive from it with 'kafkabus session receive sq'",
        ),
        (
            "queue q has no sessions: receive from it without session_id, or create it with requires_session=True",
            "queue q has no sessions: receive from it with 'kafkabus receive q', or create another one with --sessions",
        ),
        (
            "t is a topic: receive from one of its subscriptions, with get_subscription_receiver",
            "t is a topic: receive from one of those that 'kafkabus subscription list t' names, as t/Subscriptions/NAME",
        ),
        (
            "there is no queue 'q' in namespace 'n': list_queues shows what there is",
            "there is no queue 'q' in namespace 'n': 'kafkabus queue list' shows what there is",
        ),
        ("message 'm' has no session_id: set one", "message 'm' has no --session-id: set one"),
        ("message_id has 129 characters: the longest is 128", "--message-id has 129 characters: the longest is 128"),
        ("partition_key 'a' differs from session_id 'b'", "--partition-key 'a' differs from --session-id 'b'"),
        (
            "lock_duration=0:06:00: less than or equal to 5 minutes",
            "--lock-duration=0:06:00: less than or equal to 5 minutes",
        ),
        ("my_session_id, session_ids and x.session_id stay", "my_session_id, session_ids and x.session_id stay"),
    ],
)
def test_what_the_sdk_says(said: str, here: str) -> None:
    """The text names options and commands, and is otherwise unchanged."""
    assert as_commands(said) == here
