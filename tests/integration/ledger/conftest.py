"""A ledger on a real Redis, driven by its operations alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from kafkabus.embedded import EmbeddedRuntime
from tests.integration.ledger.bench import Bench


@pytest.fixture
def store(runtime: EmbeddedRuntime) -> Iterator[redis.Redis]:
    """The Redis of the run."""
    with redis.Redis.from_url(runtime.redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def bench(store: redis.Redis) -> Bench:
    """A new ledger, and what tests do with it."""
    return Bench(store, uuid.uuid4().hex[:8])


@pytest.fixture
def detecting(store: redis.Redis) -> Bench:
    """A new ledger that detects duplicates."""
    return Bench(store, uuid.uuid4().hex[:8], detects=True)
