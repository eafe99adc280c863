"""The choice of versions for ``make test-matrix``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.__main__ import Pair, obtain, pairs
from tests.matrix.errors import NotToBeHadError
from tests.matrix.versions import KAFKA, REDIS, choose
from tests.servers import refuse_others


def test_each_version_is_in_one_pair() -> None:
    """One version that is asked for is tested alone."""
    together = pairs(None, None)
    assert [pair.kafka for pair in together if pair.kafka] == list(KAFKA)
    assert [pair.redis for pair in together if pair.redis] == list(REDIS)
    assert pairs("3.9", None) == [Pair("3.9", None)]


def test_a_version_without_a_source_is_named() -> None:
    """The rest of its pair is tested nevertheless."""
    here, missing = obtain(Pair("4.3", "7.4"))
    assert here == Pair("4.3", None)
    assert missing == [
        "Redis 7.4 is not to be had here: no source of Redis 7.4 is known; choose one of 6.2, 7.0, 8.0, valkey-8, valkey-9"
    ]


def test_the_chosen_servers_are_found_first() -> None:
    """The Redis of the wheel comes before those on the PATH; the embedded Kafka is the default."""
    choice = choose("4.3", "6.2")
    assert Path(choice.environment["PATH"].split(":")[0], "redis-server").exists()
    assert choice.environment.keys() == {"PATH"}
    assert choice.reported == ("Kafka 4.3.0", "Redis 6.2.")
    with pytest.raises(NotToBeHadError):
        choose(None, "7.4")


def test_other_servers_than_the_chosen_ones_fail_the_run() -> None:
    """Otherwise a run might say that it was on a version that it was not on."""
    refuse_others(["Kafka 3.9.1", "Redis 7.0.15"], choose("4.3", None).reported[:0])
    with pytest.raises(AssertionError, match=r"to run on Kafka 4\.3\.0, and run on Kafka 3\.9\.1, Redis 7\.0\.15"):
        refuse_others(["Kafka 3.9.1", "Redis 7.0.15"], choose("4.3", None).reported)
