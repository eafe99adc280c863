"""New queues and subscriptions, and made-up receivers, which real receivers take for other clients."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import Any

from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.exceptions import MessagingEntityNotFoundError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, split_subscription, subscription_name
from tests.servers import NAMESPACE

CROWD = 20
LONG = 55.0
"""How long, in seconds, the made-up receivers count: longer than any test takes.

If they counted for longer, Redis's clock would look as if it had been set back.
"""
KINDS = ("queue", "subscription")
"""Kinds of entities from which messages are received."""
TOPIC_SETTINGS = {
    "enable_partitioning",
    "requires_duplicate_detection",
    "duplicate_detection_history_time_window",
    "settled_retention",
}
"""Settings that a topic has and its subscriptions do not have."""


_MADE: list[tuple[str, str]] = []


def new_queue(connection_string: str, **settings: Any) -> str:
    """Return the name of a new queue; a plain one, of a single log, unless the settings say otherwise."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        administration.create_queue(name, **settings)
    if f"sb://{NAMESPACE}." in connection_string:
        _MADE.append((connection_string, name))
    return name


def delete_new_queues() -> None:
    """Delete the queues of ``new_queue`` on the run's servers that are still there: upkeep looks after them until then."""
    while _MADE:
        connection_string, name = _MADE.pop()
        with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
            with suppress(MessagingEntityNotFoundError):
                administration.delete_queue(name)


def new_source(administration: ServiceBusAdministrationClient, kind: str, name: str, **settings: Any) -> str:
    """Create a ``queue``, or a ``subscription`` of a new topic.

    Args:
        administration: A client.
        kind: Which of the two.
        name: Name of the queue or the topic.
        **settings: Settings of the queue, or of the topic and the subscription, which then get those that they have.
    """
    if kind == "queue":
        administration.create_queue(name, **settings)
        return name
    of_topic = {key: value for key, value in settings.items() if key in TOPIC_SETTINGS}
    administration.create_topic(name, **of_topic)
    of_subscription = {key: value for key, value in settings.items() if key not in TOPIC_SETTINGS}
    administration.create_subscription(name, "one", **of_subscription)
    return subscription_name(name, "one")


def sent_to(source: str) -> str:
    """Return the entity to send to: the queue, or the subscription's topic."""
    names = split_subscription(source)
    return source if names is None else names[0]


def delete_source(administration: ServiceBusAdministrationClient, source: str) -> None:
    """Delete the queue, or the topic."""
    if sent_to(source) == source:
        administration.delete_queue(source)
    else:
        administration.delete_topic(sent_to(source))


def active_in(administration: ServiceBusAdministrationClient, source: str) -> int:
    """Return how many messages wait there or are locked."""
    names = split_subscription(source)
    if names is None:
        return administration.get_queue_runtime_properties(source).active_message_count
    return administration.get_subscription_runtime_properties(*names).active_message_count


def crowd(connection_string: str, queue: str) -> None:
    """Pretend that many clients receive. A receiver that wants many messages then claims them before they are read."""
    context = ClientContext(parse_settings(connection_string))
    try:
        heard_of = (time.time() + LONG) * 1000
        context.connections.redis.zadd(
            context.catalog.entity(EntityPath(queue)).receivers_key,
            {f"another {number}": heard_of for number in range(CROWD)},
        )
    finally:
        context.close()
