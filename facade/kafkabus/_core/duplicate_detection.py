"""Selection of the records that may be duplicates of each other, for the request to a ledger."""

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
    """Return the operation with which a ledger finds the duplicates among records.

    Args:
        entity: The entity of the records.
        partition: The partition of the records.
        start: All records from here …
        upto: … to before here are among ``records``.
        records: The records, ascending, and possibly earlier ones, whose leader epochs show whether the log was truncated.
        log_start: The offset before which no record counts any more; None if the ledger does not need it.
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
        named = _headers_by_name(record)
        message_id = named.get(MESSAGE_ID)
        if message_id is None:
            # A plain producer's record has no id, so it is no duplicate.
            continue
        if ADDRESSED_TO in named:
            # A copy that a subscription's rules made of a record that was judged.
            continue
        source = named.get(TRANSFER_SOURCE)
        if source is not None and SCHEDULED_ENQUEUE_TIME in named and _of_log(source) == here:
            # The copy of a message that was scheduled here: the scheduled record itself is judged.
            continue
        scope = _key(named) if entity.partitions > 1 else b""
        identity = (offset, _digest(scope, message_id), record.timestamp()[1])
        ids.append(identity if source is None else (*identity, _digest(source)))
    return DetectDuplicates(entity.ledgers[partition], start, upto, ids, epochs, entity.window_ms, log_start)


def home_of(entity: Entity, record: Record) -> int | None:
    """Return the partition in which all records with the id of this one belong; None if it has no id.

    A plain producer may have stored it in another one, whose ledger would not find that it is a duplicate.
    """
    named = _headers_by_name(record)
    if MESSAGE_ID not in named:
        return None
    return partition_of(_key(named).decode(errors="replace"), entity.partitions)


def _headers_by_name(record: Record) -> dict[str, bytes]:
    """Return a record's headers; of those with one name, the last."""
    return {name: value for name, value in record.headers() or () if value is not None}


def _key(named: Mapping[str, bytes]) -> bytes:
    """Return the key of a message that has an id, whatever the key of its record is."""
    return next(named[name] for name in (SESSION_ID, PARTITION_KEY, MESSAGE_ID) if name in named)


def _of_log(source: bytes) -> tuple[bytes, bytes]:
    """Return entity and partition of a ledger's name, whatever its generation; the source of a copy begins with that name."""
    entity, _, partition = source[: source.rfind(b"}")].rpartition(b"/")
    return entity.rpartition(b"/")[0], partition


def _digest(*parts: bytes) -> str:
    """Return the digest that represents an id in a ledger: short, however long the id is, and different for different ids."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
    return base64.b64encode(digest.digest(), b"-_").decode().rstrip("=")
