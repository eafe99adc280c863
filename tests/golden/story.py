"""Messages in every state that outlives a client, and the checks that they are all there."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from kafkabus._sync.dispositions.transaction_commit import TransactionCommit
from kafkabus.amqp import AmqpAnnotatedMessage
from kafkabus.management import ServiceBusAdministrationClient, SqlRuleFilter
from tests.contract.receiving import take
from tests.golden import requests
from tests.upkeep import hasten, tend

PARTITIONS = 2
DUE_IN = timedelta(minutes=2)
"""When the first scheduled message is due; by then the story is over."""
GONE = 12
"""How many settled messages pin a log so far that the message before them is kept apart."""
LATER = datetime(2199, 1, 1, tzinfo=timezone.utc)
KEY = "k"
QUIET = 0.5
"""How long, in seconds, no further message comes."""

PROPERTIES: dict[str, Any] = {
    "text": "tëxt",
    "number": 5,
    "large": 1 << 60,
    "float": 1.5,
    "flag": True,
    "uuid": UUID(int=5),
    "time": datetime(2026, 1, 31, 12, tzinfo=timezone.utc),
}
AMOUNT = Decimal("12.50")
DEAR = SqlRuleFilter("amount > @amount", parameters={"@amount": Decimal(10)})
SECTIONS = [b"a", b"", b"bc"]
CHANGES: dict[str, Any] = {"colour": "blue", "amount": AMOUNT}
FIELDS = {
    "content_type": "text/plain",
    "correlation_id": "c-1",
    "message_id": "m-1",
    "reply_to": "me",
    "reply_to_session_id": "s-1",
    "subject": "invoice",
    "to": "somebody",
}
"""Properties of one message."""


def tell(connection_string: str) -> dict[str, int]:
    """Bring an empty namespace, which no upkeep looks after, into the state that ``check`` expects.

    Returns:
        Sequence numbers of messages that are received by number, by their bodies.
    """
    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
        ServiceBusClient.from_connection_string(connection_string) as client,
    ):
        _create(administration)
        numbers = _settle_some(client) | _keep_apart(client, connection_string) | _ask_for_format_2(client)
        _hold_sessions(client)
        _publish(client, administration)
        with client.get_queue_sender("unique") as sender:
            sender.send_messages([ServiceBusMessage(body, message_id="1") for body in ("first", "second")])
        with client.get_queue_receiver("unique") as receiver:
            receiver.abandon_message(take(receiver, 1)[0])
        with client.get_queue_sender(requests.QUEUE) as sender:
            _send(sender, *requests.SENT)
        _transact(client, "paid")
        _abort(client)
        tend(connection_string, *_NAMES)
        # The checkpoints do not know of this one, whose client died before it settled anything.
        with patch.object(TransactionCommit, "_settle", _die):
            _transact(client, "whole")
        return numbers


_NAMES = (
    *("orders", "accounts", "payments", "sessions", "unique", "apart", "exact"),
    *("news", "news/Subscriptions/all", "news/Subscriptions/red"),
)


def check(connection_string: str, numbers: dict[str, int]) -> None:
    """Check that every message of the story is in its state, and that the namespace works."""
    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
        ServiceBusClient.from_connection_string(connection_string) as client,
    ):
        assert administration.get_namespace_properties().partitions == PARTITIONS
        _check_orders(client, numbers)
        with client.get_queue_receiver("payments") as receiver:
            assert _taken(receiver, 2) == ["paid", "whole"]
        _check_sessions(client)
        with client.get_subscription_receiver("news", "red") as receiver:
            assert _taken(receiver, 3) == ["blue 2", "red 1", "red 2"]
        with client.get_subscription_receiver("news", "all") as receiver:
            assert _taken(receiver, 2) == ["blue 2", "red 2"]
        with client.get_subscription_receiver("news", "all", sub_queue="deadletter") as receiver:
            assert _taken(receiver, 1) == ["blue 1"]
        with client.get_queue_receiver("unique") as receiver:
            assert _taken(receiver, 1) == ["first"]
        with client.get_queue_receiver("apart") as receiver:
            _check_deferred(receiver, numbers["kept"], "kept")
        if "exact" in numbers:
            _check_format_2(client, numbers["set aside"])
        # A new message takes its place behind the old ones.
        with client.get_queue_sender("payments") as sender, client.get_queue_receiver("payments") as receiver:
            sender.send_messages(ServiceBusMessage("new", partition_key=KEY))
            assert _taken(receiver, 1) == ["new"]
        for name in ("orders", "accounts", "unique"):
            with client.get_queue_receiver(name) as receiver:
                assert receiver.receive_messages(1, max_wait_time=QUIET) == [], name


def _die(*_: object) -> None:
    """Do nothing, as a client that dies before it settles a transaction's messages."""


