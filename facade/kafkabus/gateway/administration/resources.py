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
class TopicList:
    """All topics."""


@dataclass(frozen=True, slots=True)
class EntityResource:
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
class SubscriptionResource:
    """A subscription.

    Attributes:
        topic: The name of the topic.
        name: Its own name.
    """

    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class RuleList:
    """All rules of a subscription.

    Attributes:
        topic: The name of the topic.
        subscription: The name of the subscription.
    """

    topic: str
    subscription: str


@dataclass(frozen=True, slots=True)
class RuleResource:
    """A rule.

    Attributes:
        topic: The name of the topic.
        subscription: The name of the subscription.
        name: Its name.
    """

    topic: str
    subscription: str
    name: str


Resource = (
    Namespace | Queues | TopicList | EntityResource | Subscriptions | SubscriptionResource | RuleList | RuleResource
)


_LISTED: Mapping[str, Queues | TopicList] = {"queues": Queues(), "topics": TopicList()}


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
            return SubscriptionResource("/".join(topic), name)
        case [*topic, word, name, rules] if topic and (word.lower(), rules.lower()) == (SUBSCRIPTIONS, RULES):
            return RuleList("/".join(topic), name)
        case [*topic, word, name, rules, rule] if topic and (word.lower(), rules.lower()) == (SUBSCRIPTIONS, RULES):
            return RuleResource("/".join(topic), name, rule)
        case []:
            return None
        case names:
            return EntityResource("/".join(names))


def path_of(resource: Resource) -> str:  # noqa: PLR0911 - a case each
    """Return the path of a resource, with the words between names as JavaScript's client looks for them."""
    match resource:
        case Namespace():
            return NAMESPACE_INFO
        case Queues():
            return "$Resources/Queues"
        case TopicList():
            return "$Resources/Topics"
        case EntityResource(name):
            return name
        case Subscriptions(topic):
            return f"{topic}/Subscriptions"
        case SubscriptionResource(topic, name):
            return f"{topic}/Subscriptions/{name}"
        case RuleList(topic, subscription):
            return f"{topic}/Subscriptions/{subscription}/Rules"
        case RuleResource(topic, subscription, name):
            return f"{topic}/Subscriptions/{subscription}/Rules/{name}"


def _words(path: str) -> list[str]:
    return path.split("/") if path else []
