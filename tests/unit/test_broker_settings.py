"""The settings of embedded brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkabus.embedded.broker import Broker
from kafkabus.embedded.class_archive import ClassArchive
from kafkabus.embedded.cluster import EmbeddedCluster
from kafkabus.embedded.java import Java
from kafkabus_mapping.secret import Secret


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_broker_waits_for_the_end_of_its_last_session(tmp_path: Path, brokers: int) -> None:
    """The controller does not admit it before; a broker that gives up earlier would be started again, in vain."""
    cluster = EmbeddedCluster(
        "id", tuple(range(1, brokers + 1)), tuple(range(11, brokers + 11)), 21, Secret("sesame-open")
    )
    java = Java(Path("java"), 21, "a build", bundled=False)
    broker = Broker(1, cluster, tmp_path / "broker", tmp_path / "log", java, tmp_path, ClassArchive(java, tmp_path))
    broker.prepare()
    lines = (tmp_path / "broker" / "server.properties").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    session, patience = settings["broker.session.timeout.ms"], settings["initial.broker.registration.timeout.ms"]
    assert int(patience) >= int(session) + 60_000
