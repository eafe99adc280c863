"""Sequence numbers, lock tokens, and the partition of a message."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus_mapping.keys import KeyRuleError, effective_key, partition_of
from kafkabus_mapping.numbers import (
    MAX_OFFSET,
    MAX_PARTITION,
    LockToken,
    sequence_number,
    split_sequence_number,
)

PARTITIONS = st.integers(0, MAX_PARTITION)
OFFSETS = st.integers(0, MAX_OFFSET)


@given(PARTITIONS, OFFSETS)
def test_a_sequence_number_names_its_record(partition: int, offset: int) -> None:
    """The number is positive, ordered within the partition, and leads back to the record."""
    number = sequence_number(partition, offset)
    assert split_sequence_number(number) == (partition, offset)
    assert number >= 1
    assert number >> 48 == partition
    if offset:
        assert sequence_number(partition, offset - 1) < number


@pytest.mark.parametrize("number", [0, -1, 1 << 64, 1 << 48, (3 << 48) | (1 << 47) | 5])
def test_what_names_no_record_is_refused(number: int) -> None:
    """Scheduled messages' numbers are among the refused ones."""
    with pytest.raises(ValueError, match=str(number)):
        split_sequence_number(number)


@pytest.mark.parametrize(("partition", "offset"), [(-1, 0), (MAX_PARTITION + 1, 0), (0, -1), (0, MAX_OFFSET + 1)])
def test_what_has_no_number_is_refused(partition: int, offset: int) -> None:
    """The values exceed 16 and 47 bits."""
    with pytest.raises(ValueError, match="no sequence number"):
        sequence_number(partition, offset)


@given(st.integers(0, (1 << 64) - 1), PARTITIONS, OFFSETS)
def test_a_lock_token_is_a_uuid_and_back(lease: int, partition: int, offset: int) -> None:
    """That holds for any delivery of any record."""
    token = LockToken(lease, partition, offset)
    assert isinstance(token.to_uuid(), uuid.UUID)
    assert LockToken.from_uuid(token.to_uuid()) == token


@pytest.mark.parametrize(
    ("session", "key", "message", "detects", "expected"),
    [
        ("s", None, "m", True, "s"),
        ("s", "s", "m", False, "s"),
        ("", None, "m", True, ""),
        (None, "k", "m", True, "k"),
        (None, None, "m", True, "m"),
        (None, None, "m", False, None),
        (None, None, None, True, None),
    ],
)
def test_the_key_is_session_then_partition_key_then_message_id(
    session: str | None, key: str | None, message: str | None, detects: bool, expected: str | None
) -> None:
    """The message id counts only if duplicates are detected."""
    assert (
        effective_key(session_id=session, partition_key=key, message_id=message, detects_duplicates=detects) == expected
    )


@pytest.mark.parametrize(("session", "key"), [("s", "k"), ("s", ""), ("", "k")])
def test_session_and_partition_key_must_agree(session: str, key: str) -> None:
    """The error names both."""
    with pytest.raises(KeyRuleError, match=f"{key!r} differs from session_id {session!r}"):
        effective_key(session_id=session, partition_key=key, message_id=None, detects_duplicates=False)


@pytest.mark.parametrize(("key", "partition"), [("UA", 8), ("", 0), ("ключ", 10)])
def test_partitions_are_crc32_of_utf8(key: str, partition: int) -> None:
    """The values are known ones, so that no release moves a key."""
    assert partition_of(key, 16) == partition
