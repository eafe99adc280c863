"""The descriptions of a namespace's entities: a compacted topic holds them, Redis caches them."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple

from kafkabus._async.compat import sleep
from kafkabus._async.kafka.compacted_topic import CompactedTopic
from kafkabus._async.redis.connection import DescriptionCache, DescriptionRecord
from kafkabus._core.exceptions import (
    NamespaceFormatError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from kafkabus._core.nearest import nearest_name
from kafkabus._core.record import as_bytes, place_of
from kafkabus._kafka.delivery_reports import UNKNOWN_OFFSET
from kafkabus_mapping.entities import EntityDescription, read_description
from kafkabus_mapping.formats import FIRST, unreadable, written_format
from kafkabus_mapping.namespaces import NamespaceDescription

NAMESPACE = "$namespace"
"""Name of the namespace's own description; no entity's name begins with a dollar sign."""
LARGEST = 1_950_000
"""The largest size of a description in bytes; a description is one record."""
TURN = 30
"""How long, in seconds, a client may take to change a description before another client may."""
TURN_PATIENCE = 60.0
"""How long, in seconds, a client waits for its turn."""

RESERVED_FOR = 60
"""How long, in seconds, room is reserved for an entity that is being created."""


_read = lru_cache(maxsize=1024)(read_description)
"""Descriptions are read again and again, and seldom change."""


class Edition(NamedTuple):
    """Which descriptions a cache holds.

    Attributes:
        life: Another text once Redis was emptied.
        upto: The offset of the topic up to which the cache is complete.
    """

    life: str
    upto: int


class EntityDescriptions:
    """The descriptions of a namespace's entities.

    The topic is authoritative. The cache may be older: its Redis was a replica that lagged behind when it was promoted, or a
    client wrote to the topic and ended before it updated the cache. A client never goes back behind what it has seen of the
    topic, and each change begins with all that the topic holds.

    Each read reads the namespace's own description as well, which names the format of all that the namespace stores. So a
    client of another version is refused before it reads or writes anything else.

    Args:
        namespace: The namespace's name.
        compacted_topic: The topic that holds the descriptions.
        cache: The descriptions in Redis.

    Attributes:
        written_format: The format that this client writes to the namespace, as of the last read.
    """

    def __init__(self, namespace: str, compacted_topic: CompactedTopic, cache: DescriptionCache) -> None:
        self.written_format = FIRST
        self._namespace = namespace
        self._topic = compacted_topic
        self._cache = cache
        self._turns: Counter[str] = Counter()
        self._upto = 0

    async def get(self, name: str) -> EntityDescription | None:
        """Return the description of an entity, or None if there is none.

        Raises:
            NamespaceFormatError: The namespace is stored in a format that this version does not read.
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        (description,) = await self.get_many([name])
        return description

    async def get_many(self, names: Sequence[str]) -> list[EntityDescription | None]:
        """Return the descriptions of several entities; see ``get``.

        Raises:
            NamespaceFormatError: The namespace is stored in a format that this version does not read.
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        wanted = [name.lower() for name in names]
        upto, texts = await self._read_cached(wanted)
        if not self._is_known(upto):
            texts = list(map((await self._load()).get, wanted))
        return [None if text is None else _read(text) for text in texts]

    async def catch_up(self) -> None:
        """Bring the cache up to the topic's current end.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        # In this order: records that other clients write between these steps raise the end alone.
        upto, _ = await self._read_cached([])
        end = await self._topic.end()
        if upto > end > 0:
            # This is another topic of the same name.
            await self._cache.empty()
            self._upto = 0
        # A broker that lags behind may not know the topic yet.
        if not self._is_known(upto) or (upto != end and end > 0):
            await self._load()

    async def edition(self) -> Edition:
        """Return what distinguishes the current descriptions from those before a description was written.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        life = await self._cache.life()
        upto, _ = await self._read_cached([])
        return Edition(life, upto)

    async def changes(self, since: int, upto: int) -> dict[str, EntityDescription | None]:
        """Return the entities whose descriptions were written between two editions, by name in lower case; None: deleted.

        Args:
            since: The first offset of the topic that counts.
            upto: The first offset that counts no more.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        changes: dict[str, EntityDescription | None] = {}
        async for _, records in self._topic.batches(since):
            for record in records:
                name, text = (as_bytes(record.key()) or b"").decode(), as_bytes(record.value())
                if name != NAMESPACE and place_of(record)[2] < upto:
                    changes[name] = None if text is None else read_description(text.decode())
        return changes

    async def namespace(self) -> NamespaceDescription | None:
        """Return the namespace's own description, or None if it does not exist yet.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        text = await self._text_of(NAMESPACE)
        return None if text is None else NamespaceDescription.model_validate_json(text)

    async def put_namespace(self, description: NamespaceDescription) -> None:
        """Write the namespace's own description; it is durable when this returns.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        await self._write(NAMESPACE, description.model_dump_json())

    async def all(self) -> list[EntityDescription]:
        """Return the descriptions of all entities, sorted by name: a subscription's comes after its topic's.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        upto, texts = await self._cache.all()
        self._check_format(texts.get(NAMESPACE))
        if not self._is_known(upto):
            texts = await self._load()
        return [read_description(texts[name]) for name in sorted(texts.keys() - {NAMESPACE})]

    async def beginning_with(self, text: str) -> list[EntityDescription]:
        """Return the descriptions of entities whose names begin with a text, sorted by name; the others cost nothing.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        found = await self._cache.find(text.lower())
        self._check_format(found.own)
        texts = found.texts
        if not self._is_known(found.upto):
            every = await self._load()
            texts = [every[name] for name in sorted(every) if name.startswith(text.lower())]
        return list(map(_read, texts))

    async def reserve(self, name: str, token: str, *, partitioned: bool) -> tuple[int, int]:
        """Reserve room in the namespace for a queue or topic that is to be created, for a minute at the most.

        Args:
            name: The name.
            token: A text that names the creation.
            partitioned: Whether it is to be partitioned.

        Returns:
            The number of queues and topics without it, and of those that are partitioned; others for which room was reserved
            before count as well.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        key = name.lower()
        found = await self._cache.reserve(key, token, partitioned=partitioned, seconds=RESERVED_FOR)
        self._check_format(found.own)
        if not self._is_known(found.upto):
            await self._load()
            found = await self._cache.reserve(key, token, partitioned=partitioned, seconds=RESERVED_FOR)
        return found.entities, found.partitioned

    async def give_back(self, name: str, token: str, *, partitioned: bool) -> None:
        """Give back what was reserved; if Redis cannot be reached, it ends by itself."""
        with suppress(ServiceBusError):
            await self._cache.reserve(name.lower(), token, partitioned=partitioned, seconds=0)

    async def nearest(self, name: str) -> EntityDescription | None:
        """Return the description of the entity that is meant by a name; None if none is near, or there are very many.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        near = nearest_name(name, [known for known in await self._cache.names() if known != NAMESPACE])
        return None if near is None else await self.get(near)

    def lock_for_change(self, name: str) -> DescriptionLock:
        """Return a lock for changing an entity's description: one client at a time reads it and writes another.

        A client that enters the lock begins with all that the topic holds.

        Args:
            name: The entity's name.
        """
        return DescriptionLock(self, self._cache, name, self._turns)

    def is_changing(self, name: str) -> bool:
        """Return whether this client has the turn to change an entity's description."""
        return self._turns[name.lower()] > 0

    async def put(self, description: EntityDescription) -> None:
        """Write a description; it is durable when this returns.

        Raises:
            ServiceBusQuotaExceededError: The description is too large.
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        name, text = description.name.lower(), description.to_text()
        size = len(text.encode())
        if size > LARGEST:
            raise ServiceBusQuotaExceededError(
                f"the description of {description.name!r} would have {size:,} bytes, and may have {LARGEST:,}: use fewer or "
                "shorter settings"
            )
        await self._write(name, text)

    async def remove(self, name: str) -> None:
        """Delete a description.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        await self._write(name.lower(), None)

    async def _write(self, name: str, text: str | None) -> None:
        record: dict[str | None, bytes | None] = {name: None if text is None else text.encode()}
        (offset,) = await self._topic.store(f"the description of {name!r}", record, timeout=60.0)
        if offset == UNKNOWN_OFFSET:
            await self._load()
        else:
            self._upto = max(self._upto, offset + 1)
            await self._cache.keep({name: DescriptionRecord(offset, text)})

    async def _text_of(self, name: str) -> str | None:
        upto, (text,) = await self._read_cached([name])
        return text if self._is_known(upto) else (await self._load()).get(name)

    async def _read_cached(self, names: Sequence[str]) -> tuple[int, list[str | None]]:
        """Return descriptions from the cache, once the namespace's own, which comes with them, names a readable format."""
        upto, (own, *texts) = await self._cache.get_many([NAMESPACE, *names])
        self._check_format(own)
        return upto, texts

    def _check_format(self, own: str | None) -> None:
        """Check that this version reads the format that the namespace's own description names, and note what it writes.

        Raises:
            NamespaceFormatError: It does not.
        """
        reason = unreadable(self._namespace, own)
        if reason is not None:
            raise NamespaceFormatError(reason)
        # Without it, the cache was emptied, and the topic is read next.
        if own is not None:
            self.written_format = written_format(own)

    def _is_known(self, upto: int) -> bool:
        """Note how far the cache is complete; return whether it is no older than what this client has seen of the topic."""
        known = upto >= self._upto
        self._upto = max(self._upto, upto)
        return known

    async def _load(self) -> dict[str, str]:
        """Read the topic to its end, fill the cache, and return the descriptions by name."""
        described: dict[str, DescriptionRecord] = {}
        life = await self._cache.life()
        records, end = await self._topic.read()
        for record in records:
            name, text = (as_bytes(record.key()) or b"").decode(), as_bytes(record.value())
            described[name] = DescriptionRecord(place_of(record)[2], None if text is None else text.decode())
        self._check_format(described[NAMESPACE].text if NAMESPACE in described else None)
        # A broker that lags behind may not know the topic yet, so a cache of no records never counts as complete.
        await self._cache.keep(described, all_of=life if end > 0 else "", upto=end)
        self._upto = max(self._upto, end)
        return {name: text for name, (_, text) in described.items() if text is not None}


