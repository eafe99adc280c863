"""Messages that somebody holds, by delivery: what settling them has in common, without I/O."""

from __future__ import annotations

from collections.abc import Sequence

from kafkabus._core.delivery import Delivery
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageAlreadySettled, MessageLockLostError, ServiceBusQuotaExceededError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._ledger.ranges import Range, merge_offsets

DEFERRED_LIMIT = 100_000
"""How many messages of one partition may be deferred at a time."""


class SettlementBatch:
    """Messages of one delivery, to be settled.

    Attributes:
        delivery: What they have in common.
        messages: Them.
    """

    __slots__ = ("delivery", "messages")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.messages: list[ServiceBusReceivedMessage] = []

    @property
    def ranges(self) -> list[Range]:
        """Their offsets."""
        return merge_offsets([message._offset for message in self.messages])

    def without(self, lost: Sequence[Range]) -> tuple[list[ServiceBusReceivedMessage], list[ServiceBusReceivedMessage]]:
        """The messages that the lease held, and those that it did not."""
        if not lost:
            return self.messages, []
        missing = [
            message for message in self.messages if any(first <= message._offset <= last for first, last in lost)
        ]
        gone = set(map(id, missing))
        return [message for message in self.messages if id(message) not in gone], missing

    def settled(self, lost: Sequence[Range]) -> list[ServiceBusReceivedMessage]:
        """Mark them as settled but for those that the lease did not hold; returns these."""
        done, missing = self.without(lost)
        for message in done:
            message._settled = True
        return missing

    def renewed(self, lost: Sequence[Range], expiry: int) -> list[ServiceBusReceivedMessage]:
        """Note until when they are locked now but for those that the lease did not hold; returns these."""
        done, missing = self.without(lost)
        for message in done:
            message._lock_until = expiry
        return missing


def by_delivery(messages: Sequence[ServiceBusReceivedMessage]) -> list[SettlementBatch]:
    """Messages to settle, by delivery.

    Raises:
        TypeError: One is no received message.
        MessageAlreadySettled: One was settled before, or is named twice.
    """
    held: dict[int, SettlementBatch] = {}
    for message in messages:
        if not isinstance(message, ServiceBusReceivedMessage):
            raise TypeError(f"{type(message).__name__} cannot be settled: give a message that a receiver returned")
    if len(set(map(id, messages))) < len(messages):
        raise MessageAlreadySettled("a message is named twice: name each once")
    for message in messages:
        delivery = message._delivery
        one = held.get(id(delivery))
        if one is None:
            one = held[id(delivery)] = SettlementBatch(delivery)
        one.messages.append(message)
    return list(held.values())


def check_unsettled(held: Sequence[SettlementBatch], *, enlisted: bool = False) -> None:
    """Refuse what was settled before.

    Args:
        held: Messages.
        enlisted: Whether those may be among them that an open transaction is to settle.

    Raises:
        MessageAlreadySettled: One of the messages was.
    """
    for message in (message for one in held for message in one.messages):
        if message._settled:
            raise MessageAlreadySettled
        if message._enlisted and not enlisted:
            raise MessageAlreadySettled("a transaction that is not over yet settles the message")


def still_there(
    held: list[SettlementBatch], entity: Entity
) -> tuple[list[SettlementBatch], list[ServiceBusReceivedMessage]]:
    """What is in partitions that the entity has; and messages of one that had more, and was deleted since."""
    there = [one for one in held if one.delivery.partition < entity.partitions]
    return there, [message for one in held if one not in there for message in one.messages]


def raise_lost(done: str, lost: Sequence[ServiceBusReceivedMessage]) -> None:
    """Say whose locks were lost, if any were.

    Raises:
        MessageLockLostError: Some were.
    """
    if lost:
        numbers = [message.sequence_number for message in lost]
        raise MessageLockLostError(
            f"{len(numbers)} message(s) were not {done}, because their locks expired or they were settled elsewhere: "
            f"sequence numbers {numbers[:10]}; they are delivered again where they were not settled, so handle them anew",
            error=lost[0].auto_renew_error,
        )


def too_many_deferred(entity: Entity, partition: int) -> ServiceBusQuotaExceededError:
    """What is said where a partition takes no more deferred messages."""
    return ServiceBusQuotaExceededError(
        f"{entity.path}, partition {partition}: more than {DEFERRED_LIMIT} messages would be deferred; receive some of "
        "them with receive_deferred_messages and settle them. Those that did not fit stay locked"
    )
