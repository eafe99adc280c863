# Generated from facade/kafkabus/aio/receiver.py by tools/generate_blocking.py. Do not edit.
"""Receiving messages from a queue, and settling them."""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType

from typing_extensions import Self

from kafkabus.entity import Entity
from kafkabus.enums import ServiceBusReceiveMode
from kafkabus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessagingEntityDisabledError,
    ServiceBusError,
)
from kafkabus.ledger.operations import Range, Settlement, merge_offsets
from kafkabus.log.reader import Grant
from kafkabus.message import ServiceBusReceivedMessage
from kafkabus.record import Delivery, Record
from kafkabus.services import DESCRIPTION_AGE, Services
from kafkabus_mapping.entities import EntityStatus
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus")

DEFAULT_WAIT = 60.0
"""How long a receive waits for a first message where nobody says otherwise, in seconds."""
FOREVER = 3600.0
"""How long one wait of an iteration that never ends lasts, in seconds; then it waits again."""


class ServiceBusReceiver:
    """Receives from one queue; made by ``ServiceBusClient.get_queue_receiver``. Safe to share between threads.

    Attributes:
        entity_path: The queue, with its sub-queue.
        fully_qualified_namespace: Host name of the namespace.
        client_identifier: As given, or made up.
    """

    def __init__(
        self,
        services: Services,
        path: EntityPath,
        *,
        receive_mode: ServiceBusReceiveMode,
        max_wait_time: float | None,
        client_identifier: str | None = None,
    ) -> None:
        self.entity_path = str(path)
        self.fully_qualified_namespace = services.settings.fully_qualified_namespace
        self.client_identifier = client_identifier or f"SBReceiver-{uuid.uuid4()}"
        self._services = services
        self._path = path
        self._mode = receive_mode
        self._max_wait_time = max_wait_time
        self._closed = False

    def __str__(self) -> str:
        return f"Receiver client id: {self.client_identifier}, entity: {self.entity_path}"

    def __enter__(self) -> Self:
        self._check_open()
        self._services.entity(self._path)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the receiver; messages that it handed out stay locked until their locks expire. Twice does nothing."""
        self._closed = True

    @property
    def session(self) -> None:
        """None: this is no session's receiver."""
        return None

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive up to ``max_message_count`` messages, waiting for the first.

        A batch fills while messages are at hand, and does not wait for more than that.

        Args:
            max_message_count: How many at the most. None: as many as were prefetched, which is none.
            max_wait_time: Longest wait for the first, in seconds; default the receiver's, else 60.

        Returns:
            The messages, empty where none came in time.

        Raises:
            ValueError: An argument is not positive, or the receiver was closed.
            MessagingEntityNotFoundError: There is no such queue.
            MessagingEntityDisabledError: The queue gives no messages.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._check_open()
        if max_wait_time is not None and max_wait_time <= 0:
            raise ValueError(f"max_wait_time {max_wait_time}: give seconds, more than 0, or None for the default")
        if max_message_count is None:
            return []
        if max_message_count <= 0:
            raise ValueError(f"max_message_count {max_message_count}: ask for 1 message or more")
        wait = max_wait_time or self._max_wait_time or DEFAULT_WAIT
        return self._receive(max_message_count, wait)

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        while True:
            self._check_open()
            messages = self._receive(1, self._max_wait_time or FOREVER)
            if messages:
                return messages[0]
            if self._max_wait_time is not None:
                raise StopIteration

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """The message is done with: it will not be delivered again.

        Raises:
            TypeError: It is no received message.
            ValueError: It was not locked, or the receiver was closed.
            MessageAlreadySettled: It was settled before.
            MessageLockLostError: Its lock expired; it will be delivered again.
            ServiceBusCommunicationError: Redis cannot be reached; whether it was completed is unknown.
        """
        self._settle("complete", [message])

    def complete_messages(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Complete several messages in one round trip.

        Raises:
            MessageLockLostError: Locks of some expired, the error says whose; the others were completed.
            TypeError: See ``complete_message``, likewise ValueError, MessageAlreadySettled: nothing was done.
            ServiceBusCommunicationError: Redis cannot be reached; whether they were completed is unknown.
        """
        self._settle("complete", messages)

    def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Give the message back: it is available at once, one delivery counted.

        Raises:
            MessageLockLostError: Its lock expired; it is available anyway. For the others see ``complete_message``.
        """
        self._settle("abandon", [message])

    def abandon_messages(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Abandon several messages in one round trip; see ``complete_messages``."""
        self._settle("abandon", messages)

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Move the message into the queue's dead-letter queue.

        Args:
            message: The message.
            reason: Why, in a word.
            error_description: Why, in more.

        Raises:
            MessageLockLostError: Its lock expired; it stays where it is. For the others see ``complete_message``.
            OperationTimeoutError: The move began and was not finished in time; it will be.
        """
        self.dead_letter_messages([message], reason, error_description)

    def dead_letter_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        reason: str | None = None,
        error_description: str | None = None,
    ) -> None:
        """Dead-letter several messages for the same reason; see ``dead_letter_message`` and ``complete_messages``."""
        if self._path.is_dead_letter:
            # A dead-letter queue has none of its own: what is dead-lettered there stays there.
            self._settle("abandon", messages)
            return
        held = self._held(messages)
        entity = self._services.entity(self._path)
        held, lost = _still_there(held, entity)
        for partition in sorted({one.delivery.partition for one in held}):
            there = [one for one in held if one.delivery.partition == partition]
            records: dict[str, list[Record]] = defaultdict(list)
            for one in there:
                records[one.delivery.lease] += [message._record for message in one.messages]
            refused = self._services.transfers.dead_letter(
                entity, partition, records, reason=reason, description=error_description
            )
            for one in there:
                lost += one.settled(refused.get(one.delivery.lease, []))
        _raise_lost("dead-lettered", lost)

    def _settle(self, verb: str, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        held = self._held(messages)
        entity = self._services.entity(self._path)
        held, lost = _still_there(held, entity)
        settlements = [
            Settlement(entity.ledgers[one.delivery.partition], verb, one.delivery.lease, one.ranges) for one in held
        ]
        self._services.courier.ask(*settlements)
        for one, settlement in zip(held, settlements, strict=True):
            lost += one.settled(settlement.lost)
        _raise_lost(f"{verb}d" if verb.endswith("e") else f"{verb}ed", lost)

    def _receive(self, count: int, wait: float) -> list[ServiceBusReceivedMessage]:
        deadline = time.monotonic() + wait
        while not self._closed:
            entity = self._services.entity(self._path)
            if entity.description.status in {EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED}:
                raise MessagingEntityDisabledError(
                    f"queue {entity.path} has status {entity.description.status.value} and gives no messages"
                )
            reader = self._services.reader(entity)
            take = self._mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
            left = deadline - time.monotonic()
            # In slices, so that an entity that was deleted or disabled meanwhile is noticed.
            grants = reader.receive(count, min(max(0.0, left), DESCRIPTION_AGE), self._is_closed, take=take)
            try:
                messages = self._deliver(entity, grants, take)
            except BaseException:
                reader.put_back(grants)
                raise
            if messages or left <= 0:
                return messages
        return []

    def _is_closed(self) -> bool:
        return self._closed

    def _deliver(self, entity: Entity, grants: Sequence[Grant], take: bool) -> list[ServiceBusReceivedMessage]:
        """Messages of what was granted, without those that were delivered too often: they are dead-lettered instead."""
        messages: list[ServiceBusReceivedMessage] = []
        again: list[Settlement] = []
        for grant in grants:
            delivery = grant.delivery
            if not grant.records:
                continue
            if delivery.count >= entity.max_deliveries:
                self._give_up(entity, grant)
                continue
            if take and delivery.lease:
                ranges = merge_offsets(record.offset() or 0 for record in grant.records)
                again.append(Settlement(entity.ledgers[delivery.partition], "complete", delivery.lease, ranges))
                delivery = replace(delivery, lease="", expiry=0)
            messages += [ServiceBusReceivedMessage(record, delivery) for record in grant.records]
        if again:
            self._services.courier.ask(*again)
            # Whose lock expired while its record was read is somebody else's by now.
            lost = {(one.ledger.partition, offset) for one in again for a, b in one.lost for offset in range(a, b + 1)}
            messages = [message for message in messages if (message._delivery.partition, message._offset) not in lost]
        return messages

    def _give_up(self, entity: Entity, grant: Grant) -> None:
        """Dead-letter what was delivered too often; where that fails, it is tried again once its lock has expired."""
        partition, count = grant.delivery.partition, grant.delivery.count
        try:
            self._services.transfers.dead_letter(
                entity,
                partition,
                {grant.delivery.lease: grant.records},
                reason="MaxDeliveryCountExceeded",
                description=f"delivered {count} times, and max_delivery_count is {entity.max_deliveries}",
            )
        except ServiceBusError as error:
            LOGGER.warning("give_up_failed entity=%s partition=%d error=%s", entity.path, partition, error)

    def _held(self, messages: Sequence[ServiceBusReceivedMessage]) -> list[_Held]:
        """Messages to settle, by delivery; all are checked before anything is done."""
        self._check_open()
        if len(set(map(id, messages))) < len(messages):
            raise MessageAlreadySettled("a message is named twice: name each once")
        held: dict[int, _Held] = {}
        for message in messages:
            if not isinstance(message, ServiceBusReceivedMessage):
                raise TypeError(f"{type(message).__name__} cannot be settled: give a message that a receiver returned")
            delivery = message._delivery
            one = held.get(id(delivery))
            if one is None:
                self._check_delivery(delivery)
                one = held[id(delivery)] = _Held(delivery)
            if message._settled:
                raise MessageAlreadySettled
            one.messages.append(message)
        return list(held.values())

    def _check_delivery(self, delivery: Delivery) -> None:
        if self._mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE or not delivery.lease:
            raise ValueError(
                "the message is not locked, so it cannot be settled: it was received with RECEIVE_AND_DELETE or peeked"
            )
        if delivery.entity != self._path.key:
            raise ValueError(
                f"the message was received from {delivery.entity!r}: settle it with a receiver of that "
                f"queue, not of {self.entity_path!r}"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(
                "The handler has already been shutdown: this receiver was closed, get another from the client"
            )


class _Held:
    """Messages of one delivery, to be settled."""

    __slots__ = ("delivery", "messages")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.messages: list[ServiceBusReceivedMessage] = []

    @property
    def ranges(self) -> list[Range]:
        """Their offsets."""
        return merge_offsets([message._offset for message in self.messages])

    def settled(self, lost: Sequence[Range]) -> list[ServiceBusReceivedMessage]:
        """Mark them as settled but for those that the lease did not hold; returns these."""
        missing = (
            [message for message in self.messages if any(first <= message._offset <= last for first, last in lost)]
            if lost
            else []
        )
        gone = set(map(id, missing))
        for message in self.messages:
            if not gone or id(message) not in gone:
                message._settled = True
        return missing


def _still_there(held: list[_Held], entity: Entity) -> tuple[list[_Held], list[ServiceBusReceivedMessage]]:
    """What is in partitions that the entity has; and messages of one that had more, and was deleted since."""
    there = [one for one in held if one.delivery.partition < entity.partitions]
    return there, [message for one in held if one not in there for message in one.messages]


def _raise_lost(done: str, lost: Sequence[ServiceBusReceivedMessage]) -> None:
    if lost:
        numbers = [message.sequence_number for message in lost]
        raise MessageLockLostError(
            f"{len(numbers)} message(s) were not {done}, because their locks expired or they were settled elsewhere: "
            f"sequence numbers {numbers[:10]}; they are delivered again where they were not settled, so handle them anew",
            error=lost[0].auto_renew_error,
        )
