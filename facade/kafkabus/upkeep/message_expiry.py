"""Letting messages expire whose time to live is over, though no receiver has received them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.fetch_plan import runs_of
from kafkabus._core.record import Record, exclude_records, is_expired
from kafkabus._ledger.operations import Claim, Look, Peek, Purge, Seen, Seize, new_lease
from kafkabus._ledger.ranges import Range
from kafkabus.upkeep.deadline import RETRY_AFTER, Deadline
from kafkabus.upkeep.expiry_index import Expiries

AT_ONCE = 500
"""How many messages are locked at a time."""
LOCK_MS = 60_000
"""For how long, in milliseconds, messages are locked; then other instances take them."""


class MessageExpiry:
    """Lets messages of one entity expire.

    Args:
        context: The service's parts.
        deadline: When the entity is maintained next.
    """

    __slots__ = ("_began", "_context", "_deadline", "_expiries")

    def __init__(self, context: ClientContext, deadline: Deadline) -> None:
        self._context = context
        self._deadline = deadline
        self._expiries: dict[int, Expiries] = {}
        self._began = 0.0

    def reset(self) -> None:
        """Forget the times of all messages: the entity is another one, or its messages are chosen by other rules."""
        self._expiries = {}

    async def expire(
        self,
        entity: Entity,
        looks: Sequence[Look | None],
        ends: Mapping[int, int],
        claims: Mapping[int, Claim],
        began: float,
    ) -> None:
        """Let messages of some partitions expire.

        Args:
            entity: The entity.
            looks: Its ledgers, by partition; None: Redis lost it.
            ends: The offset of each partition up to which messages may expire.
            claims: The answers of the partitions' ledgers, which ended expired locks.
            began: When the entity's maintenance began, on the monotonic clock.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        self._began = began
        with_ttl = {
            partition for partition in claims if (look := looks[partition]) is None or look.state.has_message_ttl
        }
        if not with_ttl and entity.life_ms is None:
            return
        times = {partition: await self._context.stores.clock_skew.now_ms(entity, partition) for partition in claims}
        known = {partition: now for partition, now in times.items() if now is not None}
        if len(known) < len(times):
            self._deadline.advance_within(RETRY_AFTER)
        for partition in sorted(with_ttl & known.keys()):
            await self._expire_each(entity, partition, ends[partition], known[partition])
        uniform = {partition: claims[partition] for partition in known if partition not in with_ttl}
        if uniform and entity.life_ms is not None:
            now = min(known[partition] for partition in uniform)
            await self._expire_by_time(entity, uniform, ends, now - entity.life_ms)

    async def _expire_by_time(
        self, entity: Entity, claims: Mapping[int, Claim], ends: Mapping[int, int], moment: int
    ) -> None:
        """Let messages enqueued up to a moment expire, as all have one time to live; the broker knows where these end."""
        context = self._context
        upto = await context.topics.first_after(entity.topic, list(claims), moment + 1)
        for partition, (expired, stored_at) in upto.items():
            end = min(expired, ends[partition])
            if stored_at is not None:
                self._continue_in(stored_at - moment)
            ledger, granted = entity.ledgers[partition], claims[partition].granted
            peek = Peek(ledger, 0, AT_ONCE)
            await context.ledger_client.execute(peek)
            # If expired messages are not kept, those that wait need not be read.
            kept = [
                waiting for waiting in peek.found if waiting.first < end and (entity.keeps_expired or waiting.deferred)
            ]
            if kept:
                await self._seize(entity, partition, [(waiting.first, min(waiting.last, end - 1)) for waiting in kept])
            if entity.keeps_expired and peek.cursor < end:
                await self._seize_from_log(entity, partition, peek.cursor, min(end, peek.cursor + AT_ONCE))
            waits = granted.redeliverable or any(waiting.first < end and not waiting.deferred for waiting in peek.found)
            if not entity.keeps_expired and (peek.cursor < end or waits):
                await context.ledger_client.execute(Purge(ledger, end))

    async def _expire_each(self, entity: Entity, partition: int, end: int, now: int) -> None:
        """Let messages with individual times to live expire; an index says when the first of each stretch is over."""
        expiries = self._expiries.get(partition)
        if expiries is None:
            expiries = self._expiries[partition] = await self._create_index(entity, partition)
        while (stretch := expiries.unread(end)) is not None:
            expiries.add(*stretch, await self._read(entity, partition, stretch[0], stretch[1]), entity.life_ms)
        for first, last in expiries.due(now):
            records = await self._read(entity, partition, first, last)
            records = await self._context.dispositions.put_off(entity, partition, records)
            expired = [record for record in records if is_expired(record, entity.life_ms, now)]
            if expired:
                await self._seize(entity, partition, runs_of(expired), expired)
            expiries.add(first, last, exclude_records(records, expired), entity.life_ms)
        if expiries.next_at is not None:
            self._continue_in(expiries.next_at - now)

    def _continue_in(self, ms: int) -> None:
        """Have the entity maintained again when a message expires, in so many ms, but rest for as long as this time took."""
        self._deadline.advance_to_event(max(time.monotonic() - self._began, ms / 1000))

    async def _create_index(self, entity: Entity, partition: int) -> Expiries:
        """Return the index of a log that was not read yet, with the records of it that are kept apart."""
        context = self._context
        peek = Peek(entity.ledgers[partition], 0, 1)
        await context.ledger_client.execute(peek)
        first = peek.found[0].first if peek.found else peek.cursor
        start = (await context.topics.starts(entity.topic, [partition]))[partition]
        expiries = Expiries(max(first, start))
        for offset in await context.stores.archive.find_archived(entity, partition) if first < start else ():
            expiries.add(offset, offset, await self._read(entity, partition, offset, offset), entity.life_ms)
        return expiries

    async def _seize_from_log(self, entity: Entity, partition: int, first: int, upto: int) -> None:
        """Lock messages that were never granted, from the cursor on, and let them expire."""
        records = await self._read(entity, partition, first, upto - 1)
        await self._context.marks.tell_topic(entity, entity.subscription_filter)
        records = await self._context.dispositions.put_off(entity, partition, records)
        await self._seize(entity, partition, runs_of(records), records, (first, upto))

    async def _seize(
        self,
        entity: Entity,
        partition: int,
        ranges: list[Range],
        records: Sequence[Record] | None = None,
        seen: Range | None = None,
    ) -> None:
        """Lock messages that wait in ranges, and let them expire; ``records`` are theirs if they were read already."""
        read = None if seen is None else Seen(*seen, ())
        seize = Seize(entity.ledgers[partition], new_lease(), ranges, LOCK_MS, read, entity.rules_version)
        await self._context.ledger_client.execute(seize)
        reader = await self._context.receiving.readers.reader_of(entity)
        for first, last, count, deferred in seize.again:
            delivery = entity.delivery(partition, seize.lease, seize.expiry, count, deferred=deferred)
            if records is None:
                seized = await reader.log.read_again(delivery, [(first, last)])
            else:
                seized = [record for record in records if first <= (record.offset() or 0) <= last]
            await self._context.dispositions.expire(entity, delivery, seized)

    async def _read(self, entity: Entity, partition: int, first: int, last: int) -> list[Record]:
        return await self._context.stores.archive.read(entity, partition, first, last)
