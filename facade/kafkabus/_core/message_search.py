"""Searches among the messages that are peeked: which of them are returned, and how far one call looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from kafkabus._core.message import ServiceBusMessageState, ServiceBusReceivedMessage
from kafkabus._core.record import Record, as_bytes, envelope_of, place_of
from kafkabus._core.rule_properties import SqlRuleFilter, filter_description
from kafkabus._ledger.operations import PeekedRange
from kafkabus_mapping.codec import Envelope, from_milliseconds
from kafkabus_mapping.filters.evaluate import Decided, FilterEvaluationError, user_properties
from kafkabus_mapping.filters.nodes import Value
from kafkabus_mapping.filters.rules import compile_filter
from kafkabus_mapping.headers import (
    APPLICATION_PROPERTIES,
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    TEXT_FIELDS,
)
from kafkabus_mapping.numbers import sequence_number
from kafkabus_mapping.properties import decode_properties

_PLAIN = frozenset(header for _, header in TEXT_FIELDS) - {DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION}
"""Headers that are no application properties if they are ASCII."""

EXAMINED = 10_000
"""How many messages one call of a search examines by default."""

_STATES: dict[str, Callable[[PeekedRange], bool]] = {
    "active": lambda found: not found.deferred and not found.scheduled,
    "waiting": lambda found: (
        not (found.deferred or found.scheduled) and found.locked_until is None and found.postponed_until is None
    ),
    "locked": lambda found: found.locked_until is not None,
    "postponed": lambda found: found.postponed_until is not None,
    "deferred": lambda found: found.deferred,
    "scheduled": lambda found: found.scheduled,
}
STATES = tuple(_STATES)
"""The states that a search may ask for: those of Service Bus, and of active messages whether they are waiting, locked or
postponed."""


class PeekedMessages(list[ServiceBusReceivedMessage]):
    """The messages that a call of ``peek_messages`` returned.

    Attributes:
        next_sequence_number: The ``sequence_number`` with which the next call of a search goes on; None if all messages were
            examined, and always without a search.
        failed_count: Of how many messages the filter could not be evaluated, such as ``count > 3`` where ``count`` is a
            text; they are not returned.
        first_failure: Why the filter could not be evaluated on the first of them; None if there are none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.next_sequence_number: int | None = None
        self.failed_count = 0
        self.first_failure: str | None = None


class MessageSearch:
    """The messages that one call looks for.

    Args:
        filter: A filter of rules, or its SQL expression; None: any message.
        state: A state, or its name in ``STATES``; None: any state.
        body_contains: A part of the body as it is stored; None: any body.
        most: How many messages the call examines.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The filter cannot be parsed, there is no such state, or the number is not positive.

    Attributes:
        most: How many messages the call examines.
    """

    def __init__(self, filter: object, state: object, body_contains: object, most: int) -> None:
        if most < 1:
            raise ValueError(f"max_examined_count {most!r}: let a call examine 1 message or more")
        self.most = most
        self._matches = _condition_of(filter)
        self._has_state = _state_of(state)
        self._part = _part_of(body_contains)

    @classmethod
    def of(cls, filter: object, state: object, body_contains: object, most: int) -> MessageSearch | None:
        """Return the search that some arguments ask for; None if they ask for all messages. See the class."""
        search = cls(filter, state, body_contains, most)
        return None if filter is None and state is None and body_contains is None else search

    def select(
        self,
        records: Sequence[Record],
        found_at: Callable[[Record], PeekedRange | None],
        lives: timedelta | None,
        answer: PeekedMessages,
    ) -> list[tuple[Record, PeekedRange]]:
        """Return the messages that are looked for, with the data of their ledger; failures of the filter go into the answer.

        Args:
            records: Records of one log, as a receiver gets them.
            found_at: Returns the data of a record's ledger; None if it is no message.
            lives: The entity's default time to live; None: for ever.
            answer: The answer of the call.
        """
        has_state, part, matches = self._has_state, self._part, self._matches
        selected: list[tuple[Record, PeekedRange]] = []
        for record in records:
            found = found_at(record)
            if found is None or (has_state is not None and not has_state(found)):
                continue
            if part is not None and part not in (as_bytes(record.value()) or b""):
                continue
            if matches is not None:
                subject = _StoredSubject(record, lives, found.count)
                try:
                    if matches(subject) is not True:
                        continue
                except FilterEvaluationError as error:
                    answer.failed_count += 1
                    if answer.first_failure is None:
                        answer.first_failure = f"message {subject.sequence_number}: {error}"
                    continue
            selected.append((record, found))
        return selected


