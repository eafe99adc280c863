"""The resources of the administration, by their paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAMESPACE_INFO = "$namespaceinfo"
LISTS = "$resources/"
SUBSCRIPTIONS = "subscriptions"
RULES = "rules"


@dataclass(frozen=True, slots=True)
class Namespace:
    """The namespace."""


@dataclass(frozen=True, slots=True)
class Queues:
    """All queues."""


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A queue or a topic.

    Attributes:
        name: Its name.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """All subscriptions of a topic.

    Attributes:
        topic: The name of the topic.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription.

    Attributes:
        topic: The name of the topic.
        name: Its own name.
    """

    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a subscription.

    Attributes:
        topic: The name of the topic.
        subscription: The name of the subscription.
    """

    topic: str
    subscription: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        topic: The name of the topic.
        subscription: The name of the subscription.
        name: Its name.
    """

    topic: str
    subscription: str
    name: str


Resource = Namespace | Queues | Topics | Entity | Subscriptions | Subscription | Rules | Rule


_LISTED: Mapping[str, Queues | Topics] = {"queues": Queues(), "topics": Topics()}


def resource_at(path: str) -> Resource | None:  # noqa: PLR0911 - a case each
    """Return the resource at a path; None if there is none.

    Args:
        path: The path, decoded. Words between names are in any case; the names of entities may contain ``/``.
    """
    path = path.strip("/")
    if path.lower() == NAMESPACE_INFO:
        return Namespace()
    if path.lower().startswith(LISTS):
        return _LISTED.get(path[len(LISTS) :].lower())
    match _words(path):
        case [*topic, word] if topic and word.lower() == SUBSCRIPTIONS:
            return Subscriptions("/".join(topic))
        case [*topic, word, name] if topic and word.lower() == SUBSCRIPTIONS:
            return Subscription("/".join(topic), name)
        case [*topic, word, name, rules] if topic and (word.lower(), rules.lower()) == (SUBSCRIPTIONS, RULES):
            return Rules("/".join(topic), name)
        case [*topic, word, name, rules, rule] if topic and (word.lower(), rules.lower()) == (SUBSCRIPTIONS, RULES):
            return Rule("/".join(topic), name, rule)
        case []:
            return None
        case names:
            return Entity("/".join(names))


def path_of(resource: Resource) -> str:  # noqa: PLR0911 - a case each
    """Return the path of a resource, with the words between names as JavaScript's client looks for them."""
    match resource:
        case Namespace():
            return NAMESPACE_INFO
        case Queues():
            return "$Resources/Queues"
        case Topics():
            return "$Resources/Topics"
        case Entity(name):
            return name
        case Subscriptions(topic):
            return f"{topic}/Subscriptions"
        case Subscription(topic, name):
            return f"{topic}/Subscriptions/{name}"
        case Rules(topic, subscription):
            return f"{topic}/Subscriptions/{subscription}/Rules"
        case Rule(topic, subscription, name):
            return f"{topic}/Subscriptions/{subscription}/Rules/{name}"


def _words(path: str) -> list[str]:
    return path.split("/") if path else []
