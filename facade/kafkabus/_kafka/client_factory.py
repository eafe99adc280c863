"""Clients of Kafka: librdkafka's, or those of a namespace in this process."""

from __future__ import annotations

from typing import cast

from confluent_kafka import Consumer, Producer

from kafkabus._core import in_memory_registry as in_process
from kafkabus._core.settings import Settings
from kafkabus._kafka.client_options import LOGGER, Options
from kafkabus._kafka.topic_admin import Topics


def open_producer(settings: Settings, options: Options) -> Producer:
    """A producer; see ``producer_options``."""
    here = in_process.find(settings.bootstrap_servers)
    return (
        Producer(options, logger=LOGGER)
        if here is None
        else cast("Producer", here.producer(str(options.get("transactional.id", ""))))
    )


def open_consumer(settings: Settings, options: Options) -> Consumer:
    """A consumer; see ``consumer_options`` and ``point_options``."""
    here = in_process.find(settings.bootstrap_servers)
    return Consumer(options, logger=LOGGER) if here is None else cast("Consumer", here.consumer())


def open_topics(settings: Settings, *, timeout: float = 30.0) -> Topics:
    """The cluster's topics; ``timeout`` is for one call, in seconds."""
    here = in_process.find(settings.bootstrap_servers)
    return Topics(settings, timeout=timeout) if here is None else cast("Topics", here.topics())
