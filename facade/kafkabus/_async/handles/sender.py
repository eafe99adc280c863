"""Sending messages to a queue."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType

from typing_extensions import Self

from kafkabus._async.compat import guard
from kafkabus._async.context import ClientContext
from kafkabus._async.entities.ledger_marks import is_scheduled, schedules
from kafkabus._async.entities.partition_availability import LOOK_TIME
from kafkabus._async.handles.transaction import ServiceBusTransaction
from kafkabus._async.kafka.producer import OutgoingRecord
from kafkabus._core.compatibility import warn, warn_unsupported
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import (
    InvalidOperationError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from kafkabus._core.message import (
    MessageLike,
    Outgoing,
    ServiceBusMessageBatch,
    in_first_format,
    outgoing_of,
)
from kafkabus._kafka.delivery_reports import UNKNOWN_OFFSET, DeliveryReports, Failure
from kafkabus._kafka.errors import NO_RIGHTS, no_rights
from kafkabus._ledger.operations import Cancel
from kafkabus._runtime import instruments
from kafkabus_mapping import headers as h
from kafkabus_mapping.entities import EntityStatus
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.formats import FIRST
from kafkabus_mapping.keys import KeyRuleError, partition_of
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.numbers import sequence_number, split_sequence_number

LOGGER = logging.getLogger("kafkabus.sender")

DEFAULT_TIMEOUT = 60.0
"""How long an operation may take, in seconds."""
SHORT_TIMEOUT = 15.0
"""The longest timeout, in seconds, that leaves no time for another partition."""


class ServiceBusSender:
    """Sends messages to one queue or topic. Safe to share between asyncio tasks.

    ``ServiceBusClient.get_queue_sender`` and ``get_topic_sender`` return senders.

    Attributes:
        entity_name: The name of the queue or topic.
        fully_qualified_namespace: Host name of the namespace.
        client_identifier: The sender's name for logs, as given or generated.
    """

    def __init__(
        self,
        context: ClientContext,
        entity_name: str,
        client_identifier: str | None = None,
    ) -> None:
        self.entity_name = entity_name
        self.fully_qualified_namespace = context.settings.fully_qualified_namespace
        self.client_identifier = client_identifier or f"SBSender-{uuid.uuid4()}"
        self._context = context
        self._path = EntityPath(entity_name)
        # Not always the same partition first, or senders that live for one message would all use that partition.
        self._turn = random.randrange(1 << 16)  # noqa: S311 - a spread, no secret
        self._closed = False
        self._addressed_to: EntityPath | None = None
        self._use = context.registry.begin_use(entity_name, self.client_identifier, sends=True)

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    @guard
    async def __aenter__(self) -> Self:
        self._check_open()
        await self._context.catalog.entity(self._path)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @guard
    async def close(self) -> None:
        """Close the sender; sent messages are durable already. A second call does nothing."""
        self._closed = self._use.is_over = True

    async def send_messages(
        self,
        message: MessageLike | Iterable[MessageLike] | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
        transaction: ServiceBusTransaction | None = None,
        **unsupported: object,
    ) -> None:
        """Send one message, several, or a batch; when this returns they are durable.

        All messages are checked before any is sent. Those with a key go to their key's partition; those without a key share
        one partition, the next in turn.

        Args:
            message: A message, a mapping of its arguments, any iterable of these, or a batch. An empty one is no error.
            timeout: How long that may take, in seconds, default 60. Up to 15 s draws a warning on a partitioned queue,
                because it leaves no time for another partition.
            transaction: A transaction that this is to be part of: then the messages are checked now, and sent when it is
                committed. To partitioned queues, a transaction sends messages with one key.
            **unsupported: Named in a warning.

        Raises:
            TypeError: Something is no message.
            ValueError: The sender was closed, the transaction is not open or another client's, or the timeout is not positive.
            MessageSizeExceededError: The message or the batch is too large; nothing was sent.
            InvalidOperationError: A rule of the queue forbids a message; nothing was sent.
            MessagingEntityNotFoundError: There is no such queue.
            MessagingEntityDisabledError: The queue takes no messages.
            ServiceBusQuotaExceededError: The queue is full, or the partition that a key belongs to; nothing was sent.
            OperationTimeoutError: Kafka did not acknowledge all messages in time; the error says which are unknown.
            ServiceBusAuthorizationError: Kafka's user may not write to the queue's topic.
            ServiceBusCommunicationError: Kafka did not store all messages; the error says what was stored. Also raised if
                the partition that a key belongs to is unavailable; messages without a key go to another partition.
        """
        self._check_open()
        warn_unsupported(unsupported)
        outgoing, seconds = outgoing_of(message), _check_timeout(timeout)
        if transaction is None:
            await self._send(outgoing, seconds)
        else:
            await self._enlist(transaction, outgoing, seconds)

    async def schedule_messages(
        self,
        messages: MessageLike | Iterable[MessageLike],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        **unsupported: object,
    ) -> list[int]:
        """Send messages that become receivable at a time; when this returns they are durable.

        Until then they can be peeked, with state ``SCHEDULED``, and cancelled. At their time, or up to a second later, they
        go to the end of the queue, with new sequence numbers.

        Args:
            messages: One or several, as in ``send_messages``; an empty list is no error. Their own scheduled times do not
                count.
            schedule_time_utc: The time. Naive times are UTC; a time that has passed means at once.
            timeout: How long that may take, in seconds, default 60.
            **unsupported: Named in a warning.

        Returns:
            Their sequence numbers in the order of the messages, by which they can be cancelled.

        Raises:
            TypeError: Something is no message, or the time no datetime.
            ServiceBusError: See ``send_messages``; or messages were stored, and the broker did not say where.
        """
        self._check_open()
        warn_unsupported(unsupported)
        if isinstance(messages, ServiceBusMessageBatch):
            raise TypeError("messages is a ServiceBusMessageBatch: give the messages themselves")
        return await self._schedule(outgoing_of(messages, schedule_time_utc), timeout)

    async def _schedule(self, outgoing: Sequence[Outgoing], timeout: float | None = None) -> list[int]:
        """Send messages that have a time; see ``schedule_messages``."""
        places = await self._send(outgoing, _check_timeout(timeout))
        found = [places.of(position) for position in range(len(outgoing))]
        numbers = [sequence_number(*place) for place in found if place is not None]
        if len(numbers) < len(outgoing):
            raise ServiceBusError(
                f"{len(outgoing) - len(numbers)} of {len(outgoing)} messages to {self.entity_name} were stored, and the "
                "broker did not report where: they come at their time, and peek_messages returns their sequence numbers"
            )
        return numbers

    @guard
    async def cancel_scheduled_messages(
        self, sequence_numbers: int | Iterable[int], *, timeout: float | None = None, **unsupported: object
    ) -> None:
        """Cancel scheduled messages before their time.

        Args:
            sequence_numbers: As ``schedule_messages`` returned them, one or several; an empty list is no error.
            timeout: Kept for compatibility.
            **unsupported: Named in a warning.

        Raises:
            MessageNotFoundError: Some messages are not scheduled, or not any more, or are dropped as duplicates of others; the
                others were cancelled.
            OperationTimeoutError: It is not known yet which of them are duplicates; none was cancelled.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; it is unknown which messages were cancelled.
        """
        self._check_open()
        warn_unsupported(unsupported)
        _check_timeout(timeout)
        # One that is said twice is cancelled once.
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(dict.fromkeys(sequence_numbers))
        if not numbers:
            return
        entity = await self._context.catalog.entity(self._path)
        offsets: dict[int, list[int]] = defaultdict(list)
        unknown: list[int] = []
        for number in numbers:
            partition, offset = _split(number)
            if partition < entity.partitions:
                offsets[partition].append(offset)
            else:
                unknown.append(number)
        # The copy that is dropped as a duplicate is not scheduled: to cancel it would leave the one that comes.
        await self._context.duplicate_scan.scan_beyond(entity, offsets)
        cancels = [Cancel(entity.ledgers[partition], unwanted) for partition, unwanted in offsets.items()]
        await self._context.ledger_client.execute(*cancels)
        for cancel in cancels:
            unknown += [sequence_number(cancel.ledger.partition, offset) for offset in cancel.missing]
        if unknown:
            raise MessageNotFoundError(
                f"{entity.path}: no scheduled messages with sequence numbers {sorted(unknown)[:10]}: they were never "
                "scheduled, are cancelled, are duplicates, or were enqueued at their time"
            )

    @guard
    async def _enlist(self, transaction: ServiceBusTransaction, outgoing: Sequence[Outgoing], seconds: float) -> None:
        """Have a transaction send messages."""
        transaction._check(self._context)
        if outgoing:
            transaction._add_sends(self._placed, outgoing, *await self._placed(outgoing, seconds))

    async def _placed(
        self, outgoing: Sequence[Outgoing], seconds: float = DEFAULT_TIMEOUT
    ) -> tuple[Entity, list[OutgoingRecord]]:
        """Return the entity, and messages with their partitions, as a transaction sends them."""
        entity = await self._checked(outgoing, seconds)
        outgoing = self._in_written_format(outgoing)
        keyed, keyless = self._choose_partitions(entity, outgoing, frozenset())
        return entity, [*keyed, *keyless]

    async def _checked(self, outgoing: Sequence[Outgoing], seconds: float = DEFAULT_TIMEOUT) -> Entity:
        """Return the entity, which takes these messages by what this client knows."""
        entity = await self._context.catalog.entity(self._path)
        _check_size(outgoing, entity.max_message_bytes)
        _check_entity(entity, seconds)
        _check_sessions(entity, outgoing)
        return entity

    def _in_written_format(self, outgoing: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """Return messages as the namespace's format has them; see ``in_first_format``."""
        if self._context.descriptions.written_format > FIRST:
            return outgoing
        return [in_first_format(message, self._context.settings.namespace) for message in outgoing]

    @guard
    async def _send(self, outgoing: Sequence[Outgoing], seconds: float) -> _Places:
        """Send messages, see ``send_messages``; return their places if one is scheduled."""
        if not outgoing:
            return _Places(wanted=False)
        try:
            places = await self._store(outgoing, seconds)
        except ServiceBusError as error:
            if instruments.observer is not None:
                instruments.observer.on_error(self.entity_name, "send", error)
            raise
        if instruments.observer is not None:
            instruments.observer.on_send(self.entity_name, len(outgoing))
        return places

    async def _store(self, outgoing: Sequence[Outgoing], seconds: float) -> _Places:
        """Store messages, and notify ledgers and upkeep; return the messages' places if one is scheduled."""
        if self._addressed_to is not None:
            address = h.ADDRESSED_TO, self._addressed_to.key.encode()
            outgoing = [message._replace(headers=[*message.headers, address]) for message in outgoing]
        entity, deadline = await self._checked(outgoing, seconds), time.monotonic() + seconds
        outgoing = self._in_written_format(outgoing)
        unsent = _Unsent(entity, len(outgoing), seconds, self._context.settings.bootstrap_servers)
        places = _Places(wanted=any(map(is_scheduled, outgoing)))
        left: Set[int] = set(range(len(outgoing)))
        waits = False
        while left:
            send = _Send(entity, outgoing, deadline, unsent, places, waits_for_topic=waits)
            try:
                left = await self._store_in(send, left)
            except MessagingEntityNotFoundError:
                # Its ledgers are gone, which shows before anything is stored.
                anew = await self._checked(outgoing, seconds)
                if anew.generation == entity.generation:
                    raise
            else:
                anew = await self._checked_anew(entity, outgoing, seconds) if left else entity
                # If it is the same one, not all brokers know its topic yet.
                waits = anew.generation == entity.generation
            if anew.generation != entity.generation:
                LOGGER.warning(
                    "entity_anew entity=%s count=%d: sent to the entity that replaced it", entity.path, len(left)
                )
                # Places in the logs of an entity that is gone are none in those of this one.
                places.clear()
            entity = anew
        await self._check_stored(unsent, entity)
        await self._context.marks.tell_upkeep(entity, outgoing)
        if places.wanted:
            try:
                await self._context.ledger_client.execute(*schedules(entity, outgoing, places.of))
            except LedgersReplacedError:
                # They are stored: a sender that sent them again would store them twice.
                anew = await self._context.catalog.entity(self._path)
                await self._context.ledger_client.execute(*schedules(anew, outgoing, places.of))
            except MessagingEntityNotFoundError:
                # Another entity has the name by now. Whether they are stored in its log is not known, and neither are their
                # places there: upkeep, or a reader, looks for them.
                anew = await self._context.catalog.current(entity)
                await self._context.marks.announce(anew, outgoing, set(range(anew.partitions)))
        return places

    async def _check_stored(self, unsent: _Unsent, entity: Entity) -> None:
        """Raise if messages were not stored, or are not known to be.

        Raises:
            MessagingEntityNotFoundError: The entity is gone, with all that may have been stored there. That says more than the
                errors that Kafka's client has while a topic is deleted.
            ServiceBusError: See ``_Unsent.check``.
        """
        if not unsent:
            return
        try:
            await self._context.catalog.current(entity)
        except MessagingEntityNotFoundError:
            raise
        except ServiceBusError as error:
            LOGGER.warning("not_looked_up entity=%s error=%s", entity.path, error)
        unsent.check()

    async def _checked_anew(self, entity: Entity, outgoing: Sequence[Outgoing], seconds: float) -> Entity:
        """Return the entity of this name as it is described now, which may be another one, and takes these messages."""
        await self._context.catalog.current(entity)
        return await self._checked(outgoing, seconds)

    async def _store_in(self, send: _Send, positions: Set[int]) -> Set[int]:
        """Store the messages at some positions of a send.

        Returns:
            The positions of messages that were not stored because their topic or partition is gone; empty if the send ends
            with this.

        Raises:
            MessagingEntityNotFoundError: The ledgers are gone; nothing was stored.
        """
        context, entity = self._context, send.entity
        keyed, keyless = (
            [record for record in records if record.position in positions]
            for records in self._choose_partitions(
                entity, send.outgoing, await context.availability.find_unavailable(entity)
            )
        )
        await context.marks.announce(entity, send.outgoing, {record.partition for record in (*keyed, *keyless)})
        refused = await self._send_keyed(send, keyed) if keyed else []
        refused += await self._send_keyless(send, keyless) if keyless else []
        return {record.position for record in refused}

    async def _send_keyed(self, send: _Send, records: Sequence[OutgoingRecord]) -> list[OutgoingRecord]:
        """Send records to the partitions that their keys belong to, and to no other.

        Returns:
            Records that were not stored because the topic is gone, or is another one.

        Raises:
            ServiceBusCommunicationError: A partition is known to be unavailable, and stayed so; nothing was sent.
        """
        context, entity, partitions = self._context, send.entity, {record.partition for record in records}
        unavailable = await context.availability.wait_until_available(entity, partitions, send.deadline)
        if unavailable:
            raise ServiceBusCommunicationError(
                f"{_unavailable(entity, unavailable, records)}; that did not end within {send.unsent.timeout:g} s; nothing "
                "was sent"
            )
        left = send.deadline - time.monotonic()
        reports = await context.connections.record_producer.send(
            entity.topic,
            records,
            timeout=left - min(left / 4, LOOK_TIME),
            keep_offsets=send.places.wanted,
            waits_for_topic=send.waits_for_topic,
        )
        if not reports.failures and reports.is_done:
            send.places.add(records, reports)
            return []
        refused = send.refused(records, reports)
        if not refused:
            send.unsent.add(records, reports, await context.availability.look(entity))
        return refused

    async def _send_keyless(self, send: _Send, records: Sequence[OutgoingRecord]) -> list[OutgoingRecord]:
        """Send records to their partition, and those that it does not take to the next one, until time runs out.

        Returns:
            Records that were not stored because the topic is gone, or is another one.
        """
        context, entity = self._context, send.entity
        while True:
            left = max(0.0, send.deadline - time.monotonic())
            reports = await context.connections.keyless_producer.send(
                entity.topic,
                records,
                timeout=left,
                keep_offsets=send.places.wanted,
                waits_for_topic=send.waits_for_topic,
            )
            if reports.is_done and not reports.failures:
                send.places.add(records, reports)
                return []
            refused = send.refused(records, reports)
            if refused:
                return refused
            unavailable = await context.availability.look(entity)
            if (
                not reports.is_done
                or time.monotonic() >= send.deadline
                or not all(failure.elsewhere for failure in reports.failures)
            ):
                send.unsent.add(records, reports, unavailable)
                return []
            records = _failed(records, reports.failures)
            partition = self._next_partition(entity, unavailable | {records[0].partition})
            LOGGER.warning(
                "send_elsewhere entity=%s from=%d to=%d count=%d error=%s",
                entity.path,
                records[0].partition,
                partition,
                len(records),
                reports.failures[0].error,
            )
            await context.marks.announce(entity, send.outgoing, {partition})
            records = [record._replace(partition=partition) for record in records]

    @guard
    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return an empty batch within the namespace's limit.

        Args:
            max_size_in_bytes: A lower limit, in bytes.

        Raises:
            ValueError: The limit is above the namespace's, or the sender was closed.
            MessagingEntityNotFoundError: There is no such queue.
        """
        self._check_open()
        limit = (await self._context.catalog.entity(self._path)).max_message_bytes
        if max_size_in_bytes is not None and max_size_in_bytes > limit:
            raise ValueError(f"max_size_in_bytes {max_size_in_bytes}: the namespace takes {limit} bytes")
        return ServiceBusMessageBatch(limit if max_size_in_bytes is None else max_size_in_bytes)

    def _address_to(self, subscription: str) -> None:
        """Have one subscription of the topic alone get all messages sent from now on, whatever its rules say."""
        self._addressed_to = EntityPath(subscription)

    def _choose_partitions(
        self, entity: Entity, outgoing: Sequence[Outgoing], unavailable: frozenset[int]
    ) -> tuple[list[OutgoingRecord], list[OutgoingRecord]]:
        """Return records: those of messages with a key, for its partition; and the others, for the next partition in turn."""
        turn = -1
        keyed: list[OutgoingRecord] = []
        keyless: list[OutgoingRecord] = []
        for position, (envelope, value, headers, _) in enumerate(outgoing):
            try:
                key = entity.key_of(envelope)
            except KeyRuleError as error:
                raise InvalidOperationError(str(error), error=error) from error
            if key is not None:
                partition = partition_of(key, entity.partitions)
                if partition in entity.full:
                    raise _is_full(entity, f"partition {partition}, that of key {key!r},")
                keyed.append(OutgoingRecord(partition, key, value, headers, position))
            else:
                if turn < 0:
                    turn = self._next_partition(entity, unavailable)
                keyless.append(OutgoingRecord(turn, key, value, headers, position))
        return keyed, keyless

    def _next_partition(self, entity: Entity, unavailable: Set[int]) -> int:
        """Return the next partition in turn that is not full and not unavailable; if all are unavailable, the next not full.

        Raises:
            ServiceBusQuotaExceededError: All partitions are full.
        """
        turns = [(self._turn + 1 + step) % entity.partitions for step in range(entity.partitions)]
        open_ones = [turn for turn in turns if turn not in entity.full]
        if not open_ones:
            raise _is_full(entity, "it")
        self._turn = next((turn for turn in open_ones if turn not in unavailable), open_ones[0])
        return self._turn

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(
                "The handler has already been shutdown: this sender was closed, get another from the client"
            )


def _split(number: int) -> tuple[int, int]:
    """Return the partition and the offset of a sequence number.

    Raises:
        MessageNotFoundError: The number is no sequence number.
    """
    try:
        return split_sequence_number(number)
    except ValueError as error:
        raise MessageNotFoundError(str(error), error=error) from error


def _check_size(outgoing: Sequence[Outgoing], limit: int) -> None:
    size = sum(message.size for message in outgoing)
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
                    ErrorText(
                        f"queue {entity.path} requires sessions, and message {envelope.message_id!r} has no ",
                        Term("session_id"),
                        ": set one; nothing was sent",
                    )
                )


def _check_entity(entity: Entity, timeout: float) -> None:
    entity.check_in_use()
    status = entity.description.status
    if status in {EntityStatus.DISABLED, EntityStatus.SEND_DISABLED, EntityStatus.DELETING}:
        raise MessagingEntityDisabledError(
            f"{entity.kind} {entity.path} has status {status.value} and takes no messages; nothing was sent"
        )
    if timeout <= SHORT_TIMEOUT and entity.partitions > 1:
        warn(
            f"a send timeout of {timeout:g} s leaves no time for another partition of {entity.path}: "
            f"use more than {SHORT_TIMEOUT:g} s ({DEFAULT_TIMEOUT:g} s is the default)"
        )


def _is_full(entity: Entity, what: str) -> ServiceBusQuotaExceededError:
    return ServiceBusQuotaExceededError(
        ErrorText(
            f"{entity.kind} {entity.path}: {what} holds {entity.description.max_size_in_megabytes} MB or more of messages "
            "that are not settled, and may hold no more; nothing was sent. Receive and complete some, or give it a larger ",
            Term("max_size_in_megabytes"),
        )
    )


def _check_timeout(timeout: float | None) -> float:
    if timeout is None:
        return DEFAULT_TIMEOUT
    if timeout <= 0:
        raise ValueError(f"timeout {timeout}: give seconds, more than 0, or None for {DEFAULT_TIMEOUT:g}")
    return timeout


class _Places:
    """The places at which the messages of one send were stored.

    Args:
        wanted: Whether to keep them.
    """

    def __init__(self, *, wanted: bool) -> None:
        self.wanted = wanted
        self._places: dict[int, tuple[int, int]] = {}

    def add(self, records: Sequence[OutgoingRecord], reports: DeliveryReports) -> None:
        """Add records that were all stored; each partition holds its records in their order."""
        offsets: dict[int, list[int]] = defaultdict(list)
        for partition, offset in reports.stored:
            offsets[partition].append(offset)
        orders = {partition: iter(sorted(places)) for partition, places in offsets.items()}
        for record in records if self.wanted else ():
            offset = next(orders[record.partition])
            if offset != UNKNOWN_OFFSET:
                self._places[record.position] = (record.partition, offset)

    def clear(self) -> None:
        """Forget all places."""
        self._places.clear()

    def of(self, position: int) -> tuple[int, int] | None:
        """Return partition and offset of the message at a position among those sent; None if they are not known."""
        return self._places.get(position)


class _Unsent:
    """The messages of one send that were not stored, or are not known to be stored.

    Args:
        entity: The entity to which the messages were sent.
        total: How many messages the send has.
        timeout: The send's timeout, in seconds.
        servers: The brokers' addresses.
    """

    def __init__(self, entity: Entity, total: int, timeout: float, servers: str) -> None:
        self.timeout = timeout
        self._servers = servers
        self._entity = entity
        self._total = total
        self._began = time.monotonic()
        self._parts: list[tuple[Sequence[OutgoingRecord], DeliveryReports, frozenset[int]]] = []

    def __bool__(self) -> bool:
        """Return whether there are such messages."""
        return bool(self._parts)

    def add(self, records: Sequence[OutgoingRecord], reports: DeliveryReports, unavailable: frozenset[int]) -> None:
        """Add records of which some were not stored, and the partitions that are unavailable."""
        self._parts.append((records, reports, unavailable))

    def check(self) -> None:
        """Raise if there are such messages; the error says how many were stored, and which were not, or may not have been.

        Raises:
            ServiceBusCommunicationError: Kafka did not store all messages, or a partition is unavailable.
            ServiceBusAuthorizationError: Kafka's user may not write to the topic.
            OperationTimeoutError: It is known only that time ran out.
        """
        if not self._parts:
            return
        failures = [failure for _, reports, _ in self._parts for failure in reports.failures]
        causes: list[str] = []
        failed: list[str] = []
        unknown: list[str] = []
        missing = 0
        unstored = {
            record.position
            for records, reports, _ in self._parts
            for record in (_failed(records, reports.failures) if reports.is_done else records)
        }
        for records, reports, unavailable in self._parts:
            missing += reports.left + len(reports.failures)
            failed += [record.message_id for record in _failed(records, [f for f in reports.failures if not f.unknown])]
            unknown += [record.message_id for record in _failed(records, [f for f in reports.failures if f.unknown])]
            if not reports.is_done:
                unknown += [record.message_id for record in records if record.message_id not in failed]
            hit = unavailable & {record.partition for record in records}
            if hit:
                causes.append(_unavailable(self._entity, hit, records))
            elif reports.failures:
                causes.append(str(reports.failures[0].error))
        what = (
            f"of {self._total} messages to {self._entity.path}, {self._total - missing} were acknowledged within "
            f"{time.monotonic() - self._began:.3g} s; not stored are {failed[:10]}; unknown is it of {unknown[:10]} "
            "(sending these again may store them twice)"
        )
        error = self._error(what, failures, causes)
        error._unstored = frozenset(unstored)
        raise error

    def _error(self, what: str, failures: Sequence[Failure], causes: Sequence[str]) -> ServiceBusError:
        """Return the error for messages that are not known to be stored."""
        refusal = next((failure.error for failure in failures if failure.error.code() in NO_RIGHTS), None)
        if refusal is not None:
            refused = no_rights(self._servers, f"write to topic {self._entity.topic!r}", refusal)
            return ServiceBusAuthorizationError(f"{what}: {refused.message}", error=refused.inner_exception)
        if causes:
            return ServiceBusCommunicationError(f"{what}: {'; '.join(causes)}")
        return OperationTimeoutError(
            f"{what}; Kafka {self._servers} said nothing: is it running, and is the address right?"
        )


@dataclass(frozen=True, slots=True)
class _Send:
    """One send to an entity.

    Attributes:
        entity: The entity.
        outgoing: All of its messages.
        deadline: Until when the send may take, on the monotonic clock.
        unsent: Gets the messages that were not stored.
        places: Gets the places of the messages that were stored.
        waits_for_topic: Whether to wait for a topic or a partition that Kafka's client does not know.
    """

    entity: Entity
    outgoing: Sequence[Outgoing]
    deadline: float
    unsent: _Unsent
    places: _Places
    waits_for_topic: bool

    def refused(self, records: Sequence[OutgoingRecord], reports: DeliveryReports) -> list[OutgoingRecord]:
        """Return the records that may be sent to another entity of this name, as there is no topic or partition for them.

        None may, if any record failed for another reason, or if one of several records that are alike was stored.
        """
        if self.waits_for_topic or not reports.is_done or time.monotonic() >= self.deadline:
            return []
        if not all(failure.topic_gone for failure in reports.failures):
            return []
        refused = _failed(records, reports.failures)
        if len(refused) != len(reports.failures):
            return []
        positions = {record.position for record in refused}
        self.places.add([record for record in records if record.position not in positions], reports)
        return refused


async def check_outgoing(sender: ServiceBusSender, outgoing: Sequence[Outgoing]) -> Entity:
    """Check messages that are encoded already; return the sender's entity. See ``ServiceBusSender.schedule_messages``."""
    return await sender._checked(outgoing)


async def schedule_outgoing(sender: ServiceBusSender, outgoing: Sequence[Outgoing]) -> list[int]:
    """Schedule messages that are encoded already; return their sequence numbers."""
    return await sender._schedule(outgoing)


def _failed(records: Sequence[OutgoingRecord], failures: Sequence[Failure]) -> list[OutgoingRecord]:
    """Return the records that failures name; if records are alike, all of them."""
    contents = {failure.content for failure in failures}
    return [record for record in records if record.content in contents] if contents else []


def _unavailable(entity: Entity, partitions: frozenset[int], records: Sequence[OutgoingRecord]) -> str:
    keys = sorted({str(record.key) for record in records if record.partition in partitions and record.key is not None})
    which = ", ".join(map(str, sorted(partitions)))
    return (
        f"partition {which} of {entity.path}"
        + (f", to which key {', '.join(map(repr, keys[:10]))} belongs," if keys else "")
        + " is unavailable: it has no leader, or too few replicas in sync"
    )
