# Generated from facade/kafkabus/_async/stores/entity_descriptions.py by tools/generate_blocking.py. Do not edit.
"""The descriptions of a namespace's entities: a compacted topic holds them, Redis caches them."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType

from kafkabus._core.exceptions import (
    NamespaceFormatError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from kafkabus._core.record import as_bytes, place_of
from kafkabus._kafka.delivery_reports import UNKNOWN_OFFSET
from kafkabus._sync.compat import sleep
from kafkabus._sync.kafka.compacted_topic import CompactedTopic
from kafkabus._sync.redis.connection import Described, DescriptionCache
from kafkabus_mapping.entities import EntityDescription, read_description
from kafkabus_mapping.formats import unreadable
from kafkabus_mapping.namespaces import NamespaceDescription

_NAMESPACE = "$namespace"
"""Name of the namespace's own description; no entity's name begins with a dollar sign."""
LARGEST = 1_950_000
"""The largest size of a description in bytes; a description is one record."""
TURN = 30
"""How long, in seconds, a client may take to change a description before another client may."""
TURN_PATIENCE = 60.0
"""How long, in seconds, a client waits for its turn."""


_read = lru_cache(maxsize=1024)(read_description)
"""Descriptions are read again and again, and seldom change."""


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
    """

    def __init__(self, namespace: str, compacted_topic: CompactedTopic, cache: DescriptionCache) -> None:
        self._namespace = namespace
        self._topic = compacted_topic
        self._cache = cache
        self._turns: Counter[str] = Counter()
        self._upto = 0

    def get(self, name: str) -> EntityDescription | None:
        """Return the description of an entity, or None if there is none.

        Raises:
            NamespaceFormatError: The namespace is stored in a format that this version does not read.
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        (description,) = self.several([name])
        return description

    def several(self, names: Sequence[str]) -> list[EntityDescription | None]:
        """Return the descriptions of several entities; see ``get``.

        Raises:
            NamespaceFormatError: The namespace is stored in a format that this version does not read.
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        wanted = [name.lower() for name in names]
        upto, texts = self._cached(wanted)
        if not self._is_known(upto):
            texts = list(map((self._load()).get, wanted))
        return [None if text is None else _read(text) for text in texts]

    def catch_up(self) -> None:
        """Bring the cache up to the topic's current end.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        # In this order: records that other clients write meanwhile raise the end alone.
        upto, _ = self._cached([])
        end = self._topic.end()
        if upto > end > 0:
            # This is another topic of the same name.
            self._cache.empty()
            self._upto = 0
        # A broker that lags behind may not know the topic yet.
        if not self._is_known(upto) or (upto != end and end > 0):
            self._load()

    def edition(self) -> str:
        """Return a text that is another one once a description was written; its first word, if Redis was emptied.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        life = self._cache.life()
        upto, _ = self._cached([])
        return f"{life} {upto}"

    def namespace(self) -> NamespaceDescription | None:
        """Return the namespace's own description, or None if it does not exist yet.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        text = self._text_of(_NAMESPACE)
        return None if text is None else NamespaceDescription.model_validate_json(text)

    def put_namespace(self, description: NamespaceDescription) -> None:
        """Write the namespace's own description; it is durable when this returns.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        self._write(_NAMESPACE, description.model_dump_json())

    def all(self, beginning: str = "") -> list[EntityDescription]:
        """Return the descriptions of all entities, sorted by name: a subscription's comes after its topic's.

        Args:
            beginning: Only entities whose names begin with this text.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        upto, texts = self._cache.all()
        self._check_format(texts.get(_NAMESPACE))
        if not self._is_known(upto):
            texts = self._load()
        wanted = sorted(name for name in texts if name != _NAMESPACE and name.startswith(beginning.lower()))
        return [read_description(texts[name]) for name in wanted]

    def changing(self, name: str) -> DescriptionLock:
        """Return a lock for changing an entity's description: one client at a time reads it and writes another.

        A client that enters the lock begins with all that the topic holds.

        Args:
            name: The entity's name.
        """
        return DescriptionLock(self, self._cache, name, self._turns)

    def is_changing(self, name: str) -> bool:
        """Return whether this client has the turn to change an entity's description."""
        return self._turns[name.lower()] > 0

    def put(self, description: EntityDescription) -> None:
        """Write a description; it is durable when this returns.

        Raises:
            ServiceBusQuotaExceededError: The description is too large.
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        name, text = description.name.lower(), description.model_dump_json()
        size = len(text.encode())
        if size > LARGEST:
            raise ServiceBusQuotaExceededError(
                f"the description of {description.name!r} would have {size:,} bytes, and may have {LARGEST:,}: use fewer or "
                "shorter settings"
            )
        self._write(name, text)

    def remove(self, name: str) -> None:
        """Delete a description.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        self._write(name.lower(), None)

    def _write(self, name: str, text: str | None) -> None:
        record: dict[str | None, bytes | None] = {name: None if text is None else text.encode()}
        (offset,) = self._topic.store(f"the description of {name!r}", record, timeout=60.0)
        if offset == UNKNOWN_OFFSET:
            self._load()
        else:
            self._upto = max(self._upto, offset + 1)
            self._cache.keep({name: Described(offset, text)})

    def _text_of(self, name: str) -> str | None:
        upto, (text,) = self._cached([name])
        return text if self._is_known(upto) else (self._load()).get(name)

    def _cached(self, names: Sequence[str]) -> tuple[int, list[str | None]]:
        """Return descriptions from the cache, once the namespace's own, which comes with them, names a readable format."""
        upto, (own, *texts) = self._cache.several([_NAMESPACE, *names])
        self._check_format(own)
        return upto, texts

    def _check_format(self, own: str | None) -> None:
        """Check that this version reads the format that the namespace's own description names.

        Raises:
            NamespaceFormatError: It does not.
        """
        reason = unreadable(self._namespace, own)
        if reason is not None:
            raise NamespaceFormatError(reason)

    def _is_known(self, upto: int) -> bool:
        """Note how far the cache is complete; return whether it is no older than what this client has seen of the topic."""
        known = upto >= self._upto
        self._upto = max(self._upto, upto)
        return known

    def _load(self) -> dict[str, str]:
        """Read the topic to its end, fill the cache, and return the descriptions by name."""
        described: dict[str, Described] = {}
        life = self._cache.life()
        records, end = self._topic.read()
        for record in records:
            name, text = (as_bytes(record.key()) or b"").decode(), as_bytes(record.value())
            described[name] = Described(place_of(record)[2], None if text is None else text.decode())
        self._check_format(described[_NAMESPACE].text if _NAMESPACE in described else None)
        # A broker that lags behind may not know the topic yet, so a cache of no records never counts as complete.
        self._cache.keep(described, all_of=life if end > 0 else "", upto=end)
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

    def __enter__(self) -> DescriptionLock:
        deadline = time.monotonic() + TURN_PATIENCE
        while not self._cache.take_turn(self._name, self._token, TURN):
            if time.monotonic() >= deadline:
                raise OperationTimeoutError(
                    f"another client has been changing {self._name!r} for {TURN_PATIENCE:g} s: nothing was changed; try again"
                )
            sleep(0.02)
        try:
            self._descriptions.catch_up()
        except BaseException:
            self._end()
            raise
        self._turns[self._name] += 1
        return self

    def check(self) -> None:
        """Check that this client still has the turn, right before a step that no other client may take meanwhile.

        Raises:
            OperationTimeoutError: The change took too long, or Redis lost the turn.
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        if not self._cache.has_turn(self._name, self._token):
            raise OperationTimeoutError(
                f"to change {self._name!r} took longer than {TURN} s, or Redis lost everything meanwhile: look what it is "
                "like, and try again"
            )

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._turns[self._name] -= 1
        self._end()

    def _end(self) -> None:
        with suppress(ServiceBusError):
            self._cache.end_turn(self._name, self._token)
