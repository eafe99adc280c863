"""The suites of existing servers share a Kafka, and report on which versions they ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.kafka_jars import KAFKA_VERSION
from kafkabus.embedded.redis_server import RedisProgram, find_redis
from tests.kafka_server import Guarded, serving_a_user
from tests.ran_on import PROPERTY
from tests.redis_server import program_with_tls


@pytest.fixture(autouse=True)
def ran_on(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Record the versions of the servers; Redis with TLS may be another one than Redis without."""
    program = _program("redis_connections" in request.module.__name__)
    record_property(PROPERTY, f"Kafka {KAFKA_VERSION}")
    if program is not None:
        record_property(PROPERTY, f"Redis {'.'.join(map(str, program.version))} ({program.path})")


@cache
def _program(has_tls: bool) -> RedisProgram | None:
    return program_with_tls() if has_tls else find_redis()


@pytest.fixture(scope="session")
def kafka(runtime: RunningNamespace) -> Iterator[Guarded]:
    """A Kafka whose first user may do everything, and whose others may do nothing; the run's servers have fetched its jars."""
    assert runtime.bootstrap_servers
    with serving_a_user() as kafka:
        yield kafka
