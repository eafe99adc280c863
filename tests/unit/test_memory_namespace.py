"""The in-memory namespace's substitute for Redis."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafkabus._sync.redis import subscription
from kafkabus._sync.redis.subscription import Subscription
from kafkabus.testing.store import MemoryRedis, Store


def test_one_who_listens_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that hears nothing asks, and takes silence for a lost connection."""
    monkeypatch.setattr(subscription, "PING_AFTER", 0.0)
    monkeypatch.setattr(subscription, "ANSWERS_WITHIN", 0.0)
    redis = MemoryRedis(Store(lambda: 0))
    listener = Subscription(cast("Any", redis))
    for _ in range(5):
        assert listener.hear({"channel"}, 0.001) is None
    redis.publish("channel", "news")
    heard = [listener.hear({"channel"}, 0.1) for _ in range(2)]
    assert [one["data"] for one in heard if one is not None] == ["news"]
