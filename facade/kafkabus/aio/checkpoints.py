"""Checkpoints: what ledgers held a moment ago, in a compacted topic, so that an empty Redis does not begin from nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkabus.aio._acompat import Lock
from kafkabus.aio.log.outbox import OutgoingRecord
from kafkabus.exceptions import ServiceBusCommunicationError
from kafkabus.ledger.snapshot import Snapshot, block_content, block_text, block_version, read_snapshot
from kafkabus.log.topics import COMPANION_TOPIC
from kafkabus.record import as_bytes
from kafkabus_mapping.names import companion_topic

if TYPE_CHECKING:
    from kafkabus.aio.services import Services

LOGGER = logging.getLogger("kafkabus")

READ_AT_ONCE = 5_000
"""How many records of the topic are read in one go."""
BELIEVED_FOR = 2.0
"""How old, in seconds, what was read of the topic may be; an older checkpoint only delivers more again."""
SEPARATOR = "#"
"""Stands between a ledger's prefix and a block's number in the key of a block; the key of a head is the prefix alone."""


class Checkpoints:
    """A namespace's checkpoints.

    Args:
        services: The client's connections.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._topic = companion_topic(services.settings.namespace, "checkpoints")
        self._lock = Lock()
        self._texts: dict[str, str] = {}
        self._read_to = 0
        self._read_at = float("-inf")

    async def read(self, prefix: str) -> Snapshot | None:
        """The last checkpoint of a ledger, None where there is none.

        Args:
            prefix: Of the ledger's keys.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        async with self._lock:
            if time.monotonic() - self._read_at > BELIEVED_FOR:
                await self._read_on()
            head = self._texts.get(prefix)
            return None if head is None else read_snapshot(head, self._blocks(prefix))

    async def write(self, snapshots: Mapping[str, Snapshot]) -> None:
        """Write checkpoints, as far as they differ from the last ones; none that is older than the one that is there.

        Args:
            snapshots: By the prefix of each ledger's keys.

        Raises:
            ServiceBusCommunicationError: They were not all stored.
        """
        async with self._lock:
            if time.monotonic() - self._read_at > BELIEVED_FOR:
                await self._read_on()
            blocks: dict[str, str | None] = {}
            heads: dict[str, str | None] = {}
            for prefix, snapshot in snapshots.items():
                head = self._texts.get(prefix)
                if head is not None and read_snapshot(head, {}).version >= snapshot.version:
                    LOGGER.warning("checkpoint_outdated ledger=%s version=%d", prefix, snapshot.version)
                    continue
                present, versions = self._blocks(prefix), dict[int, int]()
                for block, content in snapshot.blocks().items():
                    if block_content(present.get(block)) == content:
                        versions[block] = block_version(present[block])
                    else:
                        versions[block] = snapshot.version
                        blocks[f"{prefix}{SEPARATOR}{block}"] = block_text(snapshot.version, content)
                blocks |= dict.fromkeys(f"{prefix}{SEPARATOR}{block}" for block in present.keys() - versions.keys())
                heads[prefix] = snapshot.head(versions)
            # Blocks first: a head must not know of blocks that are not there.
            for texts in (blocks, heads):
                await self._store(texts)

    async def forget(self, prefix: str) -> None:
        """Remove the checkpoint of a ledger that is gone for good.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        async with self._lock:
            keys = [key for key in self._texts if key == prefix or key.startswith(f"{prefix}{SEPARATOR}")]
            await self._store(dict.fromkeys(keys))

    def _blocks(self, prefix: str) -> dict[int, str]:
        begin = f"{prefix}{SEPARATOR}"
        return {int(key[len(begin) :]): text for key, text in self._texts.items() if key.startswith(begin)}

    async def _store(self, texts: Mapping[str, str | None]) -> None:
        if not texts:
            return
        await self._services.pool.run(self._services.topics.create, self._topic, 1, COMPANION_TOPIC)
        records = [OutgoingRecord(0, key, None if text is None else text.encode(), []) for key, text in texts.items()]
        parcel = await self._services.outbox.send(self._topic, records, timeout=30.0)
        if not parcel.done or parcel.failures:
            raise ServiceBusCommunicationError(f"checkpoints were not stored in {self._topic}")
        for key, text in texts.items():
            self._keep(key, text)

    async def _read_on(self) -> None:
        """Read what the topic holds beyond what was read of it before."""
        services = self._services
        if await services.pool.run(services.topics.describe, self._topic) is not None:
            start = (await services.pool.run(services.topics.starts, self._topic, [0]))[0]
            end = (await services.pool.run(services.topics.ends, self._topic, [0]))[0]
            at = max(start, self._read_to)
            while at < end:
                upto = min(end, at + READ_AT_ONCE)
                for record in await services.points.read(self._topic, 0, at, upto - 1):
                    key, value = (as_bytes(record.key()) or b"").decode(), as_bytes(record.value())
                    self._keep(key, None if value is None else value.decode())
                at = upto
            self._read_to = at
        self._read_at = time.monotonic()

    def _keep(self, key: str, text: str | None) -> None:
        if text is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = text
