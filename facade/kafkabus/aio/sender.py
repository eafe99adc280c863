"""Sending messages to a queue."""

from __future__ import annotations

import logging
import random
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import TracebackType
from typing import Any

from typing_extensions import Self

from kafkabus.aio.log.outbox import OutgoingRecord
from kafkabus.aio.outages import LOOK_TIME
from kafkabus.aio.services import Services
from kafkabus.amqp import AmqpAnnotatedMessage
from kafkabus.entity import Entity
from kafkabus.exceptions import (
    InvalidOperationError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusCommunicationError,
)
from kafkabus.keywords import warn_of
from kafkabus.log.parcel import Failure, Parcel
from kafkabus.message import (
    Outgoing,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    as_message,
)
from kafkabus_mapping.entities import EntityStatus
from kafkabus_mapping.keys import KeyRuleError, effective_key, partition_of
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.sender")

DEFAULT_TIMEOUT = 60.0
"""How long an operation may take, in seconds."""
SHORT_TIMEOUT = 15.0
"""A time-out, in seconds, that leaves no time for another partition."""

MessageLike = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]


class ServiceBusSender:
    """Sends messages to one queue; made by ``ServiceBusClient.get_queue_sender``. Safe to share between asyncio tasks.

    Attributes:
        entity_name: Name of the queue.
        fully_qualified_namespace: Host name of the namespace.
        client_identifier: As given, or made up.
    """

    def __init__(
        self,
        services: Services,
        entity_name: str,
        client_identifier: str | None = None,
        *,
        on_close: Callable[[ServiceBusSender], object],
    ) -> None:
        self.entity_name = entity_name
        self.fully_qualified_namespace = services.settings.fully_qualified_namespace
        self.client_identifier = client_identifier or f"SBSender-{uuid.uuid4()}"
        self._services = services
        self._on_close = on_close
        self._path = EntityPath(entity_name)
        # Not always the same partition first, or senders that live for one message would all use that.
        self._turn = random.randrange(1 << 16)  # noqa: S311 - a spread, no secret
        self._closed = False

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    async def __aenter__(self) -> Self:
        self._check_open()
        await self._services.entity(self._path)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the sender; what was sent is durable already. Closing twice does nothing."""
        self._closed = True
        self._on_close(self)

    async def send_messages(
        self,
        message: MessageLike | Iterable[MessageLike] | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
        **unsupported: object,
    ) -> None:
        """Send one message, several, or a batch; when this returns they are durable.

        All messages are checked before any is sent. Those with a key go to their key's partition, those without share one,
        the next in turn.

        Args:
            message: A message, a mapping of its arguments, any iterable of these, or a batch. An empty one is no error.
            timeout: In seconds, default 60. Up to 15 s draws a warning on a partitioned queue: it leaves no time for another
                partition.
            **unsupported: Named in a warning.

        Raises:
            TypeError: Something is no message.
            ValueError: The sender was closed, or the timeout is not positive.
            MessageSizeExceededError: The message or the batch is too large; nothing was sent.
            InvalidOperationError: A rule of the queue forbids a message; nothing was sent.
            MessagingEntityNotFoundError: There is no such queue.
            MessagingEntityDisabledError: The queue takes no messages.
            OperationTimeoutError: Not all was acknowledged in time; the message says what is unknown.
            ServiceBusCommunicationError: Kafka did not store all; the message says what was stored. So it is where the
                partition that a key belongs to is unavailable; messages without a key go to another one.
        """
        self._check_open()
        warn_of(unsupported)
        seconds = _check_timeout(timeout)
        outgoing = _outgoing(message)
        if not outgoing:
            return
        entity = await self._services.entity(self._path)
        _check_size(outgoing, entity.max_message_bytes)
        _check_entity(entity, seconds)
        deadline = time.monotonic() + seconds
        _check_sessions(entity, outgoing)
        keyed, keyless = self._place(entity, outgoing, await self._services.outages.of(entity))
        mortal = any(one.envelope.time_to_live is not None for one in outgoing)
        if mortal:
            # Before they are stored, so that whoever is granted one looks for its time to live.
            await self._services.mark_mortal(entity, {record.partition for record in (*keyed, *keyless)})
        unsent = _Unsent(entity, len(outgoing), seconds, self._services.settings.bootstrap_servers)
        if keyed:
            await self._send_keyed(entity, keyed, deadline, unsent)
        if keyless:
            await self._send_keyless(entity, keyless, deadline, unsent, mortal=mortal)
        unsent.check()

    async def _send_keyed(
        self, entity: Entity, records: Sequence[OutgoingRecord], deadline: float, unsent: _Unsent
    ) -> None:
        """Send records to the partitions that their keys belong to, and to no other.

        Raises:
            ServiceBusCommunicationError: A partition is known to be unavailable, and stayed so; nothing was sent.
        """
        services, partitions = self._services, {record.partition for record in records}
        unavailable = await services.outages.over(entity, partitions, deadline)
        if unavailable:
            raise ServiceBusCommunicationError(
                f"{_unavailable(entity, unavailable, records)}; that did not end within {unsent.timeout:g} s; nothing was sent"
            )
        left = deadline - time.monotonic()
        parcel = await services.outbox.send(entity.topic, records, timeout=left - min(left / 4, LOOK_TIME))
        if parcel.failures or not parcel.done:
            unsent.add(records, parcel, await services.outages.look(entity))

    async def _send_keyless(
        self,
        entity: Entity,
        records: Sequence[OutgoingRecord],
        deadline: float,
        unsent: _Unsent,
        *,
        mortal: bool,
    ) -> None:
        """Send records to their partition, and what that does not take to the next one, until time runs out."""
        services = self._services
        while True:
            parcel = await services.keyless_outbox.send(
                entity.topic, records, timeout=max(0.0, deadline - time.monotonic())
            )
            if parcel.done and not parcel.failures:
                return
            unavailable = await services.outages.look(entity)
            if (
                not parcel.done
                or time.monotonic() >= deadline
                or not all(failure.elsewhere for failure in parcel.failures)
            ):
                unsent.add(records, parcel, unavailable)
                return
            records = _failed(records, parcel.failures)
            partition = self._next_partition(entity, unavailable | {records[0].partition})
            LOGGER.warning(
                "send_elsewhere entity=%s from=%d to=%d count=%d error=%s",
                entity.path,
                records[0].partition,
                partition,
                len(records),
                parcel.failures[0].error,
            )
            if mortal:
                await services.mark_mortal(entity, {partition})
            records = [record._replace(partition=partition) for record in records]

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """An empty batch within the namespace's limit.

        Args:
            max_size_in_bytes: A lower limit, in bytes.

        Raises:
            ValueError: The limit is above the namespace's, or the sender was closed.
            MessagingEntityNotFoundError: There is no such queue.
        """
        self._check_open()
        limit = (await self._services.entity(self._path)).max_message_bytes
        if max_size_in_bytes is not None and max_size_in_bytes > limit:
            raise ValueError(f"max_size_in_bytes {max_size_in_bytes}: the namespace takes {limit} bytes")
        return ServiceBusMessageBatch(limit if max_size_in_bytes is None else max_size_in_bytes)

    def _place(
        self, entity: Entity, outgoing: Sequence[Outgoing], unavailable: frozenset[int]
    ) -> tuple[list[OutgoingRecord], list[OutgoingRecord]]:
        """Give each message its partition: by its key; or, returned apart, the next in turn for those without."""
        partitions, detects = entity.partitions, entity.description.requires_duplicate_detection
        turn = -1
        keyed: list[OutgoingRecord] = []
        keyless: list[OutgoingRecord] = []
        for envelope, value, headers, _ in outgoing:
            try:
                key = effective_key(
                    session_id=envelope.session_id,
                    partition_key=envelope.partition_key,
                    message_id=envelope.message_id,
                    detects_duplicates=detects,
                )
            except KeyRuleError as error:
                raise InvalidOperationError(str(error), error=error) from error
            if key is not None:
                keyed.append(OutgoingRecord(partition_of(key, partitions), key, value, headers))
            else:
                if turn < 0:
                    turn = self._next_partition(entity, unavailable)
                keyless.append(OutgoingRecord(turn, key, value, headers))
        return keyed, keyless

    def _next_partition(self, entity: Entity, unavailable: Set[int]) -> int:
        """The next in turn that is not unavailable; the next at all, where all are."""
        turn = self._turn
        for _ in range(entity.partitions):
            turn = (turn + 1) % entity.partitions
            if turn not in unavailable:
                break
        self._turn = turn
        return turn

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(
                "The handler has already been shutdown: this sender was closed, get another from the client"
            )


def _outgoing(message: object) -> Sequence[Outgoing]:
    """What is to be sent, checked and encoded.

    Raises:
        TypeError: Something is no message.
    """
    if isinstance(message, ServiceBusMessageBatch):
        return message._messages
    if isinstance(message, (ServiceBusMessage, AmqpAnnotatedMessage, Mapping)):
        outgoing = [as_message(message)._outgoing()]
    elif isinstance(message, Iterable) and not isinstance(message, (str, bytes)):
        outgoing = [as_message(one)._outgoing() for one in message]
    else:
        as_message(message)
        raise AssertionError("as_message takes only messages")
    return outgoing


def _check_size(outgoing: Sequence[Outgoing], limit: int) -> None:
    size = sum(one.size for one in outgoing)
    if size > limit:
        kind = "a message" if len(outgoing) == 1 else f"{len(outgoing)} messages"
        raise MessageSizeExceededError(
            f"{kind} of {size} bytes, properties included: the namespace takes {limit} at a time; nothing was sent, send less "
            "at a time (create_message_batch says when one is full)"
        )


def _check_sessions(entity: Entity, outgoing: Sequence[Outgoing]) -> None:
    if entity.has_sessions:
        for envelope, *_ in outgoing:
            if envelope.session_id is None:
                raise InvalidOperationError(
                    f"queue {entity.path} requires sessions, and message {envelope.message_id!r} has no session_id: set one; "
                    "nothing was sent"
                )


def _check_entity(entity: Entity, timeout: float) -> None:
    status = entity.description.status
    if status in {EntityStatus.DISABLED, EntityStatus.SEND_DISABLED, EntityStatus.DELETING}:
        raise MessagingEntityDisabledError(
            f"queue {entity.path} has status {status.value} and takes no messages; nothing was sent"
        )
    if timeout <= SHORT_TIMEOUT and entity.partitions > 1:
        warnings.warn(
            f"a send timeout of {timeout:g} s leaves no time for another partition of {entity.path}: "
            f"use more than {SHORT_TIMEOUT:g} s ({DEFAULT_TIMEOUT:g} s is the default)",
            stacklevel=3,
        )


def _check_timeout(timeout: float | None) -> float:
    if timeout is None:
        return DEFAULT_TIMEOUT
    if timeout <= 0:
        raise ValueError(f"timeout {timeout}: give seconds, more than 0, or None for {DEFAULT_TIMEOUT:g}")
    return timeout


class _Unsent:
    """What of one send was not stored, or not known to be.

    Args:
        entity: Where it was sent to.
        total: How many messages it has.
        timeout: As given, in seconds.
        servers: Where Kafka is.
    """

    def __init__(self, entity: Entity, total: int, timeout: float, servers: str) -> None:
        self.timeout = timeout
        self._servers = servers
        self._entity = entity
        self._total = total
        self._parts: list[tuple[Sequence[OutgoingRecord], Parcel, frozenset[int]]] = []

    def add(self, records: Sequence[OutgoingRecord], parcel: Parcel, unavailable: frozenset[int]) -> None:
        """Records of which some were not stored, and the partitions that are unavailable."""
        self._parts.append((records, parcel, unavailable))

    def check(self) -> None:
        """Say how many were stored, which were not, and of which it is unknown.

        Raises:
            ServiceBusCommunicationError: Kafka did not store all, or a partition is unavailable.
            OperationTimeoutError: Nothing is known but that time ran out.
        """
        if not self._parts:
            return
        causes: list[str] = []
        failed: list[str] = []
        unknown: list[str] = []
        missing = 0
        for records, parcel, unavailable in self._parts:
            missing += parcel.left + len(parcel.failures)
            failed += [one.message_id for one in _failed(records, [f for f in parcel.failures if not f.unknown])]
            unknown += [one.message_id for one in _failed(records, [f for f in parcel.failures if f.unknown])]
            if not parcel.done:
                unknown += [one.message_id for one in records if one.message_id not in failed]
            hit = unavailable & {record.partition for record in records}
            if hit:
                causes.append(_unavailable(self._entity, hit, records))
            elif parcel.failures:
                causes.append(str(parcel.failures[0].error))
        what = (
            f"of {self._total} messages to {self._entity.path}, {self._total - missing} were acknowledged within "
            f"{self.timeout:g} s; not stored are {failed[:10]}; unknown is it of {unknown[:10]} (sending these again may store "
            "them twice)"
        )
        if causes:
            raise ServiceBusCommunicationError(f"{what}: {'; '.join(causes)}")
        raise OperationTimeoutError(
            f"{what}; Kafka {self._servers} said nothing: is it running, and is the address right?"
        )


def _failed(records: Sequence[OutgoingRecord], failures: Sequence[Failure]) -> list[OutgoingRecord]:
    """The records that failures name: of records that are alike, all."""
    contents = {failure.content for failure in failures}
    return [record for record in records if record.content in contents] if contents else []


def _unavailable(entity: Entity, partitions: frozenset[int], records: Sequence[OutgoingRecord]) -> str:
    keys = sorted({str(one.key) for one in records if one.partition in partitions and one.key is not None})
    which = ", ".join(map(str, sorted(partitions)))
    return (
        f"partition {which} of {entity.path}"
        + (f", to which key {', '.join(map(repr, keys[:10]))} belongs," if keys else "")
        + " is unavailable: it has no leader, or too few replicas in sync"
    )
