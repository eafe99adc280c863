# Generated from facade/kafkabus/_async/receiving/session_filer.py by tools/generate_blocking.py. Do not edit.
"""Filing messages under their sessions: records that were read, and messages that came back and whose session is not known."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

from kafkabus._core.delivery import Delivery
from kafkabus._core.entity import Entity
from kafkabus._core.fetch_plan import PartitionView, runs_of, sweeps
from kafkabus._core.record import Record, enqueue_time_of, session_of
from kafkabus._ledger.operations import Claim, FileMessages, Granted, PlaceMessages, new_lease
from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of
from kafkabus._sync.dispositions.disposition import delivered_too_often
from kafkabus._sync.receiving.granted_records import SWEPT_AT_ONCE
from kafkabus._sync.receiving.log_reader import SLOW_POLL, LogReader, ReaderParts
from kafkabus._sync.receiving.recent_records import RecentRecords
from kafkabus_mapping.keys import partition_of

PLACED_AT_ONCE = 1_000
"""How many returned messages are placed in their sessions in one go."""
NO_SESSION = "SessionIdMissing", "it is received in sessions alone, and the message has no session_id"
"""Reason and description of a message that belongs to no session."""
ELSEWHERE = (
    "SessionElsewhere",
    "it was stored in another partition than its session's: no sender of this SDK stored it",
)
"""Reason and description of a message of a subscription whose session is in another partition."""


class SessionFiler:
    """Files messages under their sessions; the caller has the turn of the log reader.

    Args:
        parts: The parts of the client.
        log: The reader of the entity's logs.
        kept: The records that were filed a moment ago.
        notified: Called with a partition in which messages of sessions were filed.
    """

    def __init__(
        self, parts: ReaderParts, log: LogReader, kept: RecentRecords, notified: Callable[[int], None]
    ) -> None:
        self._parts = parts
        self._connections = parts.connections
        self._log = log
        self._kept = kept
        self._notified = notified
        self._plan = log.plan

    @property
    def _entity(self) -> Entity:
        return self._log.entity

    def file(self) -> None:
        """File all messages that were read and not filed."""
        views = [view for view in self._plan.views if view.state.is_read and view.seen_to > view.seen_from]
        filings = [self._make_filing(view) for view in views]
        if not filings:
            return
        self._parts.marks.tell_topic(self._entity, self._log.subscription_filter)
        detections = self._log.detections(zip(views, (filing.seen for filing in filings), strict=True))
        self._connections.ledger_client.execute(*detections, *filings)
        self._log.follow_detections(detections)
        for view, filing in zip(views, filings, strict=True):
            granted = filing.granted
            if granted.ahead or granted.cursor > filing.seen.upto:
                self._plan.lost_race(view, time.monotonic() + 2 * SLOW_POLL)
            self._log.follow_cursor(view, granted)
            if granted.stale_rules:
                self._log.learn_rules()
                if self._entity.rules_version == self._log.rules_version:
                    # While rules are being changed, nothing new is filed.
                    view.rest()
            self._log.note(view, granted)
            if filing.sessions:
                self._notified(view.partition)
            self._give_up_strays(filing, granted)

    def _make_filing(self, view: PartitionView) -> FileMessages:
        """Return the filing of a partition's messages, and keep their records."""
        records = view.records
        sessions, strays = self._by_session(view.partition, records)
        self._kept.put(view.partition, records)
        ledger = self._entity.ledgers[view.partition]
        seen = view.seen_part(len(records))
        return FileMessages(
            ledger,
            new_lease(),
            seen,
            sessions,
            strays,
            self._entity.lock_ms,
            rules=self._log.rules_version,
        )

    def _by_session(self, partition: int, records: Sequence[Record]) -> tuple[dict[str, list[int]], list[Range]]:
        """Return the offsets of each session among records, and the ranges of those that belong to no session here."""
        offsets: dict[str | None, list[int]] = defaultdict(list)
        for record in records:
            session = None if enqueue_time_of(record) is not None else session_of(record)
            if (
                session is not None
                and session not in offsets
                and partition_of(session, self._entity.partitions) != partition
            ):
                session = None
            if (
                session is not None
                and self._log.subscription_filter is not None
                and self._log.subscription_filter.sets_apart(record)
            ):
                session = None
            offsets[session].append(record.offset() or 0)
        strays = merge_offsets(offsets.pop(None, ()))
        return {name: in_session for name, in_session in offsets.items() if name is not None}, strays

    def _give_up_strays(self, filing: FileMessages, granted: Granted) -> None:
        for first, last, _ in granted.again:
            delivery = self._entity.delivery(filing.ledger.partition, filing.lease, granted.expiry, 0)
            records, _ = self._kept.take(filing.ledger.partition, range(first, last + 1))
            self._lead_away(delivery, records)

    def _lead_away(self, delivery: Delivery, strays: Sequence[Record]) -> None:
        """Move messages that belong to no session here to their sessions' partitions, or to the dead-letter queue.

        If that fails, a client tries it again once their locks have expired.
        """
        by_partition: dict[int | None, list[Record]] = defaultdict(list)
        strays = self._log.schedule_held(delivery, strays)
        for record in self._parts.dispositions.as_received(self._entity, delivery, strays):
            session = session_of(record)
            by_partition[None if session is None else partition_of(session, self._entity.partitions)].append(record)
        for there, records in by_partition.items():
            if there is None:
                self._parts.dispositions.dead_letter(self._entity, delivery, records, *NO_SESSION)
            elif self._log.subscription_filter is not None:
                # Other subscriptions read the same log.
                self._parts.dispositions.dead_letter(self._entity, delivery, records, *ELSEWHERE)
            else:
                self._parts.dispositions.move(self._entity, delivery, there, records)

    def place(self, view: PartitionView) -> None:
        """Read messages that came back and wait to be filed, and file them."""
        claim = Claim(
            self._entity.ledgers[view.partition],
            new_lease(),
            want=PLACED_AT_ONCE,
            lock_ms=self._entity.lock_ms,
            rules=self._entity.rules_version,
        )
        self._connections.ledger_client.execute(claim)
        try:
            if claim.granted.stale_rules:
                self._log.learn_rules()
            self._place_claimed(claim)
        except BaseException:
            # The ledger grants nothing of the partition's sessions while a lease holds these.
            self._connections.ledger_client.enqueue(claim.undo())
            self._log.undelivered.put_back([])
            raise
        self._log.note(view, claim.granted)
        if claim.granted.again:
            self._notified(view.partition)

    def _place_claimed(self, claim: Claim) -> None:
        ledger = claim.ledger
        for sweep in sweeps(sorted(claim.granted.again), lambda granted_run: granted_run[:2], at_once=SWEPT_AT_ONCE):
            for count, runs in groupby(sweep, key=itemgetter(2)):
                granted = self._entity.delivery(ledger.partition, claim.lease, claim.granted.expiry, count)
                records = self._log.read_again(granted, [run[:2] for run in runs])
                exceeded = count >= self._entity.max_deliveries
                sessions, strays = ({}, runs_of(records)) if exceeded else self._by_session(ledger.partition, records)
                place = PlaceMessages(ledger, claim.lease, sessions, strays, self._entity.lock_ms)
                self._connections.ledger_client.execute(place)
                stray_offsets = set(offsets_of(strays))
                stray = [record for record in records if record.offset() in stray_offsets]
                delivery = self._entity.delivery(ledger.partition, place.apart, place.expiry, count)
                if exceeded:
                    reason = delivered_too_often(self._entity, count)
                    self._parts.dispositions.dead_letter(self._entity, delivery, stray, *reason)
                else:
                    self._lead_away(delivery, stray)
