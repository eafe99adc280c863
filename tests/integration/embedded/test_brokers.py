"""Three brokers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkabus.embedded import EmbeddedRuntime
from tests.integration.embedded.serving import (
    brokers_known,
    kill,
    read_all,
    send,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def runtime() -> Iterator[EmbeddedRuntime]:
    """Three brokers on a temporary folder."""
    with EmbeddedRuntime(brokers=3) as started:
        yield started


def test_all_brokers_are_there(runtime: EmbeddedRuntime) -> None:
    """The cluster knows three, each a process, each in the connection string."""
    assert brokers_known(runtime.bootstrap_servers) == {1, 2, 3}
    assert set(runtime.processes) == {"broker-1", "broker-2", "broker-3", "redis", "upkeep"}
    assert len(runtime.bootstrap_servers.split(",")) == 3


@pytest.mark.faults
def test_a_killed_broker_is_done_without_and_comes_back(runtime: EmbeddedRuntime) -> None:
    """The other two take records until the cluster has three again."""
    send(runtime.bootstrap_servers, "replicated", b"before")
    victim = runtime.processes["broker-2"]

    kill(victim)

    send(runtime.bootstrap_servers, "replicated", b"meanwhile")
    wait_until(lambda: runtime.processes.get("broker-2", victim) != victim, "it is started again")
    wait_until(lambda: brokers_known(runtime.bootstrap_servers) == {1, 2, 3}, "three are known")
    assert read_all(runtime.bootstrap_servers, "replicated") == [b"before", b"meanwhile"]
