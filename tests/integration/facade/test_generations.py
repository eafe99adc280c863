"""Ledgers are replaced: a client that did not find out goes on with the new ones, and learns the truth about its locks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.delivery_reports import DeliveryReports
from kafkabus._sync.context import ClientContext
from kafkabus._sync.kafka.producer import RecordProducer
from kafkabus.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    ServiceBusError,
    SessionLockLostError,
)
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath

PATIENCE = 60.0


@pytest.fixture
def client(untended: str) -> Iterator[ServiceBusClient]:
    """A client that does not look for changes."""
    with ServiceBusClient.from_connection_string(untended) as opened:
        yield opened


def go_back(connection: str, name: str) -> None:
    """Do as upkeep does after a failover to a Redis replica that lagged behind."""
    context = ClientContext(parse_settings(connection))
    try:
        with pytest.raises(ServiceBusError, match="Redis went back"):
            context.maintenance.recovery.recover_from_rollback(context.catalog.entity(EntityPath(name)), {})
    finally:
        context.close()


def test_a_receiver_goes_on_after_a_failover_of_redis(
    untended: str, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """No error is raised, and locked messages come again. Only the lock itself is lost."""
    administration.create_queue("orders")
    sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
    sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
    (first,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
    go_back(untended, "orders")
    seen: list[str] = []
    while len(seen) < 3:
        messages = receiver.receive_messages(3, max_wait_time=PATIENCE)
        assert messages
        seen += map(str, messages)
    assert sorted(seen) == ["0", "1", "2"]
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(first)


def test_a_settlement_is_told_that_its_lock_is_lost(
    untended: str, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """The error does not say that ledgers were replaced."""
    administration.create_queue("orders")
    receiver = client.get_queue_receiver("orders")
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
    (one,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
    go_back(untended, "orders")
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(one)


def test_a_session_is_accepted_after_a_failover_of_redis(
    untended: str, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """The client with the session open learns that its lock is lost; a client that opens the session gets it."""
    administration.create_queue("orders", requires_session=True)
    client.get_queue_sender("orders").send_messages([ServiceBusMessage(str(at), session_id="a") for at in range(2)])
    held = client.get_queue_receiver("orders", session_id="a")
    (first,) = held.receive_messages(1, max_wait_time=PATIENCE)
    go_back(untended, "orders")
    with client.get_queue_receiver("orders", session_id="a") as receiver:
        assert [str(message) for message in receiver.receive_messages(2, max_wait_time=PATIENCE)] == ["0", "1"]
        with pytest.raises(SessionLockLostError):
            held.complete_message(first)


def test_a_receiver_that_has_a_session_open_is_told_that_it_is_lost(
    untended: str, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """A receive raises the error, too."""
    administration.create_queue("orders", requires_session=True)
    client.get_queue_sender("orders").send_messages([ServiceBusMessage(str(at), session_id="a") for at in range(2)])
    held = client.get_queue_receiver("orders", session_id="a")
    assert held.receive_messages(1, max_wait_time=PATIENCE)
    go_back(untended, "orders")
    with pytest.raises(SessionLockLostError):
        held.receive_messages(1, max_wait_time=PATIENCE)


def test_a_subscription_that_was_created_again_is_said_to_be(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """The error does not say that a log was truncated. The next call is served by the new one."""
    administration.create_topic("news")
    administration.create_subscription("news", "one")
    receiver, sender = client.get_subscription_receiver("news", "one"), client.get_topic_sender("news")
    sender.send_messages(ServiceBusMessage("before"))
    assert receiver.receive_messages(1, max_wait_time=PATIENCE)
    administration.delete_subscription("news", "one")
    with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'one' of a topic 'news'"):
        receiver.receive_messages(1, max_wait_time=PATIENCE)
    administration.create_subscription("news", "one")
    sender.send_messages(ServiceBusMessage("after"))
    (after,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
    assert str(after) == "after"
    administration.delete_subscription("news", "one")
    administration.create_subscription("news", "one")
    with pytest.raises(MessagingEntityNotFoundError, match="it was deleted and created again"):
        receiver.receive_messages(1, max_wait_time=PATIENCE)


def test_scheduled_messages_are_stored_once(
    untended: str,
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ledger is replaced between storing messages and recording them: an error would have them sent twice."""
    administration.create_queue("orders")
    sender = client.get_queue_sender("orders")
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    sender.schedule_messages(ServiceBusMessage("one"), due)
    send = RecordProducer.send

    def send_and_go_back(*arguments: Any, **named: Any) -> DeliveryReports:
        reports = send(*arguments, **named)
        monkeypatch.setattr(RecordProducer, "send", send)
        go_back(untended, "orders")
        return reports

    monkeypatch.setattr(RecordProducer, "send", send_and_go_back)
    (number,) = sender.schedule_messages(ServiceBusMessage("two"), due)
    assert administration.get_queue_runtime_properties("orders").scheduled_message_count == 2
    sender.cancel_scheduled_messages(number)
    assert administration.get_queue_runtime_properties("orders").scheduled_message_count == 1
