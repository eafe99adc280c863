"""Receipts: the record, the lock and the progress of settlement of each message that a client received."""

from __future__ import annotations

from kafkabus._core.delivery import Delivery
from kafkabus._core.record import Record, as_bytes


class Receipt:
    """The state of a received message for the parts of a client that settle it; ``message.receipt_of`` returns it.

    Args:
        record: The record that the message was read from.
        delivery: The claim that the message was granted by.

    Attributes:
        record: The record that the message was read from.
        delivery: The claim that the message was granted by.
        lock_until: When the lock expires, ms since 1970 on the ledger's clock; a renewal changes it.
        is_settled: Whether the message was settled.
        is_enlisted: Whether an open transaction is to settle the message.
        is_prepared: Whether a transaction is about to settle the message, so that it has no lock, or has it again in a moment.
    """

    __slots__ = ("delivery", "is_enlisted", "is_prepared", "is_settled", "lock_until", "record")

    def __init__(self, record: Record, delivery: Delivery) -> None:
        self.record = record
        self.delivery = delivery
        self.lock_until = delivery.expiry
        self.is_settled = False
        self.is_enlisted = False
        self.is_prepared = False

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self.record.offset()  # type: ignore[return-value]  # a consumed record has an offset

    @property
    def body(self) -> bytes | None:
        """The record's value."""
        return as_bytes(self.record.value())
