# Generated from facade/kafkabus/aio/sender.py by tools/generate_blocking.py. Do not edit.
"""Sending messages to a queue."""

from __future__ import annotations

import random
import uuid
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from typing_extensions import Self

from kafkabus.amqp import AmqpAnnotatedMessage
from kafkabus.entity import Entity
from kafkabus.exceptions import (
    InvalidOperationError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusCommunicationError,
)
from kafkabus.log.outbox import OutgoingRecord
from kafkabus.log.parcel import Parcel
from kafkabus.message import (
    Outgoing,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    as_message,
)
from kafkabus.services import Services
from kafkabus_mapping.entities import EntityStatus
from kafkabus_mapping.keys import KeyRuleError, effective_key, partition_of
from kafkabus_mapping.names import EntityPath

DEFAULT_TIMEOUT = 60.0
"""How long an operation may take, in seconds."""
SHORT_TIMEOUT = 15.0
"""A time-out, in seconds, that leaves no time for another partition."""

MessageLike = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]


class ServiceBusSender:
    """Sends messages to one queue; made by ``ServiceBusClient.get_queue_sender``. Safe to share between threads.

    Attributes:
        entity_name: Name of the queue.
        fully_qualified_namespace: Host name of the namespace.
        client_identifier: As given, or made up.
    """

    def __init__(self, services: Services, entity_name: str, client_identifier: str | None = None) -> None:
        self.entity_name = entity_name
        self.fully_qualified_namespace = services.settings.fully_qualified_namespace
        self.client_identifier = client_identifier or f"SBSender-{uuid.uuid4()}"
        self._services = services
        self._path = EntityPath(entity_name)
        # Not always the same partition first, or senders that live for one message would all use that.
        self._turn = random.randrange(1 << 16)  # noqa: S311 - a spread, no secret
        self._closed = False

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    def __enter__(self) -> Self:
        self._check_open()
        self._services.entity(self._path)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the sender; what was sent is durable already. Closing twice does nothing."""
        self._closed = True

    def send_messages(
        self,
        message: MessageLike | Iterable[MessageLike] | ServiceBusMessageBatch,
        *,
        timeout: float | None = None,
    ) -> None:
        """Send one message, several, or a batch; when this returns they are durable.

        All messages are checked before any is sent. Those with a key go to their key's partition, those without share one,
        the next in turn.

        Args:
            message: A message, a mapping of its arguments, any iterable of these, or a batch. An empty one is no error.
            timeout: In seconds, default 60. Up to 15 s draws a warning on a partitioned queue: it leaves no time for another
                partition.

        Raises:
            TypeError: Something is no message.
            ValueError: The sender was closed, or the timeout is not positive.
            MessageSizeExceededError: The message or the batch is too large; nothing was sent.
            InvalidOperationError: A rule of the queue forbids a message; nothing was sent.
            MessagingEntityNotFoundError: There is no such queue.
            MessagingEntityDisabledError: The queue takes no messages.
            OperationTimeoutError: Not all was acknowledged in time; the message says what is unknown.
            ServiceBusCommunicationError: Kafka did not store all; the message says what was stored.
        """
        self._check_open()
        seconds = _check_timeout(timeout)
        outgoing = _outgoing(message)
        if not outgoing:
            return
        entity = self._services.entity(self._path)
        _check_size(outgoing, entity.max_message_bytes)
        _check_entity(entity, seconds)
        records = self._place(entity, outgoing)
        if any(one.envelope.time_to_live is not None for one in outgoing):
            # Before they are stored, so that whoever is granted one looks for its time to live.
            self._services.mark_mortal(entity, {record.partition for record in records})
        parcel = self._services.outbox.send(entity.topic, records, timeout=seconds)
        if not parcel.done or parcel.failures:
            raise _send_error(entity, records, parcel, seconds)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """An empty batch within the namespace's limit.

        Args:
            max_size_in_bytes: A lower limit, in bytes.

        Raises:
            ValueError: The limit is above the namespace's, or the sender was closed.
            MessagingEntityNotFoundError: There is no such queue.
        """
        self._check_open()
        limit = (self._services.entity(self._path)).max_message_bytes
        if max_size_in_bytes is not None and max_size_in_bytes > limit:
            raise ValueError(f"max_size_in_bytes {max_size_in_bytes}: the namespace takes {limit} bytes")
        return ServiceBusMessageBatch(limit if max_size_in_bytes is None else max_size_in_bytes)

    def _place(self, entity: Entity, outgoing: Sequence[Outgoing]) -> list[OutgoingRecord]:
        """Give each message its partition: by its key, or the next in turn for those without."""
        partitions, detects = entity.partitions, entity.description.requires_duplicate_detection
        turn = -1
        records: list[OutgoingRecord] = []
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
                partition = partition_of(key, partitions)
            else:
                if turn < 0:
                    turn = self._turn = (self._turn + 1) % partitions
                partition = turn
            records.append(OutgoingRecord(partition, key, value, headers))
        return records

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


def _send_error(
    entity: Entity, records: Sequence[OutgoingRecord], parcel: Parcel, timeout: float
) -> ServiceBusCommunicationError | OperationTimeoutError:
    """What became of messages that were not all stored: how many were, which were not, which may have been."""
    total = len(records)
    if not parcel.done:
        return OperationTimeoutError(
            f"sending {total} messages to {entity.path} was not acknowledged within {timeout:g} s: "
            "which of them are stored is unknown (sending again may store them twice)"
        )
    unknown = [failure.message_id for failure in parcel.failures if failure.unknown]
    failed = [failure.message_id for failure in parcel.failures if not failure.unknown]
    partitions = sorted({record.partition for record in records})
    keys = sorted({str(record.key) for record in records if record.key is not None})
    return ServiceBusCommunicationError(
        f"of {total} messages to {entity.path} (partitions {partitions}, keys {keys[:10]}) "
        f"{total - len(parcel.failures)} were stored, {len(failed)} were not ({failed[:10]}), of {len(unknown)} it is unknown "
        f"({unknown[:10]}): {parcel.failures[0].error}"
    )
