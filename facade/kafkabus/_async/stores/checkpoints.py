"""Checkpoints: recent snapshots of ledgers in a compacted topic, so that an empty Redis does not begin from nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kafkabus._async.compat import Lock
from kafkabus._async.connections import Connections
from kafkabus._core.record import as_bytes
from kafkabus._kafka.topic_admin import COMPACTED_TOPIC
from kafkabus._ledger.snapshot import Snapshot, read_snapshot
from kafkabus_mapping.checkpoints import (
    CHANGES,
    CHECKPOINTS,
    SEPARATOR,
    block_content,
    block_text,
    block_version,
    head_version,
)

LOGGER = logging.getLogger("kafkabus")

K = TypeVar("K")

BELIEVED_FOR = 2.0
"""For how many seconds a read of the topic counts as current; an older checkpoint only delivers more messages again."""


@dataclass(slots=True)
class _Written:
    """The records of one ledger in the topic: its head, its blocks by number, and parts with changed properties by name.

    Attributes:
        written_at: When the head was written, ms since 1970.
    """

    head: str | None = None
    written_at: int = 0
    blocks: dict[int, str] = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)


class Checkpoints:
    """A namespace's checkpoints.

    Args:
        connections: The client's connections.
    """

    def __init__(self, connections: Connections) -> None:
        self._topic = connections.compacted_topic(CHECKPOINTS, COMPACTED_TOPIC)
        self._lock = Lock()
        self._written: dict[str, _Written] = {}
        self._read_to = 0
        self._read_at = float("-inf")

    async def read(self, prefix: str) -> Snapshot | None:
        """Return the last checkpoint of a ledger, or None if there is none.

        Args:
            prefix: The prefix of the ledger's keys.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        async with self._lock:
            await self._read_on()
            return self._read(prefix)

    async def read_now(self, prefixes: Iterable[str]) -> dict[str, Snapshot | None]:
        """Return the last checkpoints of ledgers by prefix, including those that were stored a moment ago.

        Args:
            prefixes: The prefixes of the ledgers' keys.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        async with self._lock:
            self._read_at = float("-inf")
            await self._read_on()
            return {prefix: self._read(prefix) for prefix in prefixes}

    def _read(self, prefix: str) -> Snapshot | None:
        written = self._written.get(prefix)
        if written is None or written.head is None:
            return None
        return replace(read_snapshot(written.head, written.blocks, written.changes), written_at=written.written_at)

    async def write(self, snapshots: Mapping[str, Snapshot]) -> set[str]:
        """Write checkpoints, only the parts that differ from the last ones; skip ledgers whose checkpoint is as new or newer.

        Args:
            snapshots: The snapshots, by the prefix of each ledger's keys.

        Returns:
            The prefixes of the skipped ledgers.

        Raises:
            ServiceBusCommunicationError: Kafka did not store all of them.
        """
        async with self._lock:
            await self._read_on()
            outdated: set[str] = set()
            blocks: dict[str, str | None] = {}
            heads: dict[str, str | None] = {}
            gone: dict[str, str | None] = {}
            for prefix, snapshot in snapshots.items():
                written = self._written.get(prefix, _Written())
                if written.head is not None and head_version(written.head) >= snapshot.version:
                    LOGGER.warning("checkpoint_outdated ledger=%s version=%d", prefix, snapshot.version)
                    outdated.add(prefix)
                    continue
                present, versions = written.blocks, dict[int, int]()
                for block, content in snapshot.blocks().items():
                    if block_content(present.get(block)) == content:
                        versions[block] = block_version(present[block])
                    else:
                        versions[block] = snapshot.version
                        blocks[f"{prefix}{SEPARATOR}{block}"] = block_text(snapshot.version, content)
                blocks |= dict.fromkeys(f"{prefix}{SEPARATOR}{block}" for block in present.keys() - versions.keys())
                changes = snapshot.change_chunks()
                since = {
                    name: block_version(before)
                    if (before := written.changes.get(name)) is not None and block_content(before) == content
                    else snapshot.version
                    for name, content in changes.items()
                }
                blocks |= {
                    f"{prefix}{SEPARATOR}{CHANGES}{name}": block_text(snapshot.version, changes[name])
                    for name, version in since.items()
                    if version == snapshot.version
                }
                gone |= dict.fromkeys(
                    f"{prefix}{SEPARATOR}{CHANGES}{name}" for name in written.changes.keys() - changes.keys()
                )
                heads[prefix] = snapshot.head(versions, since)
            # Blocks first: a head must not name blocks that are not there. Changed properties that it names are there as long.
            for texts in (blocks, heads, gone):
                await self._store(texts)
            return outdated

    async def drop(self, prefixes: Iterable[str]) -> None:
        """Delete the checkpoints of ledgers that are gone for good.

        Args:
            prefixes: The prefixes of the ledgers' keys.

        Raises:
            ServiceBusCommunicationError: Kafka did not store all deletions.
        """
        async with self._lock:
            await self._read_on()
            known = {prefix: self._written[prefix] for prefix in prefixes if prefix in self._written}
            # Heads first, because they name blocks.
            await self._store({prefix: None for prefix, written in known.items() if written.head is not None})
            await self._store(
                {
                    f"{prefix}{SEPARATOR}{block}": None
                    for prefix, written in known.items()
                    for block in (*written.blocks, *(f"{CHANGES}{name}" for name in written.changes))
                }
            )

    async def _store(self, texts: Mapping[str, str | None]) -> None:
        if not texts:
            return
        records: dict[str | None, bytes | None] = {
            key: None if text is None else text.encode() for key, text in texts.items()
        }
        await self._topic.store("a checkpoint", records, timeout=30.0)
        now_ms = round(time.time() * 1000)
        for key, text in texts.items():
            self._keep(key, text, now_ms)

    async def _read_on(self) -> None:
        """Read the records that the topic got since the last read, unless that read still counts as current."""
        if time.monotonic() - self._read_at <= BELIEVED_FOR:
            return
        records, self._read_to = await self._topic.read(self._read_to)
        for record in records:
            key, value = (as_bytes(record.key()) or b"").decode(), as_bytes(record.value())
            self._keep(key, None if value is None else value.decode(), record.timestamp()[1])
        self._read_at = time.monotonic()

    def _keep(self, key: str, text: str | None, written_at: int) -> None:
        prefix, separator, block = key.partition(SEPARATOR)
        written = self._written.setdefault(prefix, _Written())
        if not separator:
            written.head, written.written_at = text, written_at
        elif block.startswith(CHANGES):
            _put(written.changes, block.removeprefix(CHANGES), text)
        else:
            _put(written.blocks, int(block), text)
        if written.head is None and not written.blocks and not written.changes:
            del self._written[prefix]


def _put(records: dict[K, str], key: K, text: str | None) -> None:
    """Keep a record, or forget it if its text is none."""
    if text is None:
        records.pop(key, None)
    else:
        records[key] = text
