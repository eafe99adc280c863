"""When an instance of the upkeep service is ready."""

from __future__ import annotations

import pytest

from kafkabus.exceptions import ServiceBusError
from kafkabus.upkeep.health import READY_WITHIN, Health


def test_a_service_is_ready_once_all_parts_were_done() -> None:
    """Before, each part that was not has its reason."""
    health = Health(lambda: 100.0)
    assert health.reasons().keys() == {"kafka", "redis", "descriptions"}
    health.on_success("kafka")
    with pytest.raises(ServiceBusError), health.observe_part("redis"):
        raise ServiceBusError("Redis 127.0.0.1:1 refuses")
    assert health.reasons()["redis"] == "no heartbeat reached Redis since the start: Redis 127.0.0.1:1 refuses"
    with health.observe_part("redis"), health.observe_part("descriptions"):
        pass
    assert health.reasons() == {}
    health.end()
    assert health.reasons() == {"service": "it was asked to end"}


def test_a_failure_that_passes_is_no_reason() -> None:
    """A part counts as failed once its last success is too old."""
    now = [100.0]
    health = Health(lambda: now[0])
    for part in ("kafka", "redis", "descriptions"):
        health.on_success(part)
    now[0] += READY_WITHIN
    with pytest.raises(ServiceBusError), health.observe_part("kafka"):
        raise ServiceBusError("no broker")
    assert health.reasons() == {}
    now[0] += 1
    assert health.reasons()["kafka"] == f"no broker answered for {READY_WITHIN + 1:.0f} s: no broker"
