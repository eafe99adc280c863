"""Names of namespaces and entities, and what they are called in Kafka and in Redis.

Service Bus names are case-insensitive and may hold ``/``; Kafka's are case-sensitive, hold only ``[a-zA-Z0-9._-]`` and
at most 249 characters, and ``.`` and ``_`` collide in its metrics. One reversible encoding bridges them: names are
lower-cased, so every upper-case letter is free to mark an escape, ``_`` never appears, and plain names stay readable
(``flights`` in the namespace ``kafkabus`` is the topic ``kafkabus.flights``, its dead-letter queue
``kafkabus.flights.DLQ``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

MAX_ENTITY_NAME = 260
"""Longest entity name that Service Bus takes, in characters."""

MAX_KAFKA_NAME = 249
"""Longest topic name that Kafka takes, in characters."""

DEAD_LETTER_SUFFIX = "$deadletterqueue"

_ENTITY = re.compile(r"[a-z0-9](?:[a-z0-9._/-]*[a-z0-9])?\Z")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\Z")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
_ESCAPE = re.compile(r"X([0-9A-F]{2})")


class NameRuleError(ValueError):
    """A name breaks a rule; the message names the value, the rule and the remedy."""


class SubQueue(str, Enum):
    """Which queue of an entity is meant; values as in ``azure.servicebus``."""

    NONE = ""
    DEAD_LETTER = "deadletter"


@dataclass(frozen=True, slots=True)
class EntityPath:
    """One queue that holds messages: an entity, or its dead-letter sub-queue.

    Attributes:
        name: The entity's name as its users wrote it; compare by ``key``.
        sub_queue: ``NONE`` for the entity itself.
    """

    name: str
    sub_queue: SubQueue = SubQueue.NONE

    @property
    def key(self) -> str:
        """The name that decides equality: lower case, with the sub-queue's suffix."""
        return str(self).lower()

    @property
    def dead_letter(self) -> EntityPath:
        """The entity's dead-letter queue."""
        return EntityPath(self.name, SubQueue.DEAD_LETTER)

    @property
    def is_dead_letter(self) -> bool:
        """Whether this is a dead-letter queue, which has neither time to live nor one of its own."""
        return self.sub_queue is SubQueue.DEAD_LETTER

    def __str__(self) -> str:
        return f"{self.name}/{DEAD_LETTER_SUFFIX}" if self.is_dead_letter else self.name


def check_namespace(name: str) -> str:
    """Return a namespace's name in lower case.

    Raises:
        NameRuleError: It is not made of letters, digits and inner hyphens, or is longer than 50 characters.
    """
    lowered = name.lower()
    if not _NAMESPACE.match(lowered) or len(lowered) > 50:
        raise NameRuleError(
            f"namespace name {name!r}: use 1 to 50 letters, digits and hyphens, a letter or digit first and last"
        )
    return lowered


def check_entity(name: str) -> str:
    """Return an entity's name unchanged where Service Bus would take it.

    Raises:
        NameRuleError: It is empty, longer than 260 characters, or holds what a name may not hold.
        TypeError: It is no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"entity name is {type(name).__name__}: use str")
    lowered = name.lower()
    if len(name) > MAX_ENTITY_NAME:
        raise NameRuleError(
            f"entity name of {len(name)} characters ({name[:40]!r}…): the longest is {MAX_ENTITY_NAME}; shorten it"
        )
    if not _ENTITY.match(lowered) or "//" in lowered:
        raise NameRuleError(
            f"entity name {name!r}: use letters, digits, '.', '-', '_' and single '/' between, "
            "a letter or digit first and last"
        )
    return name


def topic_name(namespace: str, path: EntityPath) -> str:
    """The Kafka topic that holds an entity's messages.

    Raises:
        NameRuleError: The encoded name is longer than Kafka takes.
    """
    suffix = ".DLQ" if path.is_dead_letter else ""
    topic = f"{_encode(namespace)}.{_encode(path.name.lower())}{suffix}"
    if len(topic) > MAX_KAFKA_NAME:
        raise NameRuleError(
            f"entity name {path.name!r}: its topic would be named {topic[:40]}…, {len(topic)} characters, "
            f"and Kafka takes {MAX_KAFKA_NAME}; shorten the name (each of '_' and '/' counts 3)"
        )
    return topic


def companion_topic(namespace: str, purpose: str) -> str:
    """The namespace's companion topic for a purpose, such as ``DESCRIPTIONS``; never an entity's topic.

    Entities' names are encoded from lower case, so an upper-case word after the first dot is free.
    """
    return f"{_encode(namespace)}.{purpose.upper()}"


def parse_topic(topic: str) -> tuple[str, EntityPath] | None:
    """The namespace and entity that a topic belongs to, or None where it is no entity's topic."""
    namespace, dot, rest = topic.partition(".")
    if not dot or not rest:
        return None
    sub_queue = SubQueue.NONE
    if rest.endswith(".DLQ"):
        rest, sub_queue = rest[: -len(".DLQ")], SubQueue.DEAD_LETTER
    name = _decode(rest)
    decoded = _decode(namespace)
    if name is None or decoded is None:
        return None
    return decoded, EntityPath(name, sub_queue)


def ledger_tag(namespace: str, path: EntityPath, generation: str, partition: int) -> str:
    """The Redis hash tag that all ledgers over one log share, braces included.

    A topic that was deleted and created again, or whose log was truncated, is another generation of the entity and has
    other keys.
    """
    return f"{{{namespace}/{path.key}/{generation}/{partition}}}"


def _encode(name: str) -> str:
    return "".join(c if c in _PLAIN else "".join(f"X{b:02X}" for b in c.encode()) for c in name)


def _decode(encoded: str) -> str | None:
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), encoded)
    return plain if plain and _encode(plain) == encoded else None
