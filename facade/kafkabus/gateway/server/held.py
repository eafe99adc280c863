"""Messages that a client holds: of each, the gateway keeps its place and its lock, and no content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkabus._async.stores.changed_properties import as_changed
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of, replace_record
from kafkabus._core.record import Record, place_of
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server.service_bus_conditions import MESSAGE_LOCK_LOST
from kafkabus_mapping.numbers import LockToken, sequence_number

if TYPE_CHECKING:
    from kafkabus._async.context import ClientContext
    from kafkabus._core.entity import Entity


class HeldRecord:
    """A record whose content was not kept; the methods are ``Record``'s, and those of the content raise until it was read.

    Args:
        topic: The Kafka topic.
        partition: The Kafka partition.
        offset: The Kafka offset.
        stamp: Kind and milliseconds of the record's timestamp.
    """

    __slots__ = ("_content", "_place", "_stamp")

    def __init__(self, topic: str, partition: int, offset: int, stamp: tuple[int, int] = (0, 0)) -> None:
        self._place = (topic, partition, offset)
        self._stamp = stamp
        self._content: Record | None = None

    @property
    def is_read(self) -> bool:
        """Whether the content is there."""
        return self._content is not None

    def put(self, content: Record) -> None:
        """Keep the content."""
        self._content = content

    def _require_content(self) -> Record:
        if self._content is None:
            raise RuntimeError(f"the content of {self._place} was not read: a copy of it would be empty")
        return self._content

    def topic(self) -> str | None:
        """Return the Kafka topic."""
        return self._place[0]

    def partition(self) -> int | None:
        """Return the Kafka partition."""
        return self._place[1]

    def offset(self) -> int | None:
        """Return the Kafka offset."""
        return self._place[2]

    def key(self) -> str | bytes | None:
        """Return the partition key, or None."""
        return self._require_content().key()

    def value(self) -> str | bytes | None:
        """Return the body, or None."""
        return self._require_content().value()

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return names and values in order, or None."""
        return self._require_content().headers()

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since 1970 UTC."""
        return self._stamp

    def leader_epoch(self) -> int | None:
        """Return None: the place does not have it."""
        return None


def discard_body(message: ServiceBusReceivedMessage) -> ServiceBusReceivedMessage:
    """Forget the content of a message that was sent to its client; return the message."""
    record = receipt_of(message).record
    replace_record(message, HeldRecord(*place_of(record), record.timestamp()))
    return message


def message_of(entity: Entity, token: LockToken) -> ServiceBusReceivedMessage:
    """Return the message that a lock token names; the ledger knows whether it is locked.

    Raises:
        AmqpError: The token names no message.
    """
    try:
        sequence_number(token.partition, token.offset)
    except ValueError as error:
        raise AmqpError(MESSAGE_LOCK_LOST, f"no message of {entity.path} has such a lock token") from error
    delivery = entity.delivery(token.partition, f"{token.lease:016x}", 0, 0)
    return ServiceBusReceivedMessage(HeldRecord(entity.topic, token.partition, token.offset), delivery)


async def read_contents(
    context: ClientContext, entity: Entity, messages: Sequence[ServiceBusReceivedMessage], count: Callable[[int], None]
) -> None:
    """Read the contents of messages that are about to be copied.

    Args:
        context: The parts of the client.
        entity: The messages' entity.
        messages: The messages.
        count: Called with the bytes of each body that was read; it may refuse more by raising.

    Raises:
        AmqpError: One is not there any more, so that its lock is lost.
        ServiceBusError: Kafka or Redis cannot be reached.
    """
    for message in messages:
        receipt = receipt_of(message)
        record = receipt.record
        if not isinstance(record, HeldRecord) or record.is_read:
            continue
        partition, offset = receipt.delivery.partition, receipt.offset
        found: list[Record] = []
        if partition < entity.partitions:
            found = await context.stores.archive.read(entity, partition, offset, offset)
        if not found:
            raise AmqpError(MESSAGE_LOCK_LOST, f"message {message.sequence_number} of {entity.path} is settled")
        (changed,) = await as_changed(context.connections, entity.ledgers[partition], found[:1])
        record.put(changed)
        count(len(changed.value() or b""))
