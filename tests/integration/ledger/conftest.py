"""A ledger on a real Redis, driven by its operations alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import find_redis
from tests.integration.ledger.bench import Bench
from tests.redis_server import serving


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis that serves these tests alone."""
    with serving(find_redis(), tmp_path_factory.mktemp("redis")) as port:
        yield port


@pytest.fixture
def store(redis_port: int) -> Iterator[redis.Redis]:
    """A client of that Redis."""
    with redis.Redis(HOST, redis_port, decode_responses=True) as client:
        yield client


@pytest.fixture
def bench(store: redis.Redis) -> Bench:
    """A new ledger, and the operations of tests on it."""
    return Bench(store, uuid.uuid4().hex[:8])


@pytest.fixture
def detecting(store: redis.Redis) -> Bench:
    """A new ledger that detects duplicates."""
    return Bench(store, uuid.uuid4().hex[:8], detects=True)
