"""Which records may be duplicates of each other, and what a ledger is told of them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence

from kafkabus._core.entity import Entity
from kafkabus._core.record import Record
from kafkabus._ledger.operations import DetectDuplicates
from kafkabus_mapping.headers import (
    ADDRESSED_TO,
    MESSAGE_ID,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    SESSION_ID,
    TRANSFER_SOURCE,
)
from kafkabus_mapping.keys import partition_of


def detect_duplicates(
    entity: Entity,
    partition: int,
    start: int,
    upto: int,
    records: Sequence[Record],
    *,
    log_start: int | None = None,
) -> DetectDuplicates:
    """What has a ledger find the duplicates among records.

    Args:
        entity: Theirs.
        partition: Theirs.
        start: All records from here …
        upto: … to before here are among them.
        records: They, ascending, and maybe others before them, which tell whether the log is still what it was.
        log_start: What lies before counts no more; where that is to be made known.
    """
    here = _of_log(f"{{{entity.namespace}/{entity.log_path.key}/{entity.topic_id}/{partition}}}".encode())
    ids: list[tuple[object, ...]] = []
    epochs: list[tuple[int, int]] = []
    for record in records:
        offset, epoch = record.offset() or 0, record.leader_epoch()
        if epoch is not None and epoch >= 0 and not (epochs and epochs[-1][1] == epoch):
            epochs.append((offset, epoch))
        if offset < start:
            continue
        named = _named(record)
        message_id = named.get(MESSAGE_ID)
        if message_id is None:
            # A plain producer's, which is like no other.
            continue
        if ADDRESSED_TO in named:
            # A copy that a subscription's rules made of one that was judged.
            continue
        source = named.get(TRANSFER_SOURCE)
        if source is not None and SCHEDULED_ENQUEUE_TIME in named and _of_log(source) == here:
            # What was scheduled here was judged when it was stored.
            continue
        scope = _key(named) if entity.partitions > 1 else b""
        one = (offset, _digest(scope, message_id), record.timestamp()[1])
        ids.append(one if source is None else (*one, _digest(source)))
    return DetectDuplicates(entity.ledgers[partition], start, upto, ids, epochs, entity.window_ms, log_start)


def home_of(entity: Entity, record: Record) -> int | None:
    """The partition in which all records with the id of this one belong; None where it has none.

    A plain producer may have stored it elsewhere, where nobody would find that it is a duplicate.
    """
    named = _named(record)
    if MESSAGE_ID not in named:
        return None
    return partition_of(_key(named).decode(errors="replace"), entity.partitions)


def _named(record: Record) -> dict[str, bytes]:
    """A record's headers, of each name the last."""
    return {name: value for name, value in record.headers() or () if value is not None}


def _key(named: Mapping[str, bytes]) -> bytes:
    """The key of a message that has an id, whatever the key of its record is."""
    return next(named[name] for name in (SESSION_ID, PARTITION_KEY, MESSAGE_ID) if name in named)


def _of_log(source: bytes) -> tuple[bytes, bytes]:
    """Entity and partition of a ledger's name, which a copy's source begins with; whichever generation it was."""
    entity, _, partition = source[: source.rfind(b"}")].rpartition(b"/")
    return entity.rpartition(b"/")[0], partition


def _digest(*parts: bytes) -> str:
    """What stands for an id in a ledger: short, however long the id is, and never the same for two of them."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
    return base64.b64encode(digest.digest(), b"-_").decode().rstrip("=")
