"""The checks that each program of this folder runs, and the entities that a check needs.

A check's entity has the check's name after the prefix of the program: ``go-send-one``. Some checks need a second one:
``go-NAME-2``.

``python -m tests.clients.entities CONNECTION_STRING PREFIX LANGUAGE`` creates all that a program needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from kafkabus.management import (
    CorrelationRuleFilter,
    EntityStatus,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)

LANGUAGES = ("python", "javascript", "go", "java")
"""The languages of Azure's SDKs, which have most of the checks."""
SHORT_LOCK_S = 5.0
"""The shortest lock that Service Bus knows, for checks in which a lock has to end."""
RENEWED_LOCK_S = 10.0
"""A short lock that a client on a busy machine renews in time."""


class Queue(NamedTuple):
    """A queue.

    Attributes:
        suffix: The end of its name, after prefix and check.
        lock_s: How long a lock lasts, in seconds.
        sessions: Whether its messages need a session id.
        max_delivery_count: After how many deliveries a message is dead-lettered.
        status: Whether it takes messages, and gives them.
    """

    suffix: str = ""
    lock_s: float = 60.0
    sessions: bool = False
    max_delivery_count: int = 10
    status: EntityStatus = EntityStatus.ACTIVE


class Rule(NamedTuple):
    """A rule of a subscription, which takes the place of the rule that matches everything.

    Attributes:
        name: Its name.
        filter: The messages that it matches.
        action: The statements that it applies to them, None without any.
    """

    name: str
    filter: SqlRuleFilter | CorrelationRuleFilter
    action: SqlRuleAction | None = None


class Subscription(NamedTuple):
    """A subscription.

    Attributes:
        name: Its name.
        sessions: Whether its messages need a session id.
        rules: Its rules; empty for the rule that matches everything.
    """

    name: str
    sessions: bool = False
    rules: tuple[Rule, ...] = ()


class Topic(NamedTuple):
    """A topic, with its subscriptions."""

    subscriptions: tuple[Subscription, ...]
    suffix: str = ""


class Check(NamedTuple):
    """A check.

    Attributes:
        entities: The queues and topics that it needs.
        languages: The programs that have it: those whose SDK can do it.
    """

    entities: tuple[Queue | Topic, ...] = (Queue(),)
    languages: tuple[str, ...] = LANGUAGES


_PLAIN = Queue()
_SESSIONS = (Queue(sessions=True),)
_SHORT = (Queue(lock_s=SHORT_LOCK_S),)
_TWO = (Queue(), Queue("-2"))
_SHORT_TWO = (Queue(lock_s=SHORT_LOCK_S), Queue("-2"))
_RENEWED = (Queue(lock_s=RENEWED_LOCK_S),)
_ALL = Topic((Subscription("all"),))
_JMS = ("jms",)
_JAVA = ("jms", "java")
_RHEA = ("rhea",)

