"""Creations of one entity that meet."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import InvalidOperationError, MessagingEntityAlreadyExistsError
from kafkabus.management import ServiceBusAdministrationClient


def test_of_several_creations_at_once_one_wins(runtime: RunningNamespace) -> None:
    """Applications create what is missing when they start, and take it for theirs if it is there already."""
    for partitioned in (True, False, True):
        name, together = f"met-{uuid.uuid4().hex[:8]}", Barrier(3)

        def create(_: int, name: str = name, together: Barrier = together, partitioned: bool = partitioned) -> bool:
            with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
                together.wait()
                try:
                    administration.create_queue(name, enable_partitioning=partitioned)
                except MessagingEntityAlreadyExistsError:
                    return False
                return True

        with ThreadPoolExecutor(3) as pool:
            assert sorted(pool.map(create, range(3))) == [False, False, True]
        with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
            administration.delete_queue(name)


def test_a_topic_of_a_creation_that_was_cut_off_is_named(
    runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it has another number of partitions than is wanted, the error says what to delete."""
    monkeypatch.setattr("kafkabus._sync.admin.base.CREATION_PATIENCE", 0.1)
    name = f"cut-{uuid.uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        context = administration._connections()
        topic = f"tests.{name}"
        context.topics.create_entity(topic, 3)
        with pytest.raises(InvalidOperationError, match=f"{topic}' exists with 3 partitions"):
            administration.create_queue(name)
        context.topics.delete(topic)
