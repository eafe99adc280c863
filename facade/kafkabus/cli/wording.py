"""Errors in the words of the command line: its commands and options replace the SDK's methods and arguments."""

from __future__ import annotations

import re

OPTIONS = {
    "auto_delete_on_idle": "--auto-delete-on-idle",
    "dead_lettering_on_filter_evaluation_exceptions": "--dead-letter-faulty",
    "dead_lettering_on_message_expiration": "--dead-letter-expired",
    "default_message_time_to_live": "--time-to-live",
    "duplicate_detection_history_time_window": "--duplicate-window",
    "enable_partitioning=False": "--plain",
    "forward_dead_lettered_messages_to": "--forward-dead-letters-to",
    "forward_to": "--forward-to",
    "lock_duration": "--lock-duration",
    "max_delivery_count": "--max-delivery-count",
    "max_size_in_megabytes": "--max-size-in-megabytes",
    "max_wait_time": "--wait",
    "message_id": "--message-id",
    "partition_key": "--partition-key",
    "requires_duplicate_detection": "--detect-duplicates",
    "requires_session": "--sessions",
    "session_id": "--session-id",
    "settled_retention": "--settled-retention",
    "user_metadata": "--user-metadata",
}
"""The command line's names of the SDK's arguments."""
_SENTENCES: list[tuple[str, str]] = [
    (
        r"(\w+) (\S+) has sessions: receive from it with session_id, which may be NEXT_AVAILABLE_SESSION",
        r"\1 \2 has sessions: receive from it with 'kafkabus session receive \2'",
    ),
    (
        r"(\w+) (\S+) has no sessions: receive from it without session_id, or create it with requires_session=True",
        r"\1 \2 has no sessions: receive from it with 'kafkabus receive \2', or create another one with --sessions",
    ),
    (
        r"(\S+) is a topic: receive from one of its subscriptions, with get_subscription_receiver",
        r"\1 is a topic: receive from one of those that 'kafkabus subscription list \1' names, as \1/Subscriptions/NAME",
    ),
    (
        r"create it with\s+ServiceBusAdministrationClient\.\w+ or '(kafkabus \w+ create)'",
        r"create it with '\1'",
    ),
    (
        r"create it with\s+ServiceBusAdministrationClient\.\w+ or \w+, or '(kafkabus \w+ create)' or '(kafkabus \w+ create)'",
        r"create it with '\1' or '\2'",
    ),
    (r"\blist_(queue|topic|subscription|rule)s shows what there is", r"'kafkabus \1 list' shows what there is"),
    (r"\bdelete it with delete_(queue|topic|subscription|rule)\b", r"delete it with 'kafkabus \1 delete'"),
    (r"; change what get_\w+ returns, and give that", ""),
]
"""Patterns of the SDK's error texts, and their replacements."""
_NAMES = re.compile(r"(?<![\w.-])(" + "|".join(map(re.escape, OPTIONS)) + r")(?![\w(])")


def as_commands(text: str) -> str:
    """Return an error's text with commands and options in place of methods and arguments."""
    for said, here in _SENTENCES:
        text = re.sub(said, here, text)
    return _NAMES.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    return OPTIONS[found[1]]
