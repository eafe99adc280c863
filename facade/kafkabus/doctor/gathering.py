"""Gathering the facts: Kafka and Redis at the same time, then the namespace that both hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from kafkabus._core.settings import Settings
from kafkabus._kafka.probe import KafkaProbe
from kafkabus._redis.probe import RedisProbe, places_of
from kafkabus._sync.redis.cluster import ClusterRedis
from kafkabus._sync.redis.opening import open_redis
from kafkabus.doctor.facts import Facts
from kafkabus.doctor.kafka_look import look_at_kafka
from kafkabus.doctor.namespace_look import look_at_namespace
from kafkabus.doctor.redis_look import look_at_redis
from kafkabus.doctor.steps import LookLimits


def gather(settings: Settings, limits: LookLimits | None = None, *, clock: Callable[[], float] = time.time) -> Facts:
    """Return the facts of a namespace.

    No entity is changed. For a moment there is a topic of the namespace's own, and keys of an entity that does not exist.

    Args:
        settings: The settings of the namespace.
        limits: The limits.
        clock: This machine's clock, seconds since 1970.
    """
    limits = limits or LookLimits()
    kafka = KafkaProbe(settings, timeout=limits.answer_s, clock=clock)
    with closing(_probe_redis(settings, limits.answer_s)) as redis, ThreadPoolExecutor(1) as beside:
        asked = beside.submit(look_at_kafka, settings, kafka, limits, clock)
        of_redis = look_at_redis(places_of(settings), redis, limits, clock)
        of_kafka = asked.result()
        of_namespace = look_at_namespace(settings, of_kafka, of_redis, kafka, redis, limits)
    return Facts(settings.replication_factor, of_kafka, of_redis, of_namespace)


def _probe_redis(settings: Settings, timeout: float) -> RedisProbe:
    redis = open_redis(settings.redis_url.reveal(), within=timeout)
    infos = redis.infos if isinstance(redis, ClusterRedis) else lambda: [redis.info()]
    return RedisProbe(settings, redis, infos, timeout=timeout)
