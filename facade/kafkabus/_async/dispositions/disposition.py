"""The disposition of messages that receivers do not get: those delivered too often, or whose time to live is over."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafkabus._async.connections import Connections
from kafkabus._async.dispositions.transaction_commit import CommitParts, replace_by_copies
from kafkabus._async.dispositions.transfer import Transfers
from kafkabus._async.entities.ledger_marks import LedgerMarks
from kafkabus._async.stores.clock_skew import ClockSkew
from kafkabus._core.delivery import Delivery, Grant
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageLockLostError, ServiceBusError
from kafkabus._core.fetch_plan import runs_of
from kafkabus._core.record import Record, any_lives, exclude_records, is_expired, part_scheduled
from kafkabus._ledger.operations import Schedule, Settlement
from kafkabus_mapping.codec import Envelope

LOGGER = logging.getLogger("kafkabus")

FAULTY = "FilterEvaluationException"
"""Reason of a dead-lettered message of which a subscription's rules make nothing that can be received."""
EXPIRED = ("TTLExpiredException", "its time to live was over before it was received")
"""Reason and description of a message whose time to live was over."""


def delivered_too_often(entity: Entity, count: int) -> tuple[str, str]:
    """Return reason and description of a message that was delivered ``count`` times, as often as its queue allows."""
    return "MaxDeliveryCountExceeded", f"delivered {count} times, and max_delivery_count is {entity.max_deliveries}"


class Dispositions:
    """Disposes of a client's messages that receivers do not get.

    Args:
        connections: The client's.
        marks: Notifies ledgers of messages before they are stored.
        clock_skew: Returns the time on the brokers' clock.
        transfers: Moves messages.
        commit_parts: For transactions that replace a message by copies.
    """

    def __init__(
        self,
        connections: Connections,
        *,
        marks: LedgerMarks,
        clock_skew: ClockSkew,
        transfers: Transfers,
        commit_parts: CommitParts,
    ) -> None:
        self._connections = connections
        self._marks = marks
        self._clock_skew = clock_skew
        self._transfers = transfers
        self._commit_parts = commit_parts

    async def expired(self, entity: Entity, partition: int, records: Sequence[Record]) -> list[Record]:
        """Return those of some records whose time to live is over.

        Args:
            entity: The entity of the records.
            partition: The partition of the records.
            records: The records to look at.
        """
        if not entity.expires or not records:
            return []
        now = await self._clock_skew.now_ms(entity, partition)
        return [] if now is None else [record for record in records if is_expired(record, entity.life_ms, now)]

    async def outlives(self, entity: Entity, grant: Grant) -> bool:
        """Dispose of a grant's messages that have expired, or were delivered too often; return whether any are left."""
        delivery = grant.delivery
        brings_lives = entity.expires and any_lives(grant.records)
        if brings_lives:
            self._marks.mark_later(entity, delivery.partition, "has_message_ttl")
        if brings_lives or (entity.expires and entity.life_ms is not None):
            expired = await self.expired(entity, delivery.partition, grant.records)
            if expired:
                await self.expire(entity, delivery, expired)
                grant.records = exclude_records(grant.records, expired)
        if grant.records and delivery.count >= entity.max_deliveries:
            await self.dead_letter(entity, delivery, grant.records, *delivered_too_often(entity, delivery.count))
            return False
        return bool(grant.records)

    async def expire(self, entity: Entity, delivery: Delivery, records: Sequence[Record]) -> None:
        """Take messages whose time to live is over out of their lease: dead-letter them if the entity says so, else settle."""
        if entity.keeps_expired:
            await self.dead_letter(entity, delivery, records, *EXPIRED)
        elif delivery.lease:
            settlement = Settlement(entity.ledgers[delivery.partition], "complete", delivery.lease, runs_of(records))
            await self._connections.ledger_client.execute(settlement)

    async def dead_letter(
        self, entity: Entity, delivery: Delivery, records: Sequence[Record], reason: str, description: str
    ) -> None:
        """Dead-letter messages unseen; if that fails, a client tries again once their locks have expired."""
        try:
            await self._transfers.dead_letter(
                entity, delivery.partition, {delivery.lease: records}, reason=reason, description=description
            )
        except ServiceBusError as error:
            LOGGER.warning("give_up_failed entity=%s partition=%d error=%s", entity.path, delivery.partition, error)

    async def put_off(self, entity: Entity, partition: int, records: Sequence[Record]) -> list[Record]:
        """Have scheduled messages that were not granted yet wait for their time, also those of plain producers.

        Args:
            entity: The entity of the messages.
            partition: The partition of the messages.
            records: Records that are stored there.

        Returns:
            The records of the other messages.
        """
        items, remaining = part_scheduled(records)
        if items:
            self._marks.mark_later(entity, partition, "schedules")
            await self._connections.ledger_client.execute(Schedule(entity.ledgers[partition], items))
        return remaining

    async def activate(self, entity: Entity, partition: int) -> None:
        """Enqueue scheduled messages whose time has come; if that fails, the next receiver, or upkeep, tries again."""
        try:
            end = (await self._connections.topics.ends(entity.topic, [partition]))[partition]
            while await self._transfers.activate(entity, partition, end):
                pass
        except ServiceBusError as error:
            LOGGER.warning("activate_failed entity=%s partition=%d error=%s", entity.path, partition, error)

    async def move(self, entity: Entity, delivery: Delivery, there: int, records: Sequence[Record]) -> None:
        """Move messages into the right partition of their entity; if that fails, the next receiver, or upkeep, tries again."""
        LOGGER.info(
            "moved entity=%s from=%d to=%d count=%d: a plain producer stored them elsewhere than in the partition of their key",
            entity.path,
            delivery.partition,
            there,
            len(records),
        )
        try:
            await self._transfers.to_partition(entity, delivery.partition, there, {delivery.lease: records})
        except ServiceBusError as error:
            LOGGER.warning("move_failed entity=%s partition=%d error=%s", entity.path, delivery.partition, error)

    async def as_received(self, entity: Entity, delivery: Delivery, records: Sequence[Record]) -> list[Record]:
        """Return granted records as they are received.

        A message for which a subscription's rule could not be evaluated is dead-lettered. A message of which the rules make
        several copies is replaced by these, which come later.
        """
        subscription_filter = entity.subscription_filter
        if subscription_filter is None or not subscription_filter.may_fail:
            return list(records)
        left: list[Record] = []
        for record in records:
            complaint, copies = subscription_filter.complaint(record), subscription_filter.copies_of(record)
            if complaint is not None:
                await self.dead_letter(entity, delivery, [record], FAULTY, complaint)
            elif copies:
                await self._replace(entity, delivery, record, copies)
            else:
                left.append(record)
        return subscription_filter.change_granted(left)

    async def _replace(self, entity: Entity, delivery: Delivery, record: Record, copies: Sequence[Envelope]) -> None:
        """Replace a message by its copies; if that fails, a client tries again once the message's lock has expired."""
        try:
            await replace_by_copies(self._commit_parts, entity, delivery, record, copies)
        except (ServiceBusError, MessageLockLostError) as error:
            LOGGER.warning("copies_failed entity=%s partition=%d error=%s", entity.path, delivery.partition, error)