def _create(administration: ServiceBusAdministrationClient) -> None:
    administration.create_namespace("Premium", PARTITIONS)
    administration.create_queue("orders")
    administration.create_queue("accounts")
    administration.create_queue("payments")
    administration.create_queue(requests.QUEUE)
    administration.create_queue("sessions", requires_session=True)
    administration.create_queue("unique", requires_duplicate_detection=True)
    administration.create_queue("apart", settled_retention=timedelta(0))
    administration.create_topic("news")
    administration.create_subscription("news", "all")
    administration.create_subscription("news", "red")
    administration.create_rule("news", "red", "red", filter=SqlRuleFilter("colour = 'red'"))
    administration.delete_rule("news", "red", "$Default")
    administration.create_queue("exact")
    administration.create_topic("prices")
    administration.create_subscription("prices", "dear")
    administration.create_rule("prices", "dear", "dear", filter=DEAR)
    administration.delete_rule("prices", "dear", "$Default")


def _settle_some(client: ServiceBusClient) -> dict[str, int]:
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        _send(sender, "completed", "abandoned", "deferred", "dead", "held")
        completed, abandoned, deferred, dead, _ = take(receiver, 5)
        receiver.complete_message(completed)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(dead, reason="Bad", error_description="very")
        receiver.abandon_message(abandoned)
        rich: dict[str, Any] = {**FIELDS, "application_properties": PROPERTIES, "time_to_live": timedelta(days=36_500)}
        sender.send_messages(ServiceBusMessage("waiting", partition_key=KEY, **rich))
        now = datetime.now(timezone.utc)
        (due,) = sender.schedule_messages(ServiceBusMessage("due", partition_key=KEY), now + DUE_IN)
        (later,) = sender.schedule_messages(ServiceBusMessage("later", partition_key=KEY), LATER)
        assert deferred.sequence_number is not None
        return {"deferred": deferred.sequence_number, "due": due, "later": later}


def _keep_apart(client: ServiceBusClient, connection_string: str) -> dict[str, int]:
    """Defer a message whose log is trimmed beyond it."""
    with client.get_queue_sender("apart") as sender, client.get_queue_receiver("apart") as receiver:
        _send(sender, "kept", *(f"gone {number}" for number in range(GONE)))
        kept, *gone = take(receiver, 1 + GONE)
        receiver.defer_message(kept)
        receiver.complete_messages(gone)
    with pytest.MonkeyPatch.context() as monkeypatch:
        hasten(monkeypatch)
        tend(connection_string, "apart")
    assert kept.sequence_number is not None
    return {"kept": kept.sequence_number}


def _ask_for_format_2(client: ServiceBusClient) -> dict[str, int]:
    """Send what the first format cannot store."""
    with client.get_queue_sender("exact") as sender, client.get_queue_receiver("exact") as receiver:
        sender.send_messages(AmqpAnnotatedMessage(data_body=SECTIONS, application_properties={"amount": AMOUNT}))
        (waiting,) = receiver.peek_messages()
        assert waiting.sequence_number is not None
        _send(sender, "set aside", "given back")
        taken = {str(message): message for message in take(receiver, 3)}
        aside, back = taken.pop("set aside"), taken.pop("given back")
        receiver.defer_message(aside, properties_to_modify=CHANGES)
        receiver.abandon_message(back, properties_to_modify=CHANGES)
        receiver.abandon_messages(list(taken.values()))
        assert aside.sequence_number is not None
    with client.get_topic_sender("prices") as sender:
        for amount in (AMOUNT, AMOUNT - 5):
            sender.send_messages(ServiceBusMessage(str(amount), application_properties={"amount": amount}))
    return {"exact": waiting.sequence_number, "set aside": aside.sequence_number}


def _check_format_2(client: ServiceBusClient, aside: int) -> None:
    with client.get_queue_receiver("exact") as receiver:
        found = {str(message): message for message in take(receiver, 2)}
        back, message = found.pop("given back"), found.popitem()[1]
        assert (list(message.body), message.application_properties) == (SECTIONS, {b"amount": AMOUNT})
        (deferred,) = receiver.receive_deferred_messages(aside)
        assert [one.application_properties for one in (back, deferred)] == [{b"colour": b"blue", b"amount": AMOUNT}] * 2
        receiver.complete_messages([back, message, deferred])
    with client.get_subscription_receiver("prices", "dear") as receiver:
        assert _taken(receiver, 1) == [str(AMOUNT)]
        assert receiver.receive_messages(1, max_wait_time=QUIET) == []


