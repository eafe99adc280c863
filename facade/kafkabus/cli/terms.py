"""Errors in the words of the command line: its commands and options replace the SDK's methods and arguments."""

from __future__ import annotations

from kafkabus_mapping.error_text import ErrorText, Term, text_of_error

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
    "longest_lock": "--longest-lock",
    "max_delivery_count": "--max-delivery-count",
    "max_size_in_megabytes": "--max-size-in-megabytes",
    "max_wait_time": "--wait",
    "message_id": "--message-id",
    "partition_key": "--partition-key",
    "requires_duplicate_detection": "--detect-duplicates",
    "requires_session": "--sessions",
    "retry_policy": "--retry-policy",
    "session_id": "--session-id",
    "settled_retention": "--settled-retention",
    "unmatched_to": "--unmatched-to",
    "user_metadata": "--user-metadata",
}
"""The command line's names of the SDK's arguments."""
REMEDIES = {
    "create_entity": "",
    "create_with_sessions": "another one with --sessions",
    **{f"delete_{kind}": f"'kafkabus {kind} delete'" for kind in ("queue", "topic", "subscription")},
    **{f"list_{kind}s": f"'kafkabus {kind} list'" for kind in ("queue", "topic", "subscription")},
    "receive_from_subscription": "those that 'kafkabus subscription list {entity}' names, as {entity}/Subscriptions/NAME",
    "receive_from_session": "with 'kafkabus session receive {entity}'",
    "receive_without_session": "with 'kafkabus receive {entity}'",
}
"""The command line's words for remedies that the SDK describes by its calls."""


def describe_error(error: BaseException) -> str:
    """Return an error's text with commands and options in place of methods and arguments."""
    text = text_of_error(error)
    return text.with_words(_find_words) if isinstance(text, ErrorText) else text


def _find_words(term: Term) -> str:
    words = OPTIONS.get(term.name) or REMEDIES.get(term.name)
    return str(term) if words is None else words.format(entity=term.entity)
