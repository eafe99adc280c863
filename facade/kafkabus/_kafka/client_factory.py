"""Factory of Kafka clients: librdkafka's, or those of an in-memory namespace."""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from typing import cast

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition

from kafkabus._core import in_memory_registry
from kafkabus._core.settings import Settings
from kafkabus._kafka.client_options import LOGGER, Options
from kafkabus._kafka.topic_admin import Topics

LEADERS_PATIENCE = 0.5
"""How long, in seconds, the brokers may take to say who leads the partitions of a topic."""


def open_producer(settings: Settings, options: Options) -> Producer:
    """Open a producer; see ``producer_options``."""
    here = in_memory_registry.find(settings.bootstrap_servers)
    return (
        Producer(options, logger=LOGGER)
        if here is None
        else cast("Producer", here.producer(str(options.get("transactional.id", ""))))
    )


def open_consumer(settings: Settings, options: Options) -> Consumer:
    """Open a consumer; its options are one of ``client_options``."""
    here = in_memory_registry.find(settings.bootstrap_servers)
    return Consumer(options, logger=LOGGER) if here is None else cast("Consumer", here.consumer())


def ask_for_leaders(consumer: Consumer, topics: Set[str]) -> None:
    """Have a consumer learn at once who leads the partitions of topics that were assigned to it.

    Kafka's client itself asks for the leaders of topics that are new to it, but once a second. If no broker answers, it does.
    Each request waits until the fetch before it ends: there is one for a topic, and for several there are two.
    """
    with suppress(KafkaException):
        if len(topics) == 1:
            consumer.list_topics(next(iter(topics)), timeout=LEADERS_PATIENCE)
        else:
            # The ends are of no interest; but Kafka's client asks for all these topics together, to know whom to ask for them.
            consumer.offsets_for_times([TopicPartition(topic, 0, OFFSET_END) for topic in topics], LEADERS_PATIENCE)


def open_topics(settings: Settings, *, timeout: float = 30.0) -> Topics:
    """Return access to the cluster's topics; ``timeout`` is for one call, in seconds."""
    here = in_memory_registry.find(settings.bootstrap_servers)
    return Topics(settings, timeout=timeout) if here is None else cast("Topics", here.topics())
