"""Counters of a process that uses the SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from prometheus_client import CollectorRegistry

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._runtime import instruments
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.metrics import instrument, uninstrument
from kafkabus.testing import InMemoryNamespace


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    """A registry that gets this process's counters."""
    registry = CollectorRegistry()
    instrument(registry)
    yield registry
    uninstrument()


def counted(registry: CollectorRegistry, name: str) -> Mapping[str, float]:
    """Return the values of a counter by its labels, without zeros."""
    return {
        " ".join(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"kafkabus_{name}" and sample.value
    }


def test_a_process_counts_its_messages_by_entity_and_outcome(registry: CollectorRegistry) -> None:
    """Messages of a transaction count once it is committed; calls that fail count by their errors."""
    with InMemoryNamespace() as here, ServiceBusClient.from_connection_string(here.connection_string) as client:
        with ServiceBusAdministrationClient.from_connection_string(here.connection_string) as administration:
            administration.create_queue("orders", enable_partitioning=False)
        with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(6)])
            messages = receiver.receive_messages(6, max_wait_time=5)
            receiver.complete_messages(messages[:2])
            receiver.abandon_message(messages[2])
            receiver.defer_message(messages[3])
            receiver.receive_deferred_messages(messages[3].sequence_number)
            receiver.dead_letter_message(messages[4])
            with client.transaction() as transaction:
                sender.send_messages(ServiceBusMessage("x", partition_key="k"), transaction=transaction)
                receiver.complete_message(messages[5], transaction=transaction)
                assert counted(registry, "client_sent_messages_total") == {"orders": 6}
            here.advance(61)
            [again] = receiver.receive_messages(1, max_wait_time=5)
            here.advance(61)
            with pytest.raises(ServiceBusError):
                receiver.complete_message(again)
        with pytest.raises(MessagingEntityNotFoundError):
            client.get_queue_sender("nowhere").send_messages(ServiceBusMessage("x"))
    assert counted(registry, "client_sent_messages_total") == {"orders": 7}
    assert counted(registry, "client_received_messages_total") == {"orders": 8}
    assert counted(registry, "client_settled_messages_total") == {
        "orders complete": 3,
        "orders abandon": 1,
        "orders defer": 1,
        "orders dead_letter": 1,
    }
    assert counted(registry, "client_errors_total") == {
        "orders settle MessageLockLostError": 1,
        "nowhere send MessagingEntityNotFoundError": 1,
    }
    assert counted(registry, "redis_call_seconds_count")[""] > 0


def test_a_process_is_instrumented_once(registry: CollectorRegistry) -> None:
    """Its counters go with the end of that, and leave their registry."""
    with pytest.raises(ValueError, match="instrumented already: call instrument once, or uninstrument before"):
        instrument(CollectorRegistry())
    uninstrument()
    assert instruments.observer is None
    assert list(registry.collect()) == []
    uninstrument()
    instrument(registry)
