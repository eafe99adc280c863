"""Names of namespaces and entities, and what they are called in Kafka and in Redis.

Service Bus names are case-insensitive and may hold ``/``; Kafka's are case-sensitive, hold only ``[a-zA-Z0-9._-]`` and
at most 249 characters, and ``.`` and ``_`` collide in its metrics. One reversible encoding bridges them: names are
lower-cased, so every upper-case letter is free to mark an escape, ``_`` never appears, and plain names stay readable
(``flights`` in the namespace ``kafkabus`` is the topic ``kafkabus.flights``, its dead-letter queue
``kafkabus.flights.DLQ``, its transfer dead-letter queue ``kafkabus.flights.TDLQ``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

MAX_ENTITY_NAME = 260
"""Longest entity name that Service Bus takes, in characters."""

MAX_KAFKA_NAME = 249
"""Longest topic name that Kafka takes, in characters."""

SUBSCRIPTIONS = "/Subscriptions/"
"""What stands between a topic's name and a subscription's in a path."""
MAX_SUBSCRIPTION_NAME = 50
"""Longest name of a subscription, and of a rule, that Service Bus takes, in characters."""

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
    TRANSFER_DEAD_LETTER = "transferdeadletter"


_PATH_SUFFIXES = {
    SubQueue.NONE: "",
    SubQueue.DEAD_LETTER: "/$deadletterqueue",
    SubQueue.TRANSFER_DEAD_LETTER: "/$transfer/$deadletterqueue",
}
"""What follows an entity's name in the paths of its queues; no name holds ``$``."""
_TOPIC_SUFFIXES = {SubQueue.NONE: "", SubQueue.DEAD_LETTER: ".DLQ", SubQueue.TRANSFER_DEAD_LETTER: ".TDLQ"}
"""What follows it in their topics; no encoded name ends in upper case."""


@dataclass(frozen=True, slots=True)
class EntityPath:
    """One queue that holds messages: an entity, or one of its two dead-letter queues.

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
    def transfer_dead_letter(self) -> EntityPath:
        """The entity's queue of messages that could not be forwarded."""
        return EntityPath(self.name, SubQueue.TRANSFER_DEAD_LETTER)

    @property
    def all(self) -> tuple[EntityPath, EntityPath, EntityPath]:
        """The entity and both its dead-letter queues."""
        return EntityPath(self.name), self.dead_letter, self.transfer_dead_letter

    @property
    def is_dead_letter(self) -> bool:
        """Whether this is a dead-letter queue of either kind, which has neither time to live nor one of its own."""
        return self.sub_queue is not SubQueue.NONE

    @classmethod
    def parse(cls, text: str) -> EntityPath:
        """The path that ``str`` gave."""
        name, dollar, _ = text.partition("/$")
        suffix = text[len(name) :].lower() if dollar else ""
        return cls(name, next(sub_queue for sub_queue, one in _PATH_SUFFIXES.items() if one == suffix))

    def __str__(self) -> str:
        return f"{self.name}{_PATH_SUFFIXES[self.sub_queue]}"


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
    if SUBSCRIPTIONS.lower() in lowered:
        raise NameRuleError(
            f"entity name {name!r}: {SUBSCRIPTIONS!r} stands between a topic's name and a subscription's; leave it out"
        )
    if not _ENTITY.match(lowered) or "//" in lowered:
        raise NameRuleError(
            f"entity name {name!r}: use letters, digits, '.', '-', '_' and single '/' between, "
            "a letter or digit first and last"
        )
    return name


def check_part(what: str, name: str) -> str:
    """Return a subscription's or a rule's name unchanged where Service Bus would take it.

    Args:
        what: Which of the two it is.
        name: The name.

    Raises:
        NameRuleError: It is empty, longer than 50 characters, or holds what such a name may not hold.
        TypeError: It is no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what} name is {type(name).__name__}: use str")
    plain = name[1:] if what == "rule" and name.startswith("$") else name
    if len(name) > MAX_SUBSCRIPTION_NAME or "/" in name or not _ENTITY.match(plain.lower()):
        raise NameRuleError(
            f"{what} name {name!r}: use 1 to {MAX_SUBSCRIPTION_NAME} letters, digits, '.', '-' and '_', "
            "a letter or digit first and last"
        )
    return name


def subscription_name(topic: str, subscription: str) -> str:
    """The name of a subscription as an entity.

    Raises:
        NameRuleError: One of the names breaks a rule.
        TypeError: One is no text.
    """
    return f"{check_entity(topic)}{SUBSCRIPTIONS}{check_part('subscription', subscription)}"


def split_subscription(name: str) -> tuple[str, str] | None:
    """Topic and subscription of a subscription's name as an entity; None where it is another entity's."""
    match = re.fullmatch(f"(.+){SUBSCRIPTIONS}([^/]+)", name, re.IGNORECASE)
    return None if match is None else (match[1], match[2])


def topic_name(namespace: str, path: EntityPath) -> str:
    """The Kafka topic that holds an entity's messages.

    Raises:
        NameRuleError: The encoded name, or that of one of its dead-letter queues, is longer than Kafka takes.
    """
    topic = f"{_encode(namespace)}.{_encode(path.name.lower())}"
    longest = len(topic) + max(map(len, _TOPIC_SUFFIXES.values()))
    if longest > MAX_KAFKA_NAME:
        raise NameRuleError(
            f"entity name {path.name!r}: its topics would be named {topic[:40]}…, with up to {longest} characters, "
            f"and Kafka takes {MAX_KAFKA_NAME}; shorten the name (each of '_' and '/' counts 3)"
        )
    return topic + _TOPIC_SUFFIXES[path.sub_queue]


def compacted_topic_name(namespace: str, purpose: str) -> str:
    """The namespace's compacted_topic topic for a purpose, such as ``DESCRIPTIONS``; never an entity's topic.

    Entities' names are encoded from lower case, so an upper-case word after the first dot is free.
    """
    return f"{_encode(namespace)}.{purpose.upper()}"


def parse_topic(topic: str) -> tuple[str, EntityPath] | None:
    """The namespace and entity that a topic belongs to, or None where it is no entity's topic."""
    namespace, dot, rest = topic.partition(".")
    if not dot or not rest:
        return None
    sub_queue = SubQueue.NONE
    for one, suffix in _TOPIC_SUFFIXES.items():
        if suffix and rest.endswith(suffix):
            rest, sub_queue = rest[: -len(suffix)], one
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
