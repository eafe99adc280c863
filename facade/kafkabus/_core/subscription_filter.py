"""The filter of a subscription: the records of its topic's log that it gets, and the messages that they become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple

from kafkabus._core.record import ChangedRecord, Record, as_bytes, enqueue_time_of, envelope_of, place_of
from kafkabus_mapping import headers as h
from kafkabus_mapping.codec import Envelope, encode_headers, from_milliseconds, record_size
from kafkabus_mapping.entities import RuleSet
from kafkabus_mapping.filters.evaluate import MessageSubject
from kafkabus_mapping.filters.rules import (
    CorrelationFilterDescription,
    FalseFilterDescription,
    RuleDescription,
    Selected,
    Selection,
    SqlFilterDescription,
    TrueFilterDescription,
    compile_rules,
)
from kafkabus_mapping.numbers import sequence_number

RecordHeaders = Sequence[tuple[str, bytes | None]]

_HEADER_OF = {
    "correlation_id": h.CORRELATION_ID,
    "to": h.TO,
    "reply_to": h.REPLY_TO,
    "label": h.SUBJECT,
    "reply_to_session_id": h.REPLY_TO_SESSION_ID,
    "content_type": h.CONTENT_TYPE,
}
"""Properties that a correlation filter may ask for and that one header alone holds, with that header."""
_USUAL = frozenset(
    {*_HEADER_OF.values(), h.MESSAGE_ID, h.SESSION_ID, h.PARTITION_KEY, h.TIME_TO_LIVE, h.APPLICATION_PROPERTIES}
)
"""Headers that do not show which subscriptions a record is for, apart from values that a filter asks for."""

_AS_IT_IS = Selected(as_it_is=True)
_NOTHING = Selected()


class _Rules:
    """A set of rules.

    Args:
        rules: The rules.

    Attributes:
        take_all: Whether the subscription gets every message, unchanged, and no copies.
    """

    def __init__(self, rules: Sequence[RuleDescription]) -> None:
        self._rules = rules
        self.take_all = _take_all(rules)

    @cached_property
    def select(self) -> Selection:
        """The function that evaluates the rules; compiled when it is first needed, as those of most earlier sets never are."""
        return compile_rules(self._rules)


class SubscriptionFilter:
    """A subscription's rules, applied to its topic's records.

    Args:
        key: The key of the subscription's path.
        rule_sets: All sets of rules that count for any of the records.
        keeps_faulty: Whether a message for which a rule cannot be evaluated is dead-lettered.
        time_to_live: The subscription's default time to live; None: for ever.
        max_message_bytes: The size limit of a message that an action made; None: no limit.

    Attributes:
        saw_scheduled: Whether any record that was looked at is that of a scheduled message, which only the topic grants.
    """

    def __init__(
        self,
        key: str,
        rule_sets: Sequence[RuleSet],
        *,
        keeps_faulty: bool,
        time_to_live: timedelta | None,
        max_message_bytes: int | None,
    ) -> None:
        self.saw_scheduled = False
        self._key = key.encode()
        self._keeps_faulty = keeps_faulty
        self._time_to_live = time_to_live
        self._max_message_bytes = max_message_bytes
        self._may_fail = any(_may_fail(rule) for rule_set in rule_sets for rule in rule_set.rules)
        self._changes = any(rule.action is not None for rule_set in rule_sets for rule in rule_set.rules)
        # The latest rules come first, as they count for nearly all records.
        self._sets = [(rule_set.offsets, _Rules(rule_set.rules)) for rule_set in reversed(rule_sets)]
        self._gate = _gate(rule_sets[-1].rules, self._key)
        self._latest: tuple[Record, Selected] | None = None

    @property
    def may_fail(self) -> bool:
        """Whether a granted record may become other messages than itself, or none."""
        return self._may_fail

    def select_wanted(self, records: Sequence[Record]) -> list[Record]:
        """Return those of a partition's records, in its order, that are received or dead-lettered, as they are stored."""
        return [record for record in self._sift(records) if self._wants(self.evaluate(record))]

    def select_received(self, records: Sequence[Record]) -> list[Record]:
        """Return the wanted ones of some records as a receiver gets them: with the changes of an action."""
        return self.change_granted(self.select_wanted(records))

    def change_granted(self, records: Sequence[Record]) -> list[Record]:
        """Return granted records as a receiver gets them; they were wanted, so they are messages, whatever changed since."""
        if not self._changes:
            return list(records)
        return [self._as_received(record) for record in records]

    def _as_received(self, record: Record) -> Record:
        selected = self.evaluate(record)
        single = len(selected.copies) == 1 and not selected.as_it_is and self._oversize(record, selected) is None
        return ChangedRecord(record, encode_headers(selected.copies[0])) if single else record

    def _sift(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return records without most of the unwanted ones: those that their headers rule out without decoding."""
        gate = self._gate
        if gate is None or not records:
            return records
        _, partition, offset = place_of(records[0])
        if offset < self._sets[0][0][partition]:
            return records
        if self._changes:
            return [
                record for record in records if isinstance(record, ChangedRecord) or not gate(record.headers() or ())
            ]
        return [record for record in records if not gate(record.headers() or ())]

    def complaint(self, record: Record) -> str | None:
        """Return why a wanted record is dead-lettered instead of received; None if it is not."""
        if not self._may_fail:
            return None
        selected = self.evaluate(record)
        size = self._oversize(record, selected)
        if size is not None:
            return f"a copy that its rules make of it has {size} bytes: {self._max_message_bytes} are allowed"
        if selected or not selected.errors:
            return None
        rule, error = next(iter(selected.errors.items()))
        return f"rule {rule!r}: {error}"

    def copies_of(self, record: Record) -> list[Envelope]:
        """Return the properties of the messages that a record becomes; an empty list if it becomes only one, or none."""
        if not self._may_fail:
            return []
        selected = self.evaluate(record)
        if len(selected.copies) + selected.as_it_is < 2:
            return []
        return [*([envelope_of(record)] if selected.as_it_is else []), *selected.copies]

    def _oversize(self, record: Record, selected: Selected) -> int | None:
        """Return how many bytes the largest copy of a record has, if that is too many, else None."""
        if self._max_message_bytes is None or not selected.copies:
            return None
        value, key = as_bytes(record.value()), record.key()
        size = max(record_size(value, key, encode_headers(copy)) for copy in selected.copies)
        return size if size > self._max_message_bytes else None

    def sets_apart(self, record: Record) -> bool:
        """Return whether a wanted record is not received itself: it is dead-lettered, or replaced by its copies."""
        return self.complaint(record) is not None or bool(self.copies_of(record))

    def _wants(self, selected: Selected) -> bool:
        return bool(selected) or (self._keeps_faulty and bool(selected.errors))

    def evaluate(self, record: Record) -> Selected:
        """Return the result of the rules for a record; it is found once, even if it is asked for several times in a row."""
        latest = self._latest
        if latest is None or latest[0] is not record:
            self._latest = latest = (record, self._evaluate(record))
        return latest[1]

    def _evaluate(self, record: Record) -> Selected:
        if isinstance(record, ChangedRecord):
            return _AS_IT_IS
        addressed_to = _address_of(record)
        if addressed_to is not None:
            return _AS_IT_IS if addressed_to == self._key else _NOTHING
        if enqueue_time_of(record) is not None:
            # A copy of the record is granted when its time has come.
            self.saw_scheduled = True
            return _NOTHING
        _, partition, offset = place_of(record)
        rules = next((rules for offsets, rules in self._sets if offsets[partition] <= offset), None)
        if rules is None:
            # The record is from before the subscription began.
            return _NOTHING
        if rules.take_all:
            return _AS_IT_IS
        body = as_bytes(record.value())
        envelope = envelope_of(record)
        number, enqueued_at = sequence_number(partition, offset), from_milliseconds(record.timestamp()[1])
        return rules.select(
            MessageSubject(envelope, number, enqueued_at, 0 if body is None else len(body), self._time_to_live)
        )


def _gate(rules: Sequence[RuleDescription], key: bytes) -> Callable[[RecordHeaders], bool] | None:
    """Return a test of a record's stored headers: whether the subscription with this key certainly does not want the record.

    Correlation filters alone allow such a test. The values that they ask for are in a header as they are, or as texts among
    the application properties: if a record has neither, nor the subscription's key, the subscription does not want it.

    Returns:
        The test; None if it would take as long as evaluating the rules.
    """
    looked_for: list[_Asked] = []
    for rule in rules:
        filter_ = rule.filter
        if isinstance(filter_, FalseFilterDescription):
            continue
        if not isinstance(filter_, CorrelationFilterDescription):
            return None
        asked = _to_asked(filter_)
        if not asked.headers and not asked.texts:
            return None
        looked_for.append(asked)
    if all(asked.headers for asked in looked_for):
        # One header of each filter, and the address of this subscription: the test is fast, as each record of a log takes it.
        return frozenset({(h.ADDRESSED_TO, key), *(next(iter(asked.headers)) for asked in looked_for)}).isdisjoint

    def may_do_without(headers: RecordHeaders) -> bool:
        # The rules decide on records that have other headers than most messages.
        if not _USUAL.issuperset([name for name, _ in headers]):
            return False
        for asked in looked_for:
            if asked.headers.issubset(headers) and (not asked.texts or _may_hold(headers, asked.texts)):
                return False
        return True

    return may_do_without


class _Asked(NamedTuple):
    """The content of a record's headers that a correlation filter asks for.

    Attributes:
        headers: Names and values of headers.
        texts: Parts of the header that holds the application properties.
    """

    headers: frozenset[tuple[str, bytes]]
    texts: Sequence[bytes]


def _to_asked(filter_: CorrelationFilterDescription) -> _Asked:
    headers = frozenset(
        (header, wanted.encode())
        for attribute, header in _HEADER_OF.items()
        if (wanted := getattr(filter_, attribute)) is not None
    )
    texts = [wanted for wanted in filter_.properties.values() if isinstance(wanted, str) and _is_plain(wanted)]
    return _Asked(headers, [f'"{text}"'.encode() for text in texts])


def _may_hold(headers: RecordHeaders, texts: Sequence[bytes]) -> bool:
    """Return whether these texts may be among the application properties; the producer may have escaped a text."""
    for name, value in headers:
        if name != h.APPLICATION_PROPERTIES or not value:
            continue
        if b"\\u" in value or all(text in value for text in texts):
            return True
    return False


def _is_plain(text: str) -> bool:
    """Return whether JSON has only one way to write a text, apart from escapes of plain characters."""
    return text.isalnum() and text.isascii()


def _take_all(rules: Sequence[RuleDescription]) -> bool:
    """Return whether these rules select every message, unchanged, and make no copies."""
    plain = any(isinstance(rule.filter, TrueFilterDescription) for rule in rules)
    return plain and all(rule.action is None for rule in rules)


def _may_fail(rule: RuleDescription) -> bool:
    """Return whether a rule may change a message, or may fail to be evaluated for it."""
    return rule.action is not None or isinstance(rule.filter, SqlFilterDescription)


def _address_of(record: Record) -> bytes | None:
    """Return the key of the only subscription that a record is for; None if it is for all."""
    for name, value in record.headers() or ():
        if name == h.ADDRESSED_TO:
            return value
    return None
