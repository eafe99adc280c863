"""What Kafka's client says is heard once, not with each attempt."""

from __future__ import annotations

import pytest

from kafkabus.log.configuration import AGAIN_AFTER, LOGGER


def test_the_same_is_heard_once_a_minute(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever handle says it, and however often it tried; what is new is heard at once."""
    now = 1_000.0
    monkeypatch.setattr("kafkabus.log.configuration.time.monotonic", lambda: now)

    def fail(handle: int, address: str, *, tried: int = 0) -> None:
        LOGGER.error(
            "FAIL [rdkafka#producer-%d] [thrd:%s]: %s: Connect failed: refused (after %dms in state CONNECT)",
            handle,
            address,
            address,
            tried,
        )

    for handle in range(3):
        for tried in range(3):
            fail(handle, "there:1", tried=tried)
    fail(0, "elsewhere:1")
    assert ["there" in message for message in caplog.messages] == [True, False]
    now += AGAIN_AFTER
    fail(1, "there:1")
    assert len(caplog.messages) == 3
