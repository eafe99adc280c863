"""Every party is killed under load; ``python -m tests.faults.kill`` does it for longer."""

from __future__ import annotations

import os

import pytest

from tests.faults.kill import PARTIES, run

pytestmark = pytest.mark.faults


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("sessions", "flow"),
    [
        (0, "plain"),
        (5, "plain"),
        (0, "detecting"),
        (0, "scheduling"),
        (5, "forwarding"),
        (0, "transactions"),
        (0, "subscribing"),
        (5, "subscribing"),
    ],
)
def test_nothing_is_lost_doubled_or_made_up_whoever_is_killed(sessions: int, flow: str) -> None:
    """Receivers, senders, the broker, Redis, the upkeep service, and receivers that sleep past the expiry of their locks."""
    kills = int(os.environ.get("KAFKABUS_KILLS", str(len(PARTIES))))
    (count,) = run(seed=int(os.environ.get("KAFKABUS_SEED", "1")), kills=kills, sessions=sessions, flow=flow)
    assert count.fine, str(count)
    assert sum(count.kills.values()) == kills
    assert count.sent > 1000, str(count)
