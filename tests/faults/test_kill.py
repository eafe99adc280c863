"""Every party is killed under load, some in each flow; ``make campaign`` does it for longer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.effort import SEED, effort
from tests.faults.kill import CASES, MORE_CASES, PARTIES, Embedded, run, servers

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def namespace() -> Iterator[Embedded]:
    """The servers of all runs, which are killed as well."""
    with servers() as runtime:
        yield runtime


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("sessions", "flow"), [*CASES, *(pytest.param(*case, marks=pytest.mark.extended) for case in MORE_CASES)]
)
def test_nothing_is_lost_doubled_or_made_up_whoever_is_killed(namespace: Embedded, sessions: int, flow: str) -> None:
    """Receivers, senders, the broker, Redis, the upkeep service, and receivers that sleep past the expiry of their locks."""
    kills = effort(3, len(PARTIES))
    count = run(namespace, SEED + [*CASES, *MORE_CASES].index((sessions, flow)), kills, sessions, flow)
    assert count.fine, str(count)
    assert sum(count.kills.values()) == kills
    # On an idle machine it is several thousand, on a busy one less than two hundred.
    assert count.sent > 20, str(count)