class DescriptionLock:
    """A client's turn to change an entity's description.

    Args:
        descriptions: The namespace's descriptions.
        cache: The cache, which holds the turns.
        name: The entity's name.
        turns: How many turns this client has, by name.
    """

    def __init__(
        self, descriptions: EntityDescriptions, cache: DescriptionCache, name: str, turns: Counter[str]
    ) -> None:
        self._descriptions = descriptions
        self._cache = cache
        self._name = name.lower()
        self._turns = turns
        self._token = uuid.uuid4().hex

    async def __aenter__(self) -> DescriptionLock:
        deadline = time.monotonic() + TURN_PATIENCE
        while not await self._cache.take_turn(self._name, self._token, TURN):
            if time.monotonic() >= deadline:
                raise OperationTimeoutError(
                    f"another client has been changing {self._name!r} for {TURN_PATIENCE:g} s: nothing was changed; try again"
                )
            await sleep(0.02)
        try:
            await self._descriptions.catch_up()
        except BaseException:
            await self._end()
            raise
        self._turns[self._name] += 1
        return self

    async def check(self) -> None:
        """Check that this client still has the turn, right before a step that no other client may take at the same time.

        Raises:
            OperationTimeoutError: The change took too long, or Redis lost the turn.
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        if not await self._cache.has_turn(self._name, self._token):
            raise OperationTimeoutError(
                f"to change {self._name!r} took longer than {TURN} s, or Redis lost everything during the change: "
                "look what it is like, and try again"
            )

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._turns[self._name] -= 1
        await self._end()

    async def _end(self) -> None:
        with suppress(ServiceBusError):
            await self._cache.end_turn(self._name, self._token)
