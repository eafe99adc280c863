# Generated from tests/contract/aio/test_changed_properties.py by tools/generate_blocking.py. Do not edit.
"""Application properties that are changed when a message is abandoned, deferred or dead-lettered."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from kafkabus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
)
from kafkabus import ServiceBusSubQueue as SubQueue
from kafkabus.exceptions import MessageLockLostError, MessageSizeExceededError
from kafkabus.management import CorrelationRuleFilter, ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter
from tests.contract.conftest import Advance, MakeQueue, MakeTopic

PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""
EVERY_TYPE: dict[str, Any] = {
    "text": 'grün / "blau"\n\\',
    "number": 5,
    "large": 2**63 - 1,
    "fraction": 0.1,
    "decimal": Decimal("12.50"),
    "flag": True,
    "nothing": None,
    "bytes": b"\x00\xff",
    "moment": datetime(2026, 1, 31, 12, tzinfo=timezone.utc),
}


def properties_of(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    """Return a message's application properties, with names and texts as texts."""
    given = message.application_properties or {}
    return {_text(name): value if name == b"bytes" else _text(value) for name, value in given.items()}


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def next_of(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """Receive the next message."""
    (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
    return message


def send(client: ServiceBusClient, queue: str, properties: dict[str | bytes, Any] | None = None, **parts: Any) -> None:
    """Send a message with application properties."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x", application_properties=properties, **parts))


def test_an_abandoned_message_has_them_from_then_on(
    client: ServiceBusClient, other_client: ServiceBusClient, queue: str
) -> None:
    """Beside its others, in all types, for each receiver and who looks; and a later change adds to an earlier one."""
    send(client, queue, {"colour": "red", "size": 5})
    with client.get_queue_receiver(queue) as receiver, other_client.get_queue_receiver(queue) as other:
        receiver.abandon_message(next_of(receiver), properties_to_modify={"colour": "blue", **EVERY_TYPE})
        (seen,) = other.peek_messages()
        assert properties_of(seen) == {"colour": "blue", "size": 5, **EVERY_TYPE}
        again = next_of(other)
        assert (properties_of(again), again.delivery_count) == ({"colour": "blue", "size": 5, **EVERY_TYPE}, 1)
        other.abandon_message(again, properties_to_modify={"colour": "green", "more": "x"})
        last = next_of(receiver)
        assert properties_of(last) == {"colour": "green", "size": 5, "more": "x", **EVERY_TYPE}
        assert str(last) == "x"
        receiver.complete_message(last)


def test_others_stay_as_they_are(client: ServiceBusClient, queue: str) -> None:
    """Those that are abandoned beside it without a change, and those that are sent later."""
    send(client, queue, {"name": "a"}, partition_key="k")
    send(client, queue, {"name": "b"}, partition_key="k")
    with client.get_queue_receiver(queue) as receiver:
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < 2:
            messages += receiver.receive_messages(2, max_wait_time=PATIENCE)
        receiver.abandon_message(messages[0], properties_to_modify={"colour": "blue"})
        receiver.abandon_message(messages[1])
        send(client, queue, {"name": "c"}, partition_key="k")
        came: dict[str, dict[str, Any]] = {}
        while len(came) < 3:
            for message in receiver.receive_messages(3, max_wait_time=PATIENCE):
                came[properties_of(message)["name"]] = properties_of(message)
        assert came == {"a": {"name": "a", "colour": "blue"}, "b": {"name": "b"}, "c": {"name": "c"}}


def test_a_deferred_message_has_them(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """Also after its lock has expired, and it is deferred again."""
    send(client, queue, {"colour": "red"})
    with client.get_queue_receiver(queue) as receiver:
        message = next_of(receiver)
        number = message.sequence_number
        receiver.defer_message(message, properties_to_modify={"colour": "blue"})
        (seen,) = receiver.peek_messages(sequence_number=number or 0)
        (taken,) = receiver.receive_deferred_messages(number or 0)
        assert [properties_of(one) for one in (seen, taken)] == [{"colour": "blue"}] * 2
        later(queue, 120)
        (taken,) = receiver.receive_deferred_messages(number or 0)
        assert properties_of(taken) == {"colour": "blue"}
        receiver.defer_message(taken, properties_to_modify={"more": 1})
        (taken,) = receiver.receive_deferred_messages(number or 0)
        assert properties_of(taken) == {"colour": "blue", "more": 1}
        receiver.complete_message(taken)


def test_a_dead_letter_has_them(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Those it was dead-lettered with, and those of before; also if it was delivered too often."""
    queue = make_queue(max_delivery_count=2)
    for name in ("asked for", "too often"):
        send(client, queue, {"name": name})
    with client.get_queue_receiver(queue) as receiver:
        for message in [next_of(receiver) for _ in range(2)]:
            receiver.abandon_message(message, properties_to_modify={"colour": "blue"})
        for message in [next_of(receiver) for _ in range(2)]:
            if properties_of(message)["name"] == "too often":
                receiver.abandon_message(message, properties_to_modify={"more": 1})
            else:
                receiver.dead_letter_message(message, "R", properties_to_modify={"more": 1})
    with client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER) as dead:
        came = [next_of(dead) for _ in range(2)]
        found = {properties_of(one).pop("name"): one for one in came}
        for one in found.values():
            assert {name: properties_of(one)[name] for name in ("colour", "more")} == {"colour": "blue", "more": 1}
        assert found["asked for"].dead_letter_reason == "R"
        assert found["too often"].dead_letter_reason == "MaxDeliveryCountExceeded"
        # A dead letter that is dead-lettered stays where it is.
        dead.dead_letter_message(came[0], properties_to_modify={"more": 2})
        assert properties_of(next_of(dead))["more"] == 2


def test_a_session_gives_them(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """In order, to its next receiver as well."""
    queue = make_queue(requires_session=True)
    for name in ("a", "b"):
        send(client, queue, {"name": name}, session_id="s")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        receiver.abandon_message(next_of(receiver), properties_to_modify={"colour": "blue"})
        assert properties_of(next_of(receiver)) == {"name": "a", "colour": "blue"}
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        first, second = next_of(receiver), next_of(receiver)
        assert [properties_of(one) for one in (first, second)] == [{"name": "a", "colour": "blue"}, {"name": "b"}]
        receiver.defer_message(second, properties_to_modify={"more": 1})
        (taken,) = receiver.receive_deferred_messages(second.sequence_number or 0)
        assert properties_of(taken) == {"name": "b", "more": 1}


def test_a_message_that_is_received_and_deleted_has_them(client: ServiceBusClient, queue: str) -> None:
    """As each delivery."""
    send(client, queue, {"colour": "red"})
    with client.get_queue_receiver(queue) as receiver:
        receiver.abandon_message(next_of(receiver), properties_to_modify={"colour": "blue"})
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        assert properties_of(next_of(receiver)) == {"colour": "blue"}


def test_rules_are_not_evaluated_again(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """A subscription keeps its message, with what its action made of it once, and the changes; others know nothing of it."""
    topic = make_topic("reds", "all")
    administration.delete_rule(topic, "reds", "$Default")
    action = SqlRuleAction("SET size = size + 1")
    administration.create_rule(topic, "reds", "r", filter=SqlRuleFilter("colour = 'red'"), action=action)
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("x", application_properties={"colour": "red", "size": 1}))
    with client.get_subscription_receiver(topic, "reds") as receiver:
        for count in range(3):
            message = next_of(receiver)
            wanted = {"colour": "red" if count == 0 else "blue", "size": 2 if count < 2 else 7}
            assert properties_of(message) == wanted | {"RuleName": "r"}
            changes = {"colour": "blue"} if count == 0 else {"size": 7}
            receiver.abandon_message(message, properties_to_modify=changes)
        receiver.dead_letter_message(next_of(receiver))
    with client.get_subscription_receiver(topic, "reds", sub_queue=SubQueue.DEAD_LETTER) as dead:
        assert properties_of(next_of(dead)) == {"colour": "blue", "size": 7, "RuleName": "r"}
    with client.get_subscription_receiver(topic, "all") as receiver:
        assert properties_of(next_of(receiver)) == {"colour": "red", "size": 1}


def test_a_correlation_filter_keeps_its_message(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Also one that is decided by a record's headers alone."""
    topic = make_topic("reds")
    administration.delete_rule(topic, "reds", "$Default")
    administration.create_rule(topic, "reds", "r", filter=CorrelationRuleFilter(properties={"colour": "red"}))
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("x", application_properties={"colour": "red"}))
    with client.get_subscription_receiver(topic, "reds") as receiver:
        receiver.abandon_message(next_of(receiver), properties_to_modify={"colour": "blue"})
        (seen,) = client.get_subscription_receiver(topic, "reds").peek_messages()
        message = next_of(receiver)
        assert [properties_of(one) for one in (seen, message)] == [{"colour": "blue"}] * 2


def test_later_rules_do_not_matter(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """A message that was sent before them stays as the rules of then, and its changes, made it."""
    topic = make_topic("all")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("x", application_properties={"colour": "red"}))
    with client.get_subscription_receiver(topic, "all") as receiver:
        receiver.abandon_message(next_of(receiver), properties_to_modify={"colour": "blue"})
    for name in ("one", "two"):
        action = SqlRuleAction(f"SET {name} = 1")
        administration.create_rule(topic, "all", name, filter=SqlRuleFilter("1 = 1"), action=action)
    with client.get_subscription_receiver(topic, "all") as receiver:
        assert properties_of(next_of(receiver)) == {"colour": "blue"}


def test_a_forwarded_dead_letter_takes_them_along(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """The place that it is forwarded to knows nothing of the ledger that kept them."""
    there = make_queue()
    queue = make_queue(forward_dead_lettered_messages_to=there)
    send(client, queue, {"colour": "red"})
    with client.get_queue_receiver(queue) as receiver:
        receiver.abandon_message(next_of(receiver), properties_to_modify={"colour": "blue"})
        receiver.dead_letter_message(next_of(receiver), properties_to_modify={"more": 1})
    with client.get_queue_receiver(there) as receiver:
        found = properties_of(next_of(receiver))
        assert {name: found[name] for name in ("colour", "more")} == {"colour": "blue", "more": 1}


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_changes_them_at_its_end(
    client: ServiceBusClient, queue: str, committed: bool, later: Advance
) -> None:
    """With its settlements, or not at all."""

    class OnPurpose(Exception):
        pass

    send(client, queue, {"name": "abandoned"}, partition_key="k")
    send(client, queue, {"name": "deferred"}, partition_key="k")
    send(client, queue, {"name": "dead"}, partition_key="k")
    with client.get_queue_receiver(queue) as receiver:
        messages = {properties_of(one)["name"]: one for one in [next_of(receiver) for _ in range(3)]}
        change = {"colour": "blue"}
        try:
            with client.transaction() as transaction:
                part: dict[str, Any] = {"properties_to_modify": change, "transaction": transaction}
                receiver.abandon_message(messages["abandoned"], **part)
                receiver.defer_message(messages["deferred"], **part)
                receiver.dead_letter_message(messages["dead"], **part)
                if not committed:
                    raise OnPurpose
        except OnPurpose:
            assert not committed
        if not committed:
            later(queue, 120)
            found = [properties_of(next_of(receiver)) for _ in range(3)]
            assert sorted(one["name"] for one in found) == ["abandoned", "dead", "deferred"]
            assert all("colour" not in one for one in found)
            return
        assert properties_of(next_of(receiver)) == {"name": "abandoned", **change}
        (taken,) = receiver.receive_deferred_messages(messages["deferred"].sequence_number or 0)
        assert properties_of(taken) == {"name": "deferred", **change}
    with client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER) as dead:
        assert properties_of(next_of(dead))["colour"] == "blue"


def test_a_stale_lock_changes_nothing(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """The message is another receiver's by then."""
    send(client, queue, {"colour": "red"})
    with client.get_queue_receiver(queue) as receiver:
        stale = next_of(receiver)
        later(queue, 120)
        again = next_of(receiver)
        with pytest.raises(MessageLockLostError):
            receiver.abandon_message(stale, properties_to_modify={"colour": "blue"})
        receiver.abandon_message(again)
        assert properties_of(next_of(receiver)) == {"colour": "red"}


def test_they_count_in_the_size(client: ServiceBusClient, queue: str) -> None:
    """A change that makes a message too large is refused, and so is one that cannot be stored; the lock stays."""
    send(client, queue, {"colour": "red"})
    with client.get_queue_receiver(queue) as receiver:
        message = next_of(receiver)
        half = {"a": "x" * 150_000}
        for settle in (receiver.abandon_message, receiver.defer_message, receiver.dead_letter_message):
            with pytest.raises(MessageSizeExceededError, match=r"300,?0\d\d bytes .*262144.*nothing was done"):
                settle(message, properties_to_modify={"a": "x" * 300_000})
            with pytest.raises(TypeError, match="properties_to_modify is list"):
                settle(message, properties_to_modify=["a"])  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"'a'.*list"):
                settle(message, properties_to_modify={"a": [1]})  # type: ignore[dict-item]
            with pytest.raises(ValueError, match="half of a surrogate pair"):
                settle(message, properties_to_modify={"a": "\ud800"})
        receiver.abandon_message(message, properties_to_modify=half)
        message = next_of(receiver)
        with pytest.raises(MessageSizeExceededError):
            receiver.abandon_message(message, properties_to_modify={"b": "x" * 150_000})
        receiver.abandon_message(message, properties_to_modify={"a": "", "b": "x" * 150_000})
        assert properties_of(next_of(receiver)) == {"colour": "red", "a": "", "b": "x" * 150_000}
