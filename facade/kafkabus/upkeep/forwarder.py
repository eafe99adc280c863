"""Forwarding: messages that come to an entity that forwards move on to another one."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from kafkabus._async.context import ClientContext
from kafkabus._async.dispositions.transfer import EntityLog
from kafkabus._async.receiving.message_reader import MessageReader
from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity
from kafkabus._core.record import Record, as_bytes, envelope_of
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus.upkeep.unmatched import UnmatchedMessages
from kafkabus_mapping.codec import Envelope, record_size
from kafkabus_mapping.entities import EntityStatus, SubscriptionDescription
from kafkabus_mapping.keys import KeyRuleError, partition_of
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.namespaces import MAX_HOPS

AT_ONCE = 500
"""How many messages are moved on at a time."""
LOCK = timedelta(seconds=20)
"""For how long messages are locked before the move begins, whatever the entity says: then other instances try."""

LARGEST = 1_900_000
"""How many bytes a message may have to be forwarded: as many as Kafka takes, less room for the reason why it is where it is."""
ASKED_FOR = 5.0
"""For how long, in seconds, to ask for the end of the destination's log: well within that lock."""

Leased = dict[str, list[Record]]
"""Messages by the lease that holds them."""


class _Refusal(NamedTuple):
    """Why a message is not forwarded.

    Attributes:
        reason: The reason in a word.
        description: The reason in a sentence.
    """

    reason: str
    description: str


class Forwarder:
    """Moves on the messages that come to one entity.

    Args:
        context: The service's parts.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._entity: Entity | None = None
        self._reader: MessageReader | None = None
        self._unmatched = UnmatchedMessages(context)
        self._turn = 0

    async def forward(self, entity: Entity, seconds: float) -> None:
        """Move messages on as they come, for some seconds.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached. Another client finishes the moves that began; the other
                messages wait again.
        """
        until = time.monotonic() + seconds
        reader = await self._reader_of(entity)
        while (left := until - time.monotonic()) > 0:
            grants = await reader.receive(AT_ONCE, left, bool, holder=self._context.holder_of("upkeep"))
            try:
                await self._move_on(entity, grants)
            except MessagingEntityNotFoundError as error:
                # The topic of the destination is another one than before; the entity itself is there.
                await reader.log.undelivered.put_back(grants)
                raise ServiceBusError(f"{entity.path} cannot forward now: {error}", error=error) from error
            except BaseException:
                await reader.log.undelivered.put_back(grants)
                raise

    async def close(self) -> None:
        """Stop reading."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.log.close()

    async def _reader_of(self, entity: Entity) -> MessageReader:
        if self._reader is None or self._entity != entity:
            await self.close()
            self._entity = entity
            patient = entity.description.model_copy(update={"lock_duration": LOCK})
            self._reader = self._context.receiving.readers.in_order(entity.with_description(patient))
        return self._reader

    async def _move_on(self, entity: Entity, grants: Sequence[Grant]) -> None:
        path = entity.forwards_to
        if grants and isinstance(entity.description, SubscriptionDescription) and entity.description.is_unmatched:
            grants, path = await self._unmatched.judge(entity, grants)
        waiting = [grant for grant in grants if await self._context.dispositions.outlives(entity, grant)]
        if path is None or not waiting:
            return
        try:
            destination = await self._context.catalog.entity(path)
        except MessagingEntityNotFoundError:
            destination = None
        if destination is not None and destination.description.retiring_at is not None:
            raise ServiceBusError(f"{entity.path} waits: {destination.kind} {path} is being deleted, or kept")
        turn = 0 if destination is None else await self._next_partition(destination)
        accepted: dict[tuple[int, int], Leased] = defaultdict(lambda: defaultdict(list))
        refused: dict[tuple[int, _Refusal], Leased] = defaultdict(lambda: defaultdict(list))
        for grant in waiting:
            here, lease = grant.delivery.partition, grant.delivery.lease
            for record in grant.records:
                there = _choose_partition(record, path, destination, turn)
                if isinstance(there, _Refusal):
                    refused[here, there][lease].append(record)
                else:
                    accepted[here, there][lease].append(record)
        if destination is not None:
            await self._forward(entity, destination, accepted)
        transfers = self._context.transfers
        await _all(
            transfers.dead_letter(
                entity, here, records, reason=why.reason, description=why.description, forwarding=True
            )
            for (here, why), records in refused.items()
        )

    async def _forward(self, entity: Entity, destination: Entity, accepted: dict[tuple[int, int], Leased]) -> None:
        context = self._context

        async def forward_records(here: int, there: int, records: Leased) -> None:
            tails = await context.topics.tails(destination.topic, [there], ASKED_FOR)
            await context.transfers.forward(entity, here, EntityLog(destination, there), tails[there].end, records)

        await _all(forward_records(here, there, records) for (here, there), records in accepted.items())

    async def _next_partition(self, destination: Entity) -> int:
        """Return the partition to which messages without a key go: the next in turn, as when they are sent."""
        unavailable = await self._context.availability.find_unavailable(destination)
        partitions = range(destination.partitions)
        open_ones = [partition for partition in partitions if partition not in destination.full] or partitions
        open_ones = [partition for partition in open_ones if partition not in unavailable] or open_ones
        self._turn += 1
        return open_ones[self._turn % len(open_ones)]


def forwards(entity: Entity) -> bool:
    """Return whether messages that come to an entity move on to another one."""
    closed = {EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED}
    return entity.forwards_to is not None and entity.description.status not in closed


def _choose_partition(record: Record, path: EntityPath, destination: Entity | None, turn: int) -> int | _Refusal:
    """Return the partition that a message goes to, or why it goes nowhere."""
    envelope = envelope_of(record)
    if (envelope.hops or 0) >= MAX_HOPS:
        return _Refusal(
            "MaxTransferHopCountExceeded", f"it was forwarded {envelope.hops} times, and {MAX_HOPS} is the limit"
        )
    if destination is None:
        return _Refusal("MessagingEntityNotFound", f"there is no queue or topic {path} to forward it to")
    try:
        key = destination.key_of(envelope)
    except KeyRuleError as error:
        return _Refusal("InvalidOperation", str(error))
    refusal = _refusal(record, envelope, destination)
    if refusal is not None:
        return refusal
    there = turn if key is None else partition_of(key, destination.partitions)
    if there in destination.full:
        return _Refusal("QuotaExceeded", f"partition {there} of {destination.kind} {path} holds as much as it may")
    return there


def _refusal(record: Record, envelope: Envelope, destination: Entity) -> _Refusal | None:
    """Return why a destination does not take a message; None if it does."""
    path, status = destination.path, destination.description.status
    if status in {EntityStatus.DISABLED, EntityStatus.SEND_DISABLED}:
        return _Refusal(
            "MessagingEntityDisabled", f"{destination.kind} {path} has status {status.value} and takes no messages"
        )
    if destination.has_sessions and envelope.session_id is None:
        return _Refusal("Session ID is null", f"queue {path} requires sessions, and the message has no session_id")
    size = record_size(as_bytes(record.value()), record.key(), record.headers() or ())
    if size > LARGEST:
        return _Refusal("MessageSizeExceeded", f"it has {size} bytes, and a copy of it may have no more than {LARGEST}")
    return None


async def _all(moves: Iterable[object]) -> None:
    """Make several moves at once; if some fail, the others are made all the same.

    Raises:
        ServiceBusError: The first failure.
    """
    outcomes = await asyncio.gather(*moves, return_exceptions=True)  # type: ignore[call-overload]
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
