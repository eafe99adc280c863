"""Records that were filed a moment ago are found by place, and are bounded in number and in bytes."""

from __future__ import annotations

import pytest

from kafkabus._core.record import StoredRecord
from kafkabus._sync.receiving import recent_records
from kafkabus._sync.receiving.recent_records import RecentRecords


def records(partition: int, offsets: range, size: int = 1) -> list[StoredRecord]:
    """Return records of so many bytes each."""
    return [StoredRecord(("t", partition, offset), (None, b"x" * size, []), (1, 0)) for offset in offsets]


def test_what_was_kept_is_had_once() -> None:
    """It is found by partition and offset. Missing records are named."""
    kept = RecentRecords()
    kept.put(0, records(0, range(5, 8)))
    kept.put(3, records(3, range(6, 7)))
    found, missing = kept.take(0, [4, 5, 7])
    assert ([record.offset() for record in found], missing) == ([5, 7], [4])
    assert kept.take(0, [5, 7]) == ([], [5, 7])
    assert kept.take(3, [6]) == (records(3, range(6, 7)), [])


@pytest.mark.parametrize(("most", "most_bytes"), [(250, 1 << 20), (1 << 20, 2_500)])
def test_no_more_is_kept_than_may_be(monkeypatch: pytest.MonkeyPatch, most: int, most_bytes: int) -> None:
    """Number and bytes are bounded. A record that was read twice counts once, and the first filed goes first."""
    monkeypatch.setattr(recent_records, "KEPT", most)
    monkeypatch.setattr(recent_records, "KEPT_BYTES", most_bytes)
    kept = RecentRecords()
    for _ in range(3):
        kept.put(1, records(1, range(200), size=10))
    assert kept.take(1, range(200))[1] == []
    for _ in range(2):
        kept.put(1, records(1, range(200), size=10))
    kept.put(2, records(2, range(200), size=10))
    assert kept.take(2, range(200))[1] == []
    left, gone = kept.take(1, range(200))
    assert (len(left) + len(gone), gone) == (200, list(range(len(gone))))
    assert len(left) <= 50
    for number in range(100):
        kept.put(0, records(0, range(number * 200, number * 200 + 200), size=10))
    assert 150 <= len(kept.take(0, range(20_000))[0]) <= 250
