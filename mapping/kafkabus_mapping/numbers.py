"""Sequence numbers and lock tokens: Service Bus's identifiers, made from partition and offset.

A sequence number is 64 bits: 16 bits of partition on top, as in Service Bus, then ``offset + 1``, so that numbers begin
at 1 and are ordered within a partition. They increase with gaps: the marker of a Kafka transaction takes an offset. Bit 47 is
reserved for the numbers of scheduled messages, which are in no log yet.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

PARTITION_BITS = 16
OFFSET_BITS = 48
MAX_OFFSET = (1 << 47) - 2
MAX_PARTITION = (1 << PARTITION_BITS) - 1

_OFFSET_MASK = (1 << OFFSET_BITS) - 1


def sequence_number(partition: int, offset: int) -> int:
    """Return the sequence number of a record.

    Args:
        partition: Kafka partition, 0 to 65,535.
        offset: Kafka offset, 0 to 2**47 - 2.

    Raises:
        ValueError: The partition or the offset is out of its range.
    """
    if not 0 <= partition <= MAX_PARTITION or not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"no sequence number for partition {partition}, offset {offset}: outside 16 and 47 bits")
    return partition << OFFSET_BITS | (offset + 1)


def split_sequence_number(number: int) -> tuple[int, int]:
    """Return the partition and the offset of a sequence number.

    Raises:
        ValueError: The number names no record: it is not positive, exceeds 64 bits, or belongs to a scheduled message.
    """
    partition, rest = number >> OFFSET_BITS, number & _OFFSET_MASK
    if number <= 0 or partition > MAX_PARTITION or not 1 <= rest <= MAX_OFFSET + 1:
        raise ValueError(f"sequence number {number} names no record: use one that a message came with")
    return partition, rest - 1


@dataclass(frozen=True, slots=True)
class LockToken:
    """The content of a lock token: the delivery (lease) of a record.

    Attributes:
        lease: 64 random bits, new for each claim, so that a token belongs to one delivery only.
        partition: Kafka partition of the record.
        offset: Kafka offset of the record.
    """

    lease: int
    partition: int
    offset: int

    def to_uuid(self) -> uuid.UUID:
        """Return the token as the UUID that users of Service Bus see."""
        return uuid.UUID(int=self.lease << 64 | self.partition << OFFSET_BITS | self.offset)

    @classmethod
    def from_uuid(cls, token: uuid.UUID) -> LockToken:
        """Return the token of a UUID that ``to_uuid`` made."""
        low = token.int & ((1 << 64) - 1)
        return cls(token.int >> 64, low >> OFFSET_BITS, low & _OFFSET_MASK)
