"""Behaviours of Azure's SDK that need no namespace to be seen: messages as objects, connection strings."""

from __future__ import annotations

import pickle
import threading
from datetime import timedelta
from typing import Any

import pytest

from kafkabus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    parse_connection_string,
)
from kafkabus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from kafkabus.held import Held, by_delivery
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.message import as_message
from kafkabus.record import Delivery, StoredRecord
from kafkabus.sender import _check_timeout
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.entities import FOREVER

EMULATOR = "Endpoint=sb://localhost:5672;SharedAccessKeyName=a;SharedAccessKey=b"


def test_a_send_may_take_60_seconds() -> None:
    """Where nobody says otherwise."""
    assert _check_timeout(None) == 60.0


def test_a_settled_message_survives_pickling() -> None:
    """And one of the same delivery that is not settled keeps its token."""
    delivery = Delivery("q", 3, "00000000000000ab", 61_000, 2, FOREVER)
    settled, locked = (
        ServiceBusReceivedMessage(StoredRecord(("t", 3, offset), (None, b"body", []), (2, 1_000)), delivery)
        for offset in (7, 8)
    )
    (held,) = by_delivery([settled, locked])
    assert held.settled(lost=[(8, 8)]) == [locked]
    settled, other = pickle.loads(pickle.dumps([settled, locked]))  # noqa: S301 - our own
    assert (str(settled), settled.lock_token, settled.locked_until_utc) == ("body", None, None)
    assert (other.lock_token, other.locked_until_utc) == (locked.lock_token, locked.locked_until_utc)
    assert other.lock_token is not None


def test_the_properties_of_an_amqp_message_may_be_a_dictionary() -> None:
    """Of the fields of AmqpMessageProperties, and of no others."""
    fields: dict[str, Any] = {
        "message_id": "m",
        "subject": b"s",
        "group_id": "g",
        "to": "somebody",
        "reply_to_group_id": "r",
        "user_id": b"u",
    }
    given = AmqpAnnotatedMessage(data_body=b"x", properties=fields)
    assert isinstance(given.properties, AmqpMessageProperties)
    assert given.properties == AmqpMessageProperties(**fields)
    message = as_message(given)
    assert (message.message_id, message.subject, message.session_id) == ("m", "s", "g")
    assert (message.to, message.reply_to_session_id, message.reply_to) == ("somebody", "r", None)
    raw = message.raw_amqp_message.properties
    assert raw is not None
    assert (raw.user_id, raw.content_type) == (b"u", None)
    with pytest.raises(TypeError, match="colour"):
        AmqpAnnotatedMessage(data_body=b"x", properties={"colour": "red"})


@pytest.mark.parametrize("name", ["correlation_id", "subject", "to", "reply_to"])
def test_texts_have_no_limit(name: str) -> None:
    """At construction and afterwards; but they are texts."""
    arguments: dict[str, Any] = {name: "a" * 1000}
    message = ServiceBusMessage("x", **arguments)
    assert getattr(message, name) == "a" * 1000
    setattr(message, name, "b" * 129)
    assert getattr(message, name) == "b" * 129
    with pytest.raises(TypeError, match=f"{name} is int"):
        setattr(message, name, 5)


def test_the_emulators_port_belongs_to_its_name() -> None:
    """Where the string says that it is the emulator, and only there."""
    emulator = parse_connection_string(f"{EMULATOR};UseDevelopmentEmulator=true;")
    assert (emulator.fully_qualified_namespace, emulator.endpoint) == ("localhost:5672", "sb://localhost:5672/")
    service = parse_connection_string(f"{EMULATOR};UseDevelopmentEmulator=false")
    assert service.fully_qualified_namespace == "localhost"


def test_what_is_no_message_is_said_before_that_it_is_named_twice() -> None:
    """The kind of a thing comes first."""
    with pytest.raises(TypeError, match="NoneType cannot be settled"):
        by_delivery([None, None])  # type: ignore[list-item]  # what a program might do


def test_a_renewer_that_is_closed_while_it_asks_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever closed it does not expect to hear of it any more."""
    told: list[object] = []
    with (
        InMemoryNamespace(upkeep=False) as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
    ):
        administration.create_queue("q", lock_duration=timedelta(seconds=1))
        renewer = AutoLockRenewer(on_lock_renew_failure=lambda message, _error: told.append(message))
        asked = threading.Event()

        def lost_while_closing(held: list[Held]) -> list[ServiceBusReceivedMessage]:
            renewer.close(wait=False)
            asked.set()
            return [message for one in held for message in one.messages]

        with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
            monkeypatch.setattr(receiver, "_renew", lost_while_closing)
            sender.send_messages(ServiceBusMessage("x"))
            (message,) = receiver.receive_messages(max_wait_time=10)
            renewer.register(receiver, message)
            assert asked.wait(20)
            renewer.close()
            assert message.auto_renew_error is not None
            assert told == []
