"""Names of namespaces and entities, and the names of their topics in Kafka and their keys in Redis.

Service Bus names are case-insensitive and may contain ``/``; Kafka's are case-sensitive, contain only ``[a-zA-Z0-9._-]``,
have at most 249 characters, and ``.`` and ``_`` collide in its metrics. A reversible encoding turns the former into the
latter: names are lower-cased, so every upper-case letter is free to mark an escape, ``_`` never appears, and plain names stay
readable (``flights`` in the namespace ``kafkabus`` is the topic ``kafkabus.flights``, its dead-letter queue
``kafkabus.flights.DLQ``, its transfer dead-letter queue ``kafkabus.flights.TDLQ``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

MAX_ENTITY_NAME = 260
"""The maximum length of an entity name in Service Bus, in characters."""

MAX_KAFKA_NAME = 249
"""The maximum length of a topic name in Kafka, in characters."""

SUBSCRIPTIONS = "/Subscriptions/"
"""The separator between a topic's name and a subscription's in a path."""
MAX_SUBSCRIPTION_NAME = 50
"""The maximum length of the name of a subscription, and of a rule, in Service Bus, in characters."""
UNMATCHED = "~unmatched"
"""The name of the subscription by which upkeep reads a topic for messages that no other one wants; lists do not show it."""

_ENTITY = re.compile(r"[a-z0-9](?:[a-z0-9._/-]*[a-z0-9])?\Z")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\Z")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
_ESCAPE = re.compile(r"X([0-9A-F]{2})")


class NameRuleError(ValueError):
    """A name breaks a rule; the error names the value, the rule and the remedy."""


class SubQueue(str, Enum):
    """One of an entity's queues; values as in ``azure.servicebus``."""

    NONE = ""
    DEAD_LETTER = "deadletter"
    TRANSFER_DEAD_LETTER = "transferdeadletter"


_PATH_SUFFIXES = {
    SubQueue.NONE: "",
    SubQueue.DEAD_LETTER: "/$deadletterqueue",
    SubQueue.TRANSFER_DEAD_LETTER: "/$transfer/$deadletterqueue",
}
"""Suffixes of an entity's name in the paths of its queues; no name contains ``$``."""
_TOPIC_SUFFIXES = {SubQueue.NONE: "", SubQueue.DEAD_LETTER: ".DLQ", SubQueue.TRANSFER_DEAD_LETTER: ".TDLQ"}
"""Suffixes of an entity's name in the topics of its queues; no encoded name ends in upper case."""


@dataclass(frozen=True, slots=True)
class EntityPath:
    """The path of a queue of messages: an entity, or one of its two dead-letter queues.

    Attributes:
        name: The entity's name as the user wrote it; compare paths by ``key``.
        sub_queue: ``NONE`` for the entity itself.
    """

    name: str
    sub_queue: SubQueue = SubQueue.NONE

    @property
    def key(self) -> str:
        """The name to compare paths by: in lower case, with the sub-queue's suffix."""
        return str(self).lower()

    @property
    def dead_letter(self) -> EntityPath:
        """The entity's dead-letter queue."""
        return EntityPath(self.name, SubQueue.DEAD_LETTER)

    @property
    def transfer_dead_letter(self) -> EntityPath:
        """The entity's transfer dead-letter queue, for messages that could not be forwarded."""
        return EntityPath(self.name, SubQueue.TRANSFER_DEAD_LETTER)

    @property
    def log(self) -> EntityPath:
        """The entity that owns the log: a subscription's log is its topic's."""
        names = None if self.is_dead_letter else split_subscription(self.name)
        return self if names is None else EntityPath(names[0])

    @property
    def all(self) -> tuple[EntityPath, EntityPath, EntityPath]:
        """The entity and both its dead-letter queues."""
        return EntityPath(self.name), self.dead_letter, self.transfer_dead_letter

    @property
    def is_dead_letter(self) -> bool:
        """Whether this is a dead-letter queue of either kind, which has no time to live and no dead-letter queue."""
        return self.sub_queue is not SubQueue.NONE

    @classmethod
    def parse(cls, text: str) -> EntityPath:
        """Return the path that ``str`` gave as text."""
        name, dollar, _ = text.partition("/$")
        suffix = text[len(name) :].lower() if dollar else ""
        return cls(name, next(sub_queue for sub_queue, known in _PATH_SUFFIXES.items() if known == suffix))

    def __str__(self) -> str:
        return f"{self.name}{_PATH_SUFFIXES[self.sub_queue]}"


def check_namespace(name: str) -> str:
    """Return a namespace's name in lower case.

    Raises:
        NameRuleError: The name does not consist of letters, digits and inner hyphens, or is longer than 50 characters.
    """
    lowered = name.lower()
    if not _NAMESPACE.match(lowered) or len(lowered) > 50:
        raise NameRuleError(
            f"namespace name {name!r}: use 1 to 50 letters, digits and hyphens, a letter or digit first and last"
        )
    return lowered