def _hold_sessions(client: ServiceBusClient) -> None:
    with client.get_queue_sender("sessions") as sender:
        sender.send_messages(
            [ServiceBusMessage(f"{name}{number}", session_id=name) for number in range(3) for name in ("a", "b")]
        )
    with client.get_queue_receiver("sessions", session_id="a") as receiver:
        receiver.complete_message(take(receiver, 1)[0])
        assert receiver.session is not None
        receiver.session.set_state("one done")


def _publish(client: ServiceBusClient, administration: ServiceBusAdministrationClient) -> None:
    def publish(number: int) -> None:
        with client.get_topic_sender("news") as sender:
            sender.send_messages(
                [
                    ServiceBusMessage(
                        f"{colour} {number}", partition_key=KEY, application_properties={"colour": colour}
                    )
                    for colour in ("red", "blue")
                ]
            )

    publish(1)
    with client.get_subscription_receiver("news", "all") as receiver:
        red, blue = take(receiver, 2)
        receiver.complete_message(red)
        receiver.dead_letter_message(blue)
    administration.create_rule("news", "red", "blue", filter=SqlRuleFilter("colour = 'blue'"))
    publish(2)


def _transact(client: ServiceBusClient, sent: str) -> None:
    """Settle a message and send another one, in one transaction."""
    with client.get_queue_sender("accounts") as sender, client.get_queue_receiver("accounts") as receiver:
        _send(sender, f"settled with {sent}")
        (waiting,) = take(receiver, 1)
        with client.get_queue_sender("payments") as payments, client.transaction() as transaction:
            payments.send_messages(ServiceBusMessage(sent, partition_key=KEY), transaction=transaction)
            receiver.complete_message(waiting, transaction=transaction)


def _abort(client: ServiceBusClient) -> None:
    class OnPurposeError(Exception):
        pass

    try:
        with client.get_queue_sender("payments") as sender, client.transaction() as transaction:
            sender.send_messages(ServiceBusMessage("never", partition_key=KEY), transaction=transaction)
            raise OnPurposeError
    except OnPurposeError:
        pass


def _check_orders(client: ServiceBusClient, numbers: dict[str, int]) -> None:
    with client.get_queue_receiver("orders") as receiver, client.get_queue_sender("orders") as sender:
        found = {str(message): message for message in take(receiver, 4)}
        assert set(found) == {"abandoned", "held", "waiting", "due"}
        # A lock that ended counts as a delivery.
        assert [found[body].delivery_count for body in ("abandoned", "held", "waiting", "due")] == [1, 1, 0, 0]
        waiting = found["waiting"]
        assert waiting.application_properties == {name.encode(): value for name, value in PROPERTIES.items()} | {
            b"text": "tëxt".encode()
        }
        assert {name: getattr(waiting, name) for name in FIELDS} == FIELDS
        assert waiting.time_to_live == timedelta(days=36_500)
        receiver.complete_messages(list(found.values()))
        _check_deferred(receiver, numbers["deferred"], "deferred")
        (later,) = receiver.peek_messages(5, sequence_number=numbers["later"])
        assert (str(later), later.scheduled_enqueue_time_utc) == ("later", LATER)
        sender.cancel_scheduled_messages(numbers["later"])
    with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
        (dead,) = take(receiver, 1)
        receiver.complete_message(dead)
        assert (str(dead), dead.dead_letter_reason, dead.dead_letter_error_description) == ("dead", "Bad", "very")


def _check_deferred(receiver: ServiceBusReceiver, number: int, body: str) -> None:
    (deferred,) = receiver.receive_deferred_messages(number)
    assert str(deferred) == body
    receiver.complete_message(deferred)


def _check_sessions(client: ServiceBusClient) -> None:
    for name, state, bodies in (("a", b"one done", ["a1", "a2"]), ("b", None, ["b0", "b1", "b2"])):
        with client.get_queue_receiver("sessions", session_id=name) as receiver:
            assert receiver.session is not None
            assert receiver.session.get_state() == state
            messages = take(receiver, len(bodies))
            receiver.complete_messages(messages)
            assert [str(message) for message in messages] == bodies


def _send(sender: Any, *bodies: str) -> None:
    sender.send_messages([ServiceBusMessage(body, partition_key=KEY) for body in bodies])


def _taken(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Receive and complete so many messages; return their bodies, sorted."""
    messages = take(receiver, count)
    receiver.complete_messages(messages)
    return sorted(map(str, messages))