CHECKS = {
    "send-one": Check(),
    "send-list": Check(),
    "send-batch": Check(),
    "send-1mb": Check(),
    "send-too-large": Check(),
    "send-scheduled": Check(),
    "receive-complete": Check(),
    "receive-empty": Check(),
    "receive-and-delete": Check(),
    # JavaScript and Go have no setting for it.
    "receive-prefetch": Check(languages=("python", "java")),
    "abandon": Check(),
    "abandon-properties": Check(languages=("javascript", "go", "java")),
    "abandon-delay": Check(languages=("javascript", "go", "java")),
    "defer-properties": Check(languages=("javascript", "go", "java")),
    "max-delivery-count": Check((Queue(max_delivery_count=2),)),
    "defer": Check(),
    "dead-letter": Check(),
    "peek": Check(),
    "schedule": Check(),
    "schedule-cancel": Check(),
    "renew-lock": Check((Queue(lock_s=RENEWED_LOCK_S),)),
    "lock-lost": Check(_SHORT),
    "processor": Check(languages=("javascript", "java")),
    "unknown-queue": Check(()),
    "unknown-subscription": Check((_ALL,)),
    "session-state": Check(_SESSIONS),
    "session-next": Check(_SESSIONS),
    "session-none": Check(_SESSIONS),
    "session-two": Check(_SESSIONS),
    "session-held": Check(_SESSIONS),
    "session-defer": Check(_SESSIONS),
    "session-peek": Check(_SESSIONS),
    "session-renew-lock": Check((Queue(sessions=True, lock_s=RENEWED_LOCK_S),)),
    "session-lock-lost": Check((Queue(sessions=True, lock_s=SHORT_LOCK_S),)),
    "session-required": Check(_SESSIONS),
    "session-unsupported": Check(),
    "session-missing": Check(_SESSIONS),
    # JavaScript has no processor of sessions, which would take one after the other.
    "session-processor": Check(_SESSIONS, ("java",)),
    "session-list": Check(_SESSIONS, ("python", "go")),
    "topic-all": Check((Topic((Subscription("first"), Subscription("second"))),)),
    "topic-rules": Check(
        (
            Topic(
                (
                    Subscription("all"),
                    Subscription(
                        "sql",
                        rules=(Rule("red", SqlRuleFilter("colour = 'red'"), SqlRuleAction("SET mixed = 'purple'")),),
                    ),
                    Subscription("correlation", rules=(Rule("blue", CorrelationRuleFilter(label="blue")),)),
                )
            ),
        )
    ),
    "topic-dead-letter": Check((_ALL,)),
    "topic-session": Check((Topic((Subscription("all", sessions=True),)),)),
    "rule-manager": Check((_ALL,), ("javascript", "java")),
    "transaction-commit": Check(languages=("java",)),
    "transaction-rollback": Check(_SHORT, ("java",)),
    "transaction-two-entities": Check(_TWO, ("java",)),
    "transaction-two-entities-rollback": Check(_SHORT_TWO, ("java",)),
    "transacted-slow-sends": Check(languages=_JMS),
    "transacted-quick-sends": Check(languages=_JMS),
    "transacted-many-sends": Check(languages=_JMS),
    "transacted-forwarding": Check((Queue(lock_s=RENEWED_LOCK_S), Queue("-2")), _JAVA),
    "transacted-accepts": Check(_SHORT, _JMS),
    "transacted-slow-accepts": Check(_RENEWED, _JMS),
    "transacted-many-accepts": Check(_RENEWED, _JMS),
    "transacted-rollback": Check(languages=_JMS),
    "transacted-rollback-sends": Check(languages=_JMS),
    "transacted-close": Check(_SHORT_TWO, _JAVA),
    "spring-listener": Check(_RENEWED, _JMS),
    "spring-listener-retry": Check(_RENEWED, _JMS),
    "refused-key-missing": Check(_SHORT_TWO, _JAVA),
    "refused-keys-differ": Check(_SHORT_TWO, _JAVA),
    "refused-too-large": Check(_SHORT_TWO, _JAVA),
    "refused-session-missing": Check((Queue(lock_s=SHORT_LOCK_S), Queue("-2", sessions=True)), _JAVA),
    "refused-one-of-many": Check(_SHORT_TWO, _JAVA),
    "refused-disabled": Check((Queue(lock_s=SHORT_LOCK_S), Queue("-2", status=EntityStatus.SEND_DISABLED)), _JAVA),
    "refused-unknown": Check(_SHORT, _JAVA),
    "refused-lock-lost": Check(_SHORT_TWO, _JAVA),
    "refused-session-lock-lost": Check((Queue(sessions=True, lock_s=SHORT_LOCK_S),), ("java",)),
    "browse": Check(languages=("jms", "rhea")),
    "browse-selector": Check(languages=_JMS),
    "selector": Check(languages=("jms", "rhea")),
    "no-local": Check(languages=_JMS),
    "durable-subscriber": Check((_ALL,), _JMS),
    "temporary-queue": Check((), _JMS),
    "receive-briefly": Check(languages=_JMS),
    "send-via": Check(_TWO, _RHEA),
    "filter-unknown": Check(languages=_RHEA),
    "filter-answer": Check((Queue(), Queue("-2", sessions=True)), _RHEA),
    "receive-and-delete-stopped": Check(languages=_RHEA),
    "credit-huge": Check(languages=_RHEA),
    "lock-token": Check(languages=_RHEA),
    "odd-messages": Check(languages=_RHEA),
}
"""All checks, by name."""


def checks_of(language: str) -> list[str]:
    """Return the names of a language's checks."""
    return [name for name, check in CHECKS.items() if language in check.languages]


def create(administration: ServiceBusAdministrationClient, prefix: str, names: Iterable[str]) -> None:
    """Create the entities that checks need.

    Args:
        administration: The client that creates them.
        prefix: The beginning of their names, such as ``go-``.
        names: The names of the checks.
    """
    for name in names:
        for entity in CHECKS[name].entities:
            path = f"{prefix}{name}{entity.suffix}"
            if isinstance(entity, Queue):
                create_queue(administration, path, entity)
            else:
                _create_topic(administration, path, entity)


def create_queue(administration: ServiceBusAdministrationClient, name: str, queue: Queue = _PLAIN) -> None:
    """Create a partitioned queue.

    Args:
        administration: The client that creates it.
        name: Its whole name.
        queue: Its settings.
    """
    administration.create_queue(
        name,
        enable_partitioning=True,
        lock_duration=timedelta(seconds=queue.lock_s),
        requires_session=queue.sessions,
        max_delivery_count=queue.max_delivery_count,
        status=queue.status,
    )


def _create_topic(administration: ServiceBusAdministrationClient, path: str, topic: Topic) -> None:
    administration.create_topic(path, enable_partitioning=True)
    for subscription in topic.subscriptions:
        administration.create_subscription(path, subscription.name, requires_session=subscription.sessions)
        for rule in subscription.rules:
            administration.create_rule(path, subscription.name, rule.name, filter=rule.filter, action=rule.action)
        if subscription.rules:
            administration.delete_rule(path, subscription.name, "$Default")


def main(arguments: Sequence[str], say: Callable[[str], object] = sys.stdout.write) -> int:
    """Create the entities of one program.

    Args:
        arguments: kafkabus's connection string, the prefix, and the language.
        say: The function that writes what was done.

    Returns:
        The exit status.
    """
    connection_string, prefix, language = arguments
    names = checks_of(language)
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        create(administration, prefix, names)
        create_queue(administration, f"{prefix}types")
    say(f"created the entities of {len(names)} checks, and the queue {prefix}types\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
