"""Checkpoints of ledgers as a compacted topic holds them: a head and blocks for each ledger, under its prefix.

A checkpoint says which offsets of a log are not settled. Those below its cursor are in blocks of offsets, one record
each; the head has the rest, and names the version that it knows of each block. A writer that was paused may overwrite
later records: a block that is older than the head knows is no answer, and all offsets from there on count as never granted. A
block that is newer than the head is true all the same. Changed application properties are in separate parts, by ranges of
offsets: of a part that is older than the head knows, the messages count as unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkabus_mapping.names import EntityPath, ledger_tag

CHECKPOINTS: Final = "checkpoints"
"""The purpose in the name of the topic."""
BLOCK: Final = 65_536
"""How many offsets a block has."""
SEPARATOR: Final = "#"
"""Separates a ledger's prefix and a block's number in the key of a block; the key of a head is the prefix alone."""
CHANGES: Final = "c"
"""Begins, behind the separator, the name of a part with changed properties: the first offset, ``+``, the number of offsets, and
``?`` if it is one message that only a transaction would change."""


class Checkpoint(NamedTuple):
    """A ledger as it was at one time.

    Attributes:
        cursor: The next offset never granted.
        version: The ledger's version; a later checkpoint has a higher one.
        has_message_ttl: Whether messages with individual times to live were sent.
        waiting: Ranges to be granted again, with delivery counts.
        deferred: Deferred ranges, with delivery counts.
        moving: Offset, delivery count and intent of transfers that have not ended.
        skipped: Offsets beyond the cursor that are no messages.
        epoch: Leader epoch of the record right before the cursor, if it is known.
        dedup_upto: The offset up to which it is known which records are duplicates; None if duplicates are not detected.
        dedup_epoch: Leader epoch of the last record below that, if it is known.
        duplicates: Ranges of the duplicates among those records that are in the window.
        schedules: Whether the log holds records of scheduled messages.
        scheduled: Offset of each message that waits for its time, and that time, ms since 1970.
        postponed: Offset of each waiting message that is not granted again before a time, and that time, ms since 1970.
        markers: An offset in the log of the namespace's transactions: the checkpoint accounts for each transaction whose record
            is below it. None if this was not looked up.
        changes: Offset and changed application properties (name to JSON text) of each message that has some; and whether a
            transaction that is not over would change them.
    """

    cursor: int
    version: int
    has_message_ttl: bool
    waiting: list[tuple[int, int, int]]
    deferred: list[tuple[int, int, int]]
    moving: list[tuple[int, int, str]]
    skipped: list[int]
    epoch: int | None
    dedup_upto: int | None
    dedup_epoch: int | None
    duplicates: list[tuple[int, int]]
    schedules: bool
    scheduled: list[tuple[int, int]]
    postponed: list[tuple[int, int]]
    markers: int | None
    changes: list[tuple[int, dict[str, str], bool]]


def ledger_prefix(namespace: str, path: EntityPath, generation: str, partition: int, name: str = "queue") -> str:
    """Return the prefix of the keys of a ledger, in Redis and in the topic of checkpoints.

    Args:
        namespace: The name of the namespace.
        path: The path of the entity.
        generation: The generation of the entity; see ``generation_of``.
        partition: The partition.
        name: The ledger's name among those over the log.
    """
    return f"{ledger_tag(namespace, path, generation, partition)}:{name}"


def read_checkpoint(head: str, blocks: Mapping[int, str], changes: Mapping[str, str] | None = None) -> Checkpoint:
    """Put a checkpoint together from its head and its blocks.

    Args:
        head: The head.
        blocks: The blocks that are there, by number.
        changes: The parts with changed properties that are there, by name. Those that are older than the head knows are none.

    Raises:
        ValueError: A text was not written as a head or a block.
    """
    state = json.loads(head)
    known = {int(block): version for block, version in state["blocks"].items()}
    outdated = [
        block for block, version in known.items() if block not in blocks or block_version(blocks[block]) < version
    ]
    cursor, dedup_upto = state["cursor"], state.get("dedup_upto")
    if outdated:
        cursor = min(cursor, max(min(outdated) * BLOCK, state["watermark"]))
        dedup_upto = None if dedup_upto is None else min(dedup_upto, min(outdated) * BLOCK)
    parts = [
        json.loads(block_content(text))
        for block, text in sorted(blocks.items())
        if block in known or block_version(text) > state["version"]
    ]
    return Checkpoint(
        cursor=cursor,
        version=state["version"],
        has_message_ttl=state["has_message_ttl"],
        waiting=[(first, last, count) for part in parts for first, last, count in part["waiting"]],
        deferred=[(first, last, count) for part in parts for first, last, count in part["deferred"]],
        moving=[(offset, count, intent) for offset, count, intent in state["moving"]],
        skipped=state["skipped"],
        epoch=None if outdated else state.get("epoch"),
        dedup_upto=dedup_upto,
        dedup_epoch=state.get("dedup_epoch"),
        duplicates=[(first, last) for part in parts for first, last in part.get("duplicates", ())],
        schedules="schedules" in state,
        scheduled=[(offset, when) for part in parts for offset, when in part.get("scheduled", ())],
        postponed=[(offset, until) for part in parts for offset, until in part.get("postponed", ())],
        # Settlements in an outdated block are not known any more: all that is known of transactions is reported again.
        markers=0 if outdated and "markers" in state else state.get("markers"),
        changes=[
            (offset, change, prepared)
            for name, since in state.get("changes", {}).items()
            if (text := (changes or {}).get(name)) is not None and block_version(text) >= since
            for offset, change, prepared in json.loads(block_content(text))
        ],
    )


def head_version(head: str) -> int:
    """Return the version of the ledger from which a head was written.

    Raises:
        ValueError: The text is no head's.
    """
    version: int = json.loads(head)["version"]
    return version


def block_text(version: int, content: str) -> str:
    """Return a block as it is written."""
    return f"{version} {content}"


def block_version(text: str) -> int:
    """Return the version of the ledger from which a block was written.

    Raises:
        ValueError: The text is no block's.
    """
    return int(text.partition(" ")[0])


def block_content(text: str | None) -> str:
    """Return the content of a block; an empty text if there is no block."""
    return "" if text is None else text.partition(" ")[2]
