"""Errors of the SDK in the words of the command line."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._async.admin.base import label_of, validate
from kafkabus._async.entities.catalog import missing_text
from kafkabus.cli.terms import describe_error
from kafkabus.exceptions import InvalidOperationError, MessagingEntityNotFoundError, ServiceBusError
from kafkabus_mapping.entities import QueueDescription
from kafkabus_mapping.error_text import ErrorText, Term, text_of_error
from kafkabus_mapping.keys import effective_key
from kafkabus_mapping.names import EntityPath


def _validate() -> None:
    now = datetime.now(timezone.utc)
    settings = {"name": "q", "topic": "t", "topic_id": "i", "created_at": now, "updated_at": now}
    validate(QueueDescription, {**settings, "lock_duration": timedelta(days=2)}, "created")


def _look_up() -> None:
    raise MessagingEntityNotFoundError(missing_text(EntityPath("q"), "n"))


@pytest.mark.parametrize(
    ("fail", "sdk", "command_line"),
    [
        (
            lambda: effective_key(session_id="b", partition_key="a", message_id=None, detects_duplicates=False),
            "partition_key 'a' differs from session_id 'b': a session's messages share one partition; set both alike",
            "--partition-key 'a' differs from --session-id 'b': a session's messages share one partition; set both alike",
        ),
        (
            lambda: ServiceBusMessage(b"", message_id="m" * 129),
            "message_id has 129 characters: the longest is 128; shorten or hash it",
            "--message-id has 129 characters: the longest is 128; shorten or hash it",
        ),
        (
            lambda: ServiceBusMessage(b"", reply_to_session_id="m" * 129),
            "reply_to_session_id has 129 characters: the longest is 128; shorten or hash it",
            "reply_to_session_id has 129 characters: the longest is 128; shorten or hash it",
        ),
        (_validate, "created: lock_duration=2 days, 0:00:00: ", "created: --lock-duration=2 days, 0:00:00: "),
        (
            _look_up,
            "create it with ServiceBusAdministrationClient.create_queue or create_topic, or 'kafkabus queue create' or ",
            "create it with 'kafkabus queue create' or 'kafkabus topic create'",
        ),
    ],
)
def test_an_error_names_arguments_and_the_command_line_its_options(
    fail: Callable[[], object], sdk: str, command_line: str
) -> None:
    """Names that the command line has no option for stay."""
    with pytest.raises((ServiceBusError, ValueError)) as caught:
        fail()
    assert sdk in str(caught.value)
    assert command_line in describe_error(caught.value)


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (Term("receive_from_session", "with session_id", "q"), "with 'kafkabus session receive q'"),
        (Term("receive_without_session", "without session_id", "q"), "with 'kafkabus receive q'"),
        (Term("create_with_sessions", "it with requires_session=True"), "another one with --sessions"),
        (
            Term("receive_from_subscription", "its subscriptions", "t"),
            "those that 'kafkabus subscription list t' names, as t/Subscriptions/NAME",
        ),
        (Term("list_topics"), "'kafkabus topic list'"),
        (Term("delete_queue"), "'kafkabus queue delete'"),
    ],
)
def test_calls_become_commands(term: Term, words: str) -> None:
    """A remedy is the command to type, with the entity's name."""
    assert describe_error(ServiceBusError(ErrorText("remedy: ", term))) == f"remedy: {words}"


def test_values_stay_as_they_are() -> None:
    """A name of a message or an entity that is also an argument's name is not replaced."""
    error = ValueError(ErrorText("queue session_id: message 'lock_duration' has no ", Term("session_id")))
    assert describe_error(error) == "queue session_id: message 'lock_duration' has no --session-id"
    assert label_of(QueueDescription, "session_id") == "queue 'session_id'"


def test_a_copied_error_keeps_its_terms() -> None:
    """Errors come from other processes and threads as well; applications read a plain text."""
    error = InvalidOperationError(ErrorText("q has no ", Term("session_id"), ": set one"))
    assert type(error.message) is str
    for copied in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):  # noqa: S301 - made here
        assert str(copied) == copied.message == "q has no session_id: set one"
        text = text_of_error(copied)
        assert isinstance(text, ErrorText)
        assert text.names == ("session_id",)
