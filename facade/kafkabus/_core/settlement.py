"""Messages that a receiver holds, by delivery, and the common steps of settling them; without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from kafkabus._core.delivery import Delivery
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageAlreadySettled, MessageLockLostError, ServiceBusQuotaExceededError
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus._ledger.ranges import Range, merge_offsets
from kafkabus_mapping.codec import LONGEST_REASON
from kafkabus_mapping.entities import LONGEST_DELAY

DEFERRED_LIMIT = 100_000
"""How many messages of one partition may be deferred at a time."""


def delay_of(delay: timedelta | float) -> int:
    """Return for how long a message is postponed, in ms.

    Args:
        delay: A timedelta, or seconds.

    Raises:
        TypeError: It is neither.
        ValueError: It is negative or longer than seven days.
    """
    if isinstance(delay, bool) or not isinstance(delay, (timedelta, int, float)):
        raise TypeError(f"delay is {type(delay).__name__}: give a timedelta or a number of seconds")
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not 0 <= seconds <= LONGEST_DELAY.total_seconds():
        raise ValueError(
            f"delay is {delay!r}: a message is postponed by 0 seconds to 7 days (604,800 seconds); to receive it later than "
            "that, send it as a scheduled message"
        )
    return round(seconds * 1000)


class SettlementBatch:
    """Messages of one delivery, to be settled.

    Attributes:
        delivery: The common properties of the messages.
        messages: The messages to settle.
    """

    __slots__ = ("delivery", "messages")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.messages: list[ServiceBusReceivedMessage] = []

    @property
    def ranges(self) -> list[Range]:
        """The offsets of the messages."""
        return merge_offsets([receipt_of(message).offset for message in self.messages])

    def split_lost(
        self, lost: Sequence[Range]
    ) -> tuple[list[ServiceBusReceivedMessage], list[ServiceBusReceivedMessage]]:
        """Return the messages that the lease held, and those that it did not."""
        if not lost:
            return self.messages, []
        missing = [
            message
            for message in self.messages
            if any(first <= receipt_of(message).offset <= last for first, last in lost)
        ]
        gone = set(missing)
        return [message for message in self.messages if message not in gone], missing

    def mark_settled(self, lost: Sequence[Range]) -> list[ServiceBusReceivedMessage]:
        """Mark the messages as settled, except those that the lease did not hold; return these."""
        done, missing = self.split_lost(lost)
        for message in done:
            receipt_of(message).is_settled = True
        return missing

    def mark_renewed(self, lost: Sequence[Range], expiry: int) -> list[ServiceBusReceivedMessage]:
        """Note until when the messages are locked now, except those that the lease did not hold; return these."""
        done, missing = self.split_lost(lost)
        for message in done:
            receipt_of(message).lock_until = expiry
        return missing


def by_delivery(messages: Sequence[ServiceBusReceivedMessage]) -> list[SettlementBatch]:
    """Return messages to settle, by delivery.

    Raises:
        TypeError: One of them is no received message.
        MessageAlreadySettled: A message was settled before, or is named twice.
    """
    batches: dict[Delivery, SettlementBatch] = {}
    for message in messages:
        if not isinstance(message, ServiceBusReceivedMessage):
            raise TypeError(f"{type(message).__name__} cannot be settled: give a message that a receiver returned")
    if len(set(messages)) < len(messages):
        raise MessageAlreadySettled("a message is named twice: name each once")
    for message in messages:
        delivery = receipt_of(message).delivery
        batch = batches.get(delivery)
        if batch is None:
            batch = batches[delivery] = SettlementBatch(delivery)
        batch.messages.append(message)
    return list(batches.values())


def check_unsettled(batches: Sequence[SettlementBatch], *, enlisted: bool = False) -> None:
    """Refuse messages that were settled before.

    Args:
        batches: The messages.
        enlisted: Whether messages that an open transaction is to settle are accepted.

    Raises:
        MessageAlreadySettled: One of the messages was settled, or is to be settled by an open transaction.
    """
    for message in (message for batch in batches for message in batch.messages):
        receipt = receipt_of(message)
        if receipt.is_settled:
            raise MessageAlreadySettled
        if receipt.is_enlisted and not enlisted:
            raise MessageAlreadySettled("a transaction that is not over yet settles the message")


def still_there(
    batches: list[SettlementBatch], entity: Entity
) -> tuple[list[SettlementBatch], list[ServiceBusReceivedMessage]]:
    """Return the batches of partitions that the entity has, and the messages of a deleted entity that had more partitions."""
    there = [batch for batch in batches if batch.delivery.partition < entity.partitions]
    return there, [message for batch in batches if batch not in there for message in batch.messages]


def raise_lost(done: str, lost: Sequence[ServiceBusReceivedMessage]) -> None:
    """Raise an error that names the messages whose locks were lost, if there are any.

    Raises:
        MessageLockLostError: Locks were lost.
    """
    if lost:
        numbers = [message.sequence_number for message in lost]
        raise MessageLockLostError(
            f"{len(numbers)} message(s) were not {done}, because their locks expired or they were settled elsewhere: "
            f"sequence numbers {numbers[:10]}; those that were not settled are delivered again, so handle these again",
            error=lost[0].auto_renew_error,
        )


def too_many_deferred(entity: Entity, partition: int) -> ServiceBusQuotaExceededError:
    """Return the error that says that a partition takes no more deferred messages."""
    return ServiceBusQuotaExceededError(
        f"{entity.path}, partition {partition}: more than {DEFERRED_LIMIT} messages would be deferred; receive some of "
        "them with receive_deferred_messages and settle them. Those that did not fit stay locked"
    )


def too_much_changed(entity: Entity, partition: int, limit: int) -> ServiceBusQuotaExceededError:
    """Return the error that says that a partition keeps no more changed properties of messages."""
    return ServiceBusQuotaExceededError(
        f"{entity.path}, partition {partition}: the changed properties of a message may have 1,500,000 bytes, and those of all "
        f"messages of a partition 16,777,216: more than {limit} would be kept. Change fewer or shorter ones, or settle "
        "messages whose properties were changed; nothing was done"
    )


def check_reason(name: str, text: str | None) -> None:
    """Check that a text on why a message is dead-lettered can be stored with it.

    Raises:
        TypeError: The text is no ``str``.
        ValueError: The text is too long, or holds half of a surrogate pair.
    """
    if text is None:
        return
    if not isinstance(text, str):
        raise TypeError(f"{name} is {type(text).__name__}: use str; nothing was done")
    if len(text) > LONGEST_REASON:
        raise ValueError(
            f"{name} has {len(text):,} characters, and Service Bus takes {LONGEST_REASON:,}: shorten it; nothing was done"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} holds half of a surrogate pair, at position {error.start}: nothing was done"
        ) from error