class _StoredSubject:
    """A record as filters see it, of which only what a filter asks for is decoded; see ``Subject``."""

    __slots__ = ("_envelope", "_record", "_user", "delivery_count", "time_to_live")

    def __init__(self, record: Record, lives: timedelta | None, count: int) -> None:
        self.time_to_live = lives
        self.delivery_count = count
        self._record = record
        self._envelope: Envelope | None = None
        self._user: dict[str, Value] | None = None

    @property
    def envelope(self) -> Envelope:
        """The message's properties."""
        if self._envelope is None:
            self._envelope = envelope_of(self._record)
        return self._envelope

    @property
    def sequence_number(self) -> int:
        """Its sequence number."""
        _, partition, offset = place_of(self._record)
        return sequence_number(partition, offset)

    @property
    def enqueued_at(self) -> datetime:
        """When it was enqueued, in UTC."""
        return from_milliseconds(self._record.timestamp()[1])

    @property
    def size(self) -> int:
        """The size of its body, in bytes."""
        return len(as_bytes(self._record.value()) or b"")

    @property
    def user(self) -> Mapping[str, Value]:
        """The application properties by their lower-case names, with those that a receiver of dead letters sees."""
        if self._user is None:
            text = _properties_alone(self._record.headers() or ())
            self._user = self._all_properties() if text is None else self._decoded(text)
        return self._user

    def _decoded(self, text: bytes) -> dict[str, Value]:
        try:
            return {name.lower(): value for name, value in decode_properties(text).items()}
        except (ValueError, OverflowError):
            return self._all_properties()

    def _all_properties(self) -> dict[str, Value]:
        envelope = self.envelope
        properties = dict(envelope.application_properties or {})
        if envelope.dead_letter_reason is not None:
            properties["DeadLetterReason"] = envelope.dead_letter_reason
        if envelope.dead_letter_error_description is not None:
            properties["DeadLetterErrorDescription"] = envelope.dead_letter_error_description
        return user_properties(properties, envelope.foreign)


def _properties_alone(headers: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """Return the header of a record's application properties, if no other header may be such a property; else None."""
    text: bytes | None = None
    for name, value in headers:
        if name == APPLICATION_PROPERTIES:
            text = value
        elif name not in _PLAIN or value is None or not value.isascii():
            return None
    return text


def _condition_of(given: object) -> Decided | None:
    if given is None:
        return None
    try:
        return compile_filter(filter_description(SqlRuleFilter(given) if isinstance(given, str) else given))
    except ValueError as error:
        raise ValueError(f"filter: {error}") from error


def _state_of(given: object) -> Callable[[PeekedRange], bool] | None:
    if given is None:
        return None
    name = given.name.lower() if isinstance(given, ServiceBusMessageState) else given
    if not isinstance(name, str):
        raise TypeError(f"state is {type(given).__name__}: use ServiceBusMessageState, or one of {', '.join(STATES)}")
    try:
        return _STATES[name.lower()]
    except KeyError:
        raise ValueError(f"state {given!r}: choose from {', '.join(STATES)}") from None


def _part_of(given: object) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if not isinstance(given, str):
        raise TypeError(f"body_contains is {type(given).__name__}: use str or bytes")
    return given.encode()