def check_entity(name: str) -> str:
    """Return an entity's name unchanged if Service Bus would accept it.

    Raises:
        NameRuleError: The name is empty, longer than 260 characters, or contains characters that are not allowed.
        TypeError: The name is not a ``str``.
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
            f"entity name {name!r}: {SUBSCRIPTIONS!r} separates a topic's name from a subscription's; leave it out"
        )
    if not _ENTITY.match(lowered) or "//" in lowered:
        raise NameRuleError(
            f"entity name {name!r}: use letters, digits, '.', '-', '_' and single '/' between, "
            "a letter or digit first and last"
        )
    return name


def check_part(what: str, name: str) -> str:
    """Return the name of a subscription or a rule unchanged if Service Bus would accept it.

    Args:
        what: The kind of name, as errors say it: ``subscription`` or ``rule``.
        name: The name.

    Raises:
        NameRuleError: The name is empty, longer than 50 characters, or contains characters that are not allowed.
        TypeError: The name is not a ``str``.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what} name is {type(name).__name__}: use str")
    if what == "subscription" and name.lower() == UNMATCHED:
        return name
    plain = name[1:] if what == "rule" and name.startswith("$") else name
    if len(name) > MAX_SUBSCRIPTION_NAME or "/" in name or not _ENTITY.match(plain.lower()):
        raise NameRuleError(
            f"{what} name {name!r}: use 1 to {MAX_SUBSCRIPTION_NAME} letters, digits, '.', '-' and '_', "
            "a letter or digit first and last"
        )
    return name


def subscription_name(topic: str, subscription: str) -> str:
    """Return the name of a subscription as an entity.

    Raises:
        NameRuleError: One of the names breaks a rule.
        TypeError: One of the names is not a ``str``.
    """
    return f"{check_entity(topic)}{SUBSCRIPTIONS}{check_part('subscription', subscription)}"


def split_subscription(name: str) -> tuple[str, str] | None:
    """Split a subscription's entity name into topic and subscription; return None for the name of another entity."""
    match = re.fullmatch(f"(.+){SUBSCRIPTIONS}([^/]+)", name, re.IGNORECASE)
    return None if match is None else (match[1], match[2])


def check_path(name: str) -> str:
    """Return the path of a queue of messages, as ``EntityPath.parse`` reads it.

    Args:
        name: The name of an entity, ``TOPIC/Subscriptions/SUBSCRIPTION``, or one of these with ``/$DeadLetterQueue`` or
            ``/$Transfer/$DeadLetterQueue``, in any case.

    Raises:
        NameRuleError: A part of the name breaks a rule.
        TypeError: The name is not a ``str``.
    """
    if not isinstance(name, str):
        raise TypeError(f"entity name is {type(name).__name__}: use str")
    own, dollar, _ = name.partition("/$")
    suffix = name[len(own) :].lower() if dollar else ""
    if suffix not in _PATH_SUFFIXES.values():
        raise NameRuleError(
            f"entity name {name!r}: a dead-letter queue is NAME/$DeadLetterQueue or NAME/$Transfer/$DeadLetterQueue"
        )
    names = split_subscription(own)
    return (check_entity(own) if names is None else subscription_name(*names)) + suffix


def topic_name(namespace: str, path: EntityPath) -> str:
    """Return the Kafka topic that holds an entity's messages.

    Raises:
        NameRuleError: The encoded name, or that of one of the dead-letter queues, is longer than Kafka allows.
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
    """Return the name of the namespace's compacted topic for a purpose, such as ``DESCRIPTIONS``.

    It never equals an entity's topic: the names of entities are encoded from lower case, so no entity's topic has an upper-case
    word after the first dot.
    """
    return f"{_encode(namespace)}.{purpose.upper()}"


def owned_name(namespace: str, *words: str) -> str:
    """Return the name of a consumer group or a transactional id; it begins with the namespace, as topics do, for ACLs."""
    return ".".join([_encode(namespace), *words])


def parse_topic(topic: str) -> tuple[str, EntityPath] | None:
    """Return the namespace and the entity that a topic belongs to, or None if the topic belongs to no entity."""
    namespace, dot, rest = topic.partition(".")
    if not dot or not rest:
        return None
    sub_queue = SubQueue.NONE
    for candidate, suffix in _TOPIC_SUFFIXES.items():
        if suffix and rest.endswith(suffix):
            rest, sub_queue = rest[: -len(suffix)], candidate
    name = _decode(rest)
    decoded = _decode(namespace)
    if name is None or decoded is None:
        return None
    return decoded, EntityPath(name, sub_queue)


def ledger_tag(namespace: str, path: EntityPath, generation: str, partition: int) -> str:
    """Return the Redis hash tag that all ledgers of one log share, braces included.

    After a topic was deleted and created again, or its log was truncated, the entity has a new generation and other keys.
    """
    return f"{{{namespace}/{path.key}/{generation}/{partition}}}"


def _encode(name: str) -> str:
    return "".join(c if c in _PLAIN else "".join(f"X{b:02X}" for b in c.encode()) for c in name)


def _decode(encoded: str) -> str | None:
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), encoded)
    return plain if plain and _encode(plain) == encoded else None
