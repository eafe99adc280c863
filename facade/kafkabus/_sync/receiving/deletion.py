# Generated from facade/kafkabus/_async/receiving/deletion.py by tools/generate_blocking.py. Do not edit.
"""Deleting messages that wait, at most so many, without handing them to a receiver."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import OperationTimeoutError, ServiceBusError
from kafkabus._core.fetch_plan import runs_of, sweeps
from kafkabus._core.record import Record, session_of
from kafkabus._ledger.operations import Ledger, Peek, Seen, Seize, Settlement, new_lease
from kafkabus._ledger.ranges import Range, offsets_of
from kafkabus._sync.compat import run_uninterrupted
from kafkabus._sync.kafka.offset_reader import read_upto
from kafkabus._sync.receiving.log_reader import ReaderParts
from kafkabus._sync.receiving.session_reader import SessionLock, lock_lost

LOGGER = logging.getLogger("kafkabus")

READ_AT_ONCE, READ_BYTES = 100, 4 * 1024 * 1024
"""How many offsets are read in one go, and about how many bytes at the most."""
FOUND_AT_ONCE = 1_000
"""How many messages below the cursor a ledger is asked for in one go."""
LOCK_MS = 60_000
"""For how long, in milliseconds, messages are locked from when they are chosen until they are deleted; if the client dies in
between, receivers get them afterwards."""
DELETE_FOR = 30.0
"""For how long, in seconds, one call looks for messages to delete."""


@dataclass(slots=True)
class _Task:
    """The work of one call.

    Attributes:
        entity: The entity.
        before_ms: Only messages that were enqueued before are deleted, ms since 1970.
        session: Only messages of this session are deleted, as long as it is locked; None: all.
        left: How many more may be deleted.
        deadline: When to stop, on the monotonic clock.
    """

    entity: Entity
    before_ms: int
    session: SessionLock | None
    left: int
    deadline: float

    @property
    def goes_on(self) -> bool:
        """Whether more is to be deleted, and there is time."""
        return self.left > 0 and time.monotonic() < self.deadline

    def choose(self, records: Iterable[Record]) -> list[Record]:
        """Return the records that are to be deleted."""
        wanted = (
            record for record in records if record.timestamp()[1] < self.before_ms and self._is_of_session(record)
        )
        return [record for record, _ in zip(wanted, range(self.left), strict=False)]

    def _is_of_session(self, record: Record) -> bool:
        return self.session is None or session_of(record) == self.session.session


class MessageDeletion:
    """Deletes the oldest messages that wait in each partition of an entity.

    Each message is read, locked and settled, so that nothing but a message that was enqueued in time counts, and no more are
    deleted than asked for. If the client dies in between, the locks end and receivers get the messages.

    Args:
        parts: The parts of the client.
    """

    def __init__(self, parts: ReaderParts) -> None:
        self._parts = parts
        self._connections = parts.connections

    def delete(self, entity: Entity, count: int, before_ms: int, session: SessionLock | None = None) -> int:
        """Delete messages that wait; locked, deferred and scheduled ones stay.

        Args:
            entity: The queue or subscription, or a dead-letter queue.
            count: The most messages to delete.
            before_ms: The time before which they were enqueued, ms since 1970.
            session: The lock of the session that they are of; None: any.

        Returns:
            How many messages were deleted. There may be more to delete if other clients claimed some during the call, the
            session's lock was lost, or a partition's brokers did not answer.

        Raises:
            MessagingEntityNotFoundError: The entity is gone.
            SessionLockLostError: The session's lock has expired, and nothing was deleted.
            OperationTimeoutError: There was no time to find any.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached, and nothing is known to be deleted.
        """
        if entity.subscription_filter is not None:
            # By rules that were changed since, no message could be chosen.
            entity = self._parts.catalog.entity_anew(entity)
        partitions = range(entity.partitions)
        if session is not None:
            partitions = range(session.partition, session.partition + 1)
        self._connections.notifications.note_use(entity)
        task = _Task(entity, before_ms, session, count, time.monotonic() + DELETE_FOR)
        try:
            self._delete_from_each(task, partitions)
        except ServiceBusError as error:
            if task.left == count:
                raise
            LOGGER.warning("deletion_cut_off entity=%s deleted=%d error=%s", entity.path, count - task.left, error)
        if task.left == count and time.monotonic() >= task.deadline:
            raise OperationTimeoutError(
                f"{entity.path}: no message to delete was found within {DELETE_FOR:g} s, and there may be more to look at: "
                "try again"
            )
        return count - task.left

    def _delete_from_each(self, task: _Task, partitions: Sequence[int]) -> None:
        entity, topics = task.entity, self._connections.topics
        self._parts.duplicate_scan.scan_all(entity, partitions)
        upto = topics.offsets_at(entity.topic, partitions, task.before_ms)
        for partition in partitions:
            if task.goes_on:
                cursor = self._delete_granted(task, partition, upto[partition])
                self._delete_fresh(task, partition, cursor, upto[partition])

    def _delete_granted(self, task: _Task, partition: int, upto: int) -> int:
        """Delete messages of one partition that wait below its ledger's cursor; return the cursor."""
        ledger, start = task.entity.ledgers[partition], 0
        while True:
            peek = Peek(ledger, start, FOUND_AT_ONCE, None if task.session is None else task.session.session)
            self._connections.ledger_client.execute(peek)
            below = [run for run in peek.found if run.first < peek.cursor]
            waiting = [(run.first, min(run.last, upto - 1)) for run in below if not (run.deferred or run.scheduled)]
            for sweep in sweeps(_slices(waiting), lambda run: run, at_once=READ_AT_ONCE):
                at, wanted = sweep[0][0], set(offsets_of(sweep))
                while at <= sweep[-1][1]:
                    if not task.goes_on:
                        return peek.cursor
                    stored, at = self._read(task.entity, partition, at, sweep[-1][1])
                    # They were chosen by the rules that held when they were granted first.
                    self._take(
                        task, ledger, task.choose(record for record in stored if record.offset() in wanted), None
                    )
            if sum(run.last - run.first + 1 for run in below) < FOUND_AT_ONCE or not task.goes_on:
                return peek.cursor
            start = below[-1].last + 1

    def _delete_fresh(self, task: _Task, partition: int, cursor: int, upto: int) -> None:
        """Delete messages of one partition that were never granted."""
        entity, parts = task.entity, self._parts
        while cursor < upto and task.goes_on:
            stored, after = self._read(entity, partition, cursor, min(upto, cursor + READ_AT_ONCE) - 1)
            messages = entity.select_received(stored)
            parts.marks.tell_topic(entity, entity.subscription_filter)
            messages = parts.dispositions.put_off(entity, partition, messages)
            chosen = task.choose(messages)
            self._take(task, entity.ledgers[partition], chosen, _seen_part(cursor, after, stored, messages, chosen))
            cursor = after

    def _read(self, entity: Entity, partition: int, first: int, last: int) -> tuple[list[Record], int]:
        """Return records from one offset to another, and the offset from which on the next are to be read."""
        stored = self._parts.archive.read_as_stored(entity, partition, first, last, most_bytes=READ_BYTES)
        return stored, read_upto(stored, last, READ_BYTES)

    def _take(self, task: _Task, ledger: Ledger, chosen: Sequence[Record], seen: Seen | None) -> None:
        """Lock those of the chosen messages that wait, and delete them."""
        if not chosen and seen is None:
            return
        session = None if task.session is None else task.session.lease
        seize = Seize(ledger, new_lease(), runs_of(chosen), LOCK_MS, seen, task.entity.rules_version, session=session)
        self._connections.ledger_client.execute(seize)
        if seize.gone:
            raise lock_lost(None if task.session is None else task.session.session, task.entity.path)
        taken = [(first, last) for first, last, _, deferred in seize.again if not deferred]
        deferred = [(first, last) for first, last, _, deferred in seize.again if deferred]
        complete = Settlement(ledger, "complete", seize.lease, taken)
        settlements = [complete] if taken else []
        if deferred:
            # Deferred since the ledger was asked.
            settlements.append(Settlement(ledger, "release", seize.lease, deferred))
        if settlements:
            # A caller that is cancelled leaves none of them locked.
            run_uninterrupted(self._connections.ledger_client.execute(*settlements))  # type: ignore[func-returns-value, unused-ignore]
        task.left -= len(offsets_of(taken)) - len(offsets_of(complete.lost))


def _slices(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield ranges, none longer than what is read in one go."""
    for first, last in ranges:
        for start in range(first, last + 1, READ_AT_ONCE):
            yield start, min(last, start + READ_AT_ONCE - 1)


def _seen_part(
    cursor: int, upto: int, stored: Sequence[Record], messages: Sequence[Record], chosen: Sequence[Record]
) -> Seen | None:
    """Return up to where all messages are chosen, so that the ledger's cursor may pass them; None if it may pass none.

    Args:
        cursor: The first offset that was read.
        upto: The offset behind the last one.
        stored: The records that were read.
        messages: Those that are messages.
        chosen: Those of the messages that are to be deleted.
    """
    offsets = {record.offset() for record in chosen}
    upto = min((record.offset() or 0 for record in messages if record.offset() not in offsets), default=upto)
    if upto <= cursor or any((record.offset() or 0) >= upto for record in chosen):
        # Messages that are locked beyond the cursor are left out by claims.
        return None
    passed = [record for record in stored if (record.offset() or 0) < upto]
    epoch = passed[-1].leader_epoch() if passed else None
    if epoch is None or epoch < 0:
        return Seen(cursor, upto, ())
    return Seen(cursor, upto, (), epoch, (passed[-1].offset() or 0) + 1)
