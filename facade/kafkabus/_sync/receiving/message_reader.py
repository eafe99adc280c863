# Generated from facade/kafkabus/_async/receiving/message_reader.py by tools/generate_blocking.py. Do not edit.
"""Claiming the messages of an entity without sessions, for all receivers of a client.

Messages are claimed out of what was read ahead. If more clients receive than the entity has partitions, messages are
claimed before they are read: then only the holder reads a message.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kafkabus._core.delivery import Delivery, Grant
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.fetch_plan import PartitionView, PlannedClaim, sweeps
from kafkabus._core.record import schedule_of, size_of
from kafkabus._ledger.operations import IN_FLIGHT_LIMIT, Claim, Granted, new_lease
from kafkabus._sync.compat import run_uninterrupted, sleep
from kafkabus._sync.receiving.granted_records import SWEPT_AT_ONCE
from kafkabus._sync.receiving.granted_sorter import GrantedSorter
from kafkabus._sync.receiving.log_reader import POLL_SLICE, SLOW_POLL, LogReader, ReaderParts

LOGGER = logging.getLogger("kafkabus.reader")

LEAVE_ALONE = 2.0
"""For how long, in seconds, another client's partition is left alone after a lost race."""
AHEAD_FROM = 50
"""How many messages must be wanted, and wait, for it to be worth claiming them before they are read."""
TAILS_TIMEOUT = 1.0
"""How long, in seconds, the brokers may take to say where logs end."""
NOT_AHEAD = 10.0
"""For how long, in seconds, nothing is claimed ahead after they did not answer, or another leader took over."""


