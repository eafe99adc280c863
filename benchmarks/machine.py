"""Facts about the machine and the versions of a run, without data that identifies the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import psutil
import redis
from confluent_kafka import libversion

from kafkabus.embedded.kafka_jars import KAFKA_VERSION


def machine_facts(redis_url: str, *, data_in_memory: bool) -> dict[str, str]:
    """Return the facts that a reader needs to judge the figures of a run.

    Args:
        redis_url: The address of the run's Redis.
        data_in_memory: Whether the servers keep their data in memory.
    """
    return {
        "Date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "Processor": f"{_processor()}, {_cores()} cores for servers and clients together",
        "Memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "Load before the run": f"{psutil.getloadavg()[0]:.1f}",
        "System": f"{platform.system()} {platform.machine()}",
        "Servers' data": "in memory" if data_in_memory else "on disk",
        "Python": platform.python_version(),
        "Kafka": f"{KAFKA_VERSION}, one broker",
        "Redis": _redis_version(redis_url),
        "Clients": ", ".join(f"{name} {number}" for name, number in _clients().items()),
    }


def _processor() -> str:
    """Return the processor's model, or its architecture if the system does not name a model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _redis_version(url: str) -> str:
    with redis.Redis.from_url(url, decode_responses=True) as server:
        return str(server.info("server")["redis_version"])


def _clients() -> Mapping[str, str]:
    return {
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": libversion()[0],
        "redis": version("redis"),
        "pika": version("pika"),
        "pyspark": version("pyspark"),
    }
