"""The descriptions of a namespace's entities: a compacted topic holds them, Redis caches them."""

from __future__ import annotations

from kafkabus.aio.ledger.connection import Described, DescriptionCache
from kafkabus.aio.log.companion import Companion
from kafkabus.log.parcel import UNKNOWN_OFFSET
from kafkabus.record import as_bytes, place_of
from kafkabus_mapping.entities import QueueDescription
from kafkabus_mapping.namespaces import NamespaceDescription

_NAMESPACE = "$namespace"
"""Name of the namespace's own description; no entity's name begins with a dollar sign."""


class Directory:
    """What entities a namespace has.

    Args:
        companion: The topic that holds their descriptions.
        cache: Descriptions in Redis.
    """

    def __init__(self, companion: Companion, cache: DescriptionCache) -> None:
        self._companion = companion
        self._cache = cache

    async def get(self, name: str) -> QueueDescription | None:
        """The description of a queue, None where there is none.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        loaded, text = await self._cache.get(name.lower())
        if not loaded:
            text = (await self._load()).get(name.lower())
        return None if text is None else QueueDescription.model_validate_json(text)

    async def check_server(self) -> None:
        """Read everything anew where Redis is another server than before: what it holds may be out of date.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if await self._cache.begin_with_server():
            await self._load()

    async def namespace(self) -> NamespaceDescription | None:
        """The namespace's own description, None where nobody created it yet.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        loaded, text = await self._cache.get(_NAMESPACE)
        if not loaded:
            text = (await self._load()).get(_NAMESPACE)
        return None if text is None else NamespaceDescription.model_validate_json(text)

    async def put_namespace(self, description: NamespaceDescription) -> None:
        """Write the namespace's own description; it is durable when this returns.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        await self._write(_NAMESPACE, description.model_dump_json())

    async def all(self) -> list[QueueDescription]:
        """All descriptions of queues, by name.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        texts = await self._cache.all()
        if texts is None:
            texts = await self._load()
        return [QueueDescription.model_validate_json(texts[name]) for name in sorted(texts) if name != _NAMESPACE]

    async def put(self, description: QueueDescription) -> None:
        """Write a description; it is durable when this returns.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        name, text = description.name.lower(), description.model_dump_json()
        await self._write(name, text)

    async def remove(self, name: str) -> None:
        """Delete a description.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        await self._write(name.lower(), None)

    async def _write(self, name: str, text: str | None) -> None:
        record: dict[str | None, bytes | None] = {name: None if text is None else text.encode()}
        (offset,) = await self._companion.store(f"the description of {name!r}", record, timeout=60.0)
        if offset == UNKNOWN_OFFSET:
            await self._load()
        else:
            await self._cache.keep({name: Described(offset, text)})

    async def _load(self) -> dict[str, str]:
        """Read the topic to its end and fill the cache."""
        described: dict[str, Described] = {}
        life = await self._cache.life()
        records, end = await self._companion.read()
        for record in records:
            name, text = (as_bytes(record.key()) or b"").decode(), as_bytes(record.value())
            described[name] = Described(place_of(record)[2], None if text is None else text.decode())
        # A broker that lags behind may not know the topic yet: that there is nothing is looked up each time.
        await self._cache.keep(described, all_of=life if end > 0 else "")
        return {name: text for name, (_, text) in described.items() if text is not None}