class MessageReader:
    """Receives from an entity without sessions for all receivers of one client; it implements ``LogListener``.

    Args:
        parts: The parts of the client.
        entity: The entity to receive from.
        in_order: Whether nothing is received of a partition while other messages of it are under way, and nothing new before
            messages that came back, so that messages arrive in the order of the log.

    Attributes:
        log: The reader of the entity's logs.
    """

    def __init__(self, parts: ReaderParts, entity: Entity, *, in_order: bool = False) -> None:
        self._parts = parts
        self._connections = parts.connections
        self._in_order = in_order
        self.log = LogReader(parts, entity, self, in_order=in_order)
        self._sorter = GrantedSorter(parts, self.log)
        self._plan = self.log.plan
        self._looked_at = 0.0
        # Records that may be duplicates, or that a subscription may not want, are read before they are claimed.
        self._small_batches_until = (
            math.inf if entity.detects_duplicates or entity.subscription_filter is not None else 0.0
        )

    def receive(
        self,
        want: int,
        timeout: float,
        closed: Callable[[], bool],
        *,
        take: bool = False,
        most_bytes: float = math.inf,
        holder: str | None = None,
    ) -> list[Grant]:
        """Claim up to ``want`` messages, waiting until at least one is there.

        Args:
            want: The most messages to claim.
            timeout: The longest wait for the first, in seconds.
            closed: Whether the receiver was closed, and wants none any more.
            take: Whether messages are received and deleted. The claim itself settles those that were never granted before,
                unless expired messages are dead-lettered: then none is settled before it is known not to have expired.
            most_bytes: How many bytes the messages may have together that were read before they are claimed, if they are
                several. Of others, few are claimed at a time.
            holder: The receiver, as leases name it; None if they do not.

        Returns:
            The messages that were granted; none if time ran out.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        log, plan, deadline = self.log, self._plan, time.monotonic() + timeout
        if want < AHEAD_FROM:
            self._small_batches_until = max(self._small_batches_until, time.monotonic() + 2 * SLOW_POLL)
        if not log.acquire(timeout):
            return []
        grants: list[Grant] = []
        try:
            if take:
                grants = log.undelivered.take(want)
            kept = 0
            while not log.is_closed and not closed():
                left = self._count_left(want, grants, most_bytes - kept)
                log.maintain(idle=not plan.buffer_length and not grants)
                if not log.read_on(left, 0.0 if grants else log.patience(deadline)):
                    continue
                unread = self._unread(left, most_bytes - kept)
                planned = plan.claims(left, fresh=not log.is_full, most_bytes=most_bytes - kept, unread=unread)
                if planned:
                    self._claim(planned, take, holder, grants)
                    # Messages that were claimed may have gone elsewhere.
                    kept = 0 if most_bytes == math.inf else _size_of(grants)
                    looks = log.entity.detects_duplicates or log.subscription_filter is not None
                    if looks and not grants and time.monotonic() >= deadline:
                        # There may be many records to look at before one that is a message.
                        return grants
                elif grants or self._is_out_of_time(deadline):
                    return grants
                else:
                    self._rest()
            log.undelivered.put_back(grants)
            return []
        except BaseException:
            log.resync()
            log.undelivered.put_back(grants)
            raise
        finally:
            log.release()

    def _count_left(self, want: int, grants: Sequence[Grant], most_bytes: float) -> int:
        """Return how many messages are wanted beside those that were granted."""
        if self.log.is_late(grants) or (grants and (self._in_order or most_bytes <= 0)):
            return 0
        return want - sum(len(grant.records) for grant in grants)

    def _unread(self, left: int, most_bytes: float) -> int:
        """Return how many messages may be claimed whose sizes are not known."""
        if most_bytes == math.inf:
            return left
        return min(left, max(AHEAD_FROM, int(most_bytes // self.log.entity.max_message_bytes)))

    # LogListener.

    def on_notification(self, partition: int) -> None:
        """Ask the partition's ledger at the next claim."""
        self._plan.views[partition].redeliverable = True

    def on_note(self, partition: int, granted: Granted) -> None:
        """Do nothing: the plan has all that matters."""

    def needed_partitions(self) -> Iterable[int]:
        """Return no partition: any may be left to other clients."""
        return ()

    def on_suspected_truncation(self) -> None:
        """Claim nothing ahead for a while."""
        self._small_batches_until = max(self._small_batches_until, time.monotonic() + NOT_AHEAD)
        self._plan.small_batches, self._plan.claims_unread = True, False

    def on_activity(self) -> None:
        """Leave the other clients' partitions to them if many messages are wanted: all clients would read what comes now."""
        self._plan.small_batches = time.monotonic() < self._small_batches_until

    def slow_poll(self, *, idle: bool) -> None:
        """Look around. While nothing happens, the partitions of other clients are read, too, rather than asked about."""
        self._plan.small_batches = idle or time.monotonic() < self._small_batches_until
        self._look_around()

    def on_release(self) -> None:
        """Do nothing: the plan was emptied."""

    # When nothing is at hand.

    def _is_out_of_time(self, deadline: float) -> bool:
        """Return whether time ran out, and no message waits that may be claimed ahead."""
        now, plan = time.monotonic(), self._plan
        if now < deadline:
            return False
        if (
            self.log.is_full
            or plan.small_batches
            or plan.sole_reader
            or self._looked_at >= min(deadline, now - POLL_SLICE)
        ):
            return True
        self._look_around()
        return not plan.backlog

    def _rest(self) -> None:
        """Wait a moment if nothing is asked for, or see whether more can be claimed ahead."""
        if self.log.is_full or self._plan.is_resting:
            sleep(POLL_SLICE)
        elif self._plan.claims_unread:
            self._look_around()

    def _look_around(self) -> None:
        """See what waits in partitions that other clients read, and whether to claim all before it is read."""
        plan, connections, entity = self._plan, self._connections, self.log.entity
        plan.claims_unread = False
        if plan.sole_reader or plan.small_batches:
            return
        try:
            tails = connections.topics.tails(entity.topic, range(len(plan.views)), TAILS_TIMEOUT)
        except ServiceBusError as error:
            # A partition may have no leader: to ask for it each second would delay the others.
            LOGGER.warning("not_ahead entity=%s error=%s", entity.path, error)
            self.on_suspected_truncation()
        else:
            plan.look(tails, AHEAD_FROM)
        self._looked_at = time.monotonic()

    # Claims.

    def _claim(self, planned: Sequence[PlannedClaim], take: bool, holder: str | None, grants: list[Grant]) -> None:
        """Make the claims of one round trip; the messages that were granted are added to ``grants``."""
        log, known = self.log, len(grants)
        self._parts.marks.tell_topic(log.entity, log.subscription_filter)
        claims = [self._claim_of(plan, take, holder) for plan in planned]
        detections = log.detections((plan.view, plan.seen) for plan in planned)
        try:
            if take:
                # Messages that a claim settles must be seen to arrive, also by a task that is cancelled.
                run_uninterrupted(
                    self._connections.ledger_client.execute(*detections, *claims)  # type: ignore[func-returns-value, unused-ignore]
                )
            else:
                self._connections.ledger_client.execute(*detections, *claims)
        finally:
            # Before anything else is awaited, all messages that are here go into the list, so that no error loses them.
            settled = [(plan, claim) for plan, claim in zip(planned, claims, strict=True) if claim.was_granted]
            for plan, claim in settled:
                self._add_fresh(plan, claim, grants)
        log.follow_detections(detections)
        for plan, claim in settled:
            self._add_unseen(claim, grants)
            self._add_again(claim, grants)
            self._follow(plan, claim)
        for grant in [grant for grant in grants[known:] if grant.records and grant.delivery.lease]:
            grant.records = self._sorter.sort_out(grant.delivery, grant.records)
            if not grant.records:
                grants.remove(grant)

    def _claim_of(self, plan: PlannedClaim, take: bool, holder: str | None) -> Claim:
        entity = self.log.entity
        return Claim(
            entity.ledgers[plan.view.partition],
            new_lease(),
            want=plan.want,
            lock_ms=entity.lock_ms,
            seen=plan.seen,
            ahead=plan.ahead,
            # Records that are yet to be read are settled afterwards, and scheduled messages not at all.
            settle_on_claim=take
            and plan.ahead is None
            and not entity.keeps_expired
            and not self._sorter.may_move
            and not schedule_of(plan.view.records[: plan.want]),
            limit=IN_FLIGHT_LIMIT,
            exclusive=self._in_order,
            rules=self.log.rules_version,
            by=holder,
        )

    def _add_fresh(self, plan: PlannedClaim, claim: Claim, grants: list[Grant]) -> None:
        """Add the messages that were granted out of the plan; and a grant for those to be read, so that its lease is known."""
        granted = claim.granted
        delivery = self._delivery(claim, 0)
        if granted.fresh and not claim.unseen:
            fresh = replace(delivery, lease="", expiry=0) if claim.settle_on_claim else delivery
            grant = Grant(fresh, [])
            # First of all, the lease is known to the caller.
            grants.append(grant)
            grant.records = plan.view.take(granted.fresh)
        if granted.again or claim.unseen:
            grants.append(Grant(delivery, []))

    def _add_unseen(self, claim: Claim, grants: list[Grant]) -> None:
        """Read the messages that were claimed ahead."""
        if not claim.unseen:
            return
        delivery = self._delivery(claim, 0)
        records = self.log.granted.read(delivery, claim.unseen)
        LOGGER.debug(
            "claim_ahead entity=%s partition=%d ranges=%s", self.log.entity.path, delivery.partition, claim.unseen
        )
        if records:
            grants.append(Grant(delivery, records))
        else:
            # If many offsets hold no message, reading passes them faster.
            self._plan.claims_unread = False

    def _add_again(self, claim: Claim, grants: list[Grant]) -> None:
        """Read the messages that were granted before."""
        for sweep in sweeps(sorted(claim.granted.again), lambda granted: granted[:2], at_once=SWEPT_AT_ONCE):
            wanted = [(first, last) for first, last, _ in sweep]
            records = self.log.granted.read(self._delivery(claim, 0), wanted)
            for first, last, count in sweep:
                part = [record for record in records if first <= (record.offset() or 0) <= last]
                if part:
                    grants.append(Grant(self._delivery(claim, count), part))

    def _delivery(self, claim: Claim, count: int) -> Delivery:
        return self.log.entity.delivery(claim.ledger.partition, claim.lease, claim.granted.expiry, count)

    def _follow(self, plan: PlannedClaim, claim: Claim) -> None:
        """Go where the ledger's cursor is, and note what else its answer says."""
        log, view, granted, seen = self.log, plan.view, claim.granted, plan.seen
        if seen is not None:
            passed_over = seen.runs and not granted.fresh and not granted.limited
            if granted.ahead or granted.cursor > seen.upto or passed_over:
                self._plan.lost_race(view, time.monotonic() + LEAVE_ALONE)
            log.follow_cursor(view, granted)
        if granted.epoch_mismatch:
            log.mark_unverified(view)
        if granted.stale_rules:
            log.learn_rules()
        # While rules are being changed, nothing new is granted.
        if granted.limited or (granted.stale_rules and log.entity.rules_version == log.rules_version):
            view.rest()
        else:
            view.wake()
        self._warn_of_limit(view, granted)
        log.note(view, granted)

    def _warn_of_limit(self, view: PartitionView, granted: Granted) -> None:
        """Log once that too many messages of a partition are in flight."""
        if granted.limited and not view.limited and not self._in_order:
            LOGGER.warning(
                "in_flight_limit entity=%s partition=%d limit=%d: nothing new is received there until some are settled",
                self.log.entity.path,
                view.partition,
                IN_FLIGHT_LIMIT,
            )
        view.limited = granted.limited or (view.limited and not granted.fresh)


def _size_of(grants: Sequence[Grant]) -> int:
    """Return how many bytes granted messages have together."""
    return sum(size_of(record) for grant in grants for record in grant.records)
