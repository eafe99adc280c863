# Generated from tests/contract/aio/test_searching.py by tools/generate_blocking.py. Do not edit.
"""Searches: peeking at the messages that a filter, a state or a part of the body asks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import CorrelationRuleFilter, ServiceBusAdministrationClient, SqlRuleFilter
from tests.contract.conftest import MakeQueue, MakeTopic

PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""


def send(client: ServiceBusClient, entity: str, *messages: ServiceBusMessage) -> None:
    """Send messages, each by itself, so that they spread over partitions."""
    with client.get_queue_sender(entity) as sender:
        for message in messages:
            sender.send_messages(message)


def colored(body: str, color: Any, **parts: Any) -> ServiceBusMessage:
    """Return a message with a color."""
    return ServiceBusMessage(body, application_properties={"color": color}, **parts)


def search_all(receiver: ServiceBusReceiver, count: int = 100, **wanted: Any) -> list[ServiceBusReceivedMessage]:
    """Search through all messages, call by call."""
    found: list[ServiceBusReceivedMessage] = []
    at: int | None = 0
    while at is not None:
        answer = receiver.peek_messages(count, sequence_number=at, **wanted)
        assert len(answer) <= count
        found += answer
        at = answer.next_sequence_number
    return found


def bodies(messages: Sequence[ServiceBusReceivedMessage]) -> list[str]:
    """Return the bodies of messages, sorted."""
    return sorted(map(str, messages))


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("examined", [3, 10_000])
def test_a_search_finds_each_message_of_all_partitions_once(
    client: ServiceBusClient, queue: str, count: int, examined: int
) -> None:
    """However many a call returns or examines; another receiver can go on with the number."""
    send(client, queue, *(colored(str(number), "red" if number % 3 else "blue") for number in range(12)))
    blue = ["0", "3", "6", "9"]
    with client.get_queue_receiver(queue) as receiver:
        wanted: dict[str, Any] = {"filter": "color = 'blue'", "max_examined_count": examined}
        assert bodies(search_all(receiver, count, **wanted)) == blue
        assert bodies(search_all(receiver, count, **wanted)) == blue
        first = receiver.peek_messages(1, sequence_number=1, **wanted)
        rest: list[ServiceBusReceivedMessage] = []
        if first.next_sequence_number is not None:
            with client.get_queue_receiver(queue) as other:
                rest = other.peek_messages(100, sequence_number=first.next_sequence_number, filter="color = 'blue'")
        assert bodies([*first, *rest]) == blue


def test_a_filter_has_parameters_or_correlates(client: ServiceBusClient, queue: str) -> None:
    """As those of rules do."""
    send(client, queue, colored("1", "red", subject="s"), colored("2", "red"), colored("3", "blue", subject="s"))
    with client.get_queue_receiver(queue) as receiver:
        by_parameter = SqlRuleFilter("color = @color", {"@color": "red"})
        assert bodies(search_all(receiver, filter=by_parameter)) == ["1", "2"]
        both = CorrelationRuleFilter(label="s", properties={"color": "red"})
        assert bodies(search_all(receiver, filter=both)) == ["1"]
        assert bodies(search_all(receiver, filter="sys.Label = 's' AND color <> 'red'")) == ["3"]


def test_each_state_is_found(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Those of the service, and of active messages whether they wait, are locked, or are postponed."""
    queue = make_queue(partitioned=False)
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(1, 6)])
        locked, postponed, deferred, deferred_locked = receiver.receive_messages(4, max_wait_time=PATIENCE)
        receiver.abandon_message(postponed, delay=3600)
        receiver.defer_messages([deferred, deferred_locked])
        receiver.receive_deferred_messages(deferred_locked.sequence_number)
        sender.schedule_messages(ServiceBusMessage("6"), datetime.now(timezone.utc) + timedelta(hours=1))
        states: dict[Any, list[str]] = {
            "active": ["1", "2", "5"],
            ServiceBusMessageState.ACTIVE: ["1", "2", "5"],
            "waiting": ["5"],
            "locked": ["1", "4"],
            "Postponed": ["2"],
            ServiceBusMessageState.DEFERRED: ["3", "4"],
            "scheduled": ["6"],
        }
        for state, expected in states.items():
            assert bodies(search_all(receiver, state=state)) == expected, state
        seen = {str(message): message for message in search_all(receiver, filter="1=1")}
        assert seen["1"].peeked_locked_until_utc == locked.locked_until_utc
        assert [seen[body].peeked_locked_until_utc for body in ("2", "3", "5", "6")] == [None] * 4
        assert (locked.peeked_locked_until_utc, seen["1"].locked_until_utc) == (None, None)
        receiver.complete_message(locked)
        assert bodies(search_all(receiver, state="locked")) == ["4"]


def test_dead_letters_are_found_by_their_reason(client: ServiceBusClient, queue: str) -> None:
    """And by the number of deliveries, which rules of subscriptions never see."""
    send(client, queue, *(colored(str(number), number) for number in range(3)))
    with client.get_queue_receiver(queue) as receiver:
        for message in [(receiver.receive_messages(1, max_wait_time=PATIENCE))[0] for _ in range(3)]:
            reason = "odd" if str(message) == "1" else "even"
            receiver.dead_letter_message(message, reason=reason, error_description="why")
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        assert bodies(search_all(dead, filter="DeadLetterReason = 'even'")) == ["0", "2"]
        assert bodies(search_all(dead, filter="DeadLetterReason = 'even' AND color > 0")) == ["2"]
        assert bodies(search_all(dead, filter="DeadLetterErrorDescription LIKE 'w%'")) == ["0", "1", "2"]
        (abandoned,) = dead.receive_messages(1, max_wait_time=PATIENCE)
        dead.abandon_message(abandoned)
        (again,) = search_all(dead, filter="sys.DeliveryCount > 0")
        assert (again.sequence_number, again.delivery_count) == (abandoned.sequence_number, 1)


def test_a_part_of_the_body_is_found(client: ServiceBusClient, queue: str) -> None:
    """Together with all else that is asked for."""
    send(client, queue, colored("an örange", "red"), colored("an apple", "red"), colored("an örange", "blue"))
    with client.get_queue_receiver(queue) as receiver:
        assert bodies(search_all(receiver, body_contains="öra")) == ["an örange", "an örange"]
        (one,) = search_all(receiver, body_contains="öra".encode(), filter="color = 'red'", state="active")
        assert (str(one), one.application_properties) == ("an örange", {b"color": b"red"})
        assert search_all(receiver, body_contains="pear") == []


def test_changed_properties_are_found(client: ServiceBusClient, queue: str) -> None:
    """As a receiver would get them."""
    send(client, queue, colored("1", "red"))
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        receiver.abandon_message(message, properties_to_modify={"color": "green"})
        assert bodies(search_all(receiver, filter="color = 'green'")) == ["1"]
        assert search_all(receiver, filter="color = 'red'") == []


def test_a_subscription_is_searched_by_what_it_got(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Not by all that its topic has, and with the changes of its rule's action."""
    topic = make_topic("s")
    administration.delete_rule(topic, "s", "$Default")
    administration.create_rule(topic, "s", "red", filter=SqlRuleFilter("color = 'red'"))
    with client.get_topic_sender(topic) as sender:
        for message in (colored("1", "red"), colored("2", "blue"), colored("3", "red")):
            sender.send_messages(message)
    with client.get_subscription_receiver(topic, "s") as receiver:
        assert bodies(search_all(receiver, filter="color IS NOT NULL")) == ["1", "3"]


def test_one_session_is_searched(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """A receiver of a session searches among its messages, also those that it has locked."""
    queue = make_queue(requires_session=True)
    send(client, queue, *(colored(f"{name}{number}", number, session_id=name) for name in "ab" for number in (1, 2)))
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert bodies(search_all(receiver, filter="color = 2", max_examined_count=1)) == ["a2"]
        (first,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        (seen,) = search_all(receiver, state="locked")
        assert (str(seen), str(first)) == ("a1", "a1")
        assert receiver.session is not None
        assert seen.peeked_locked_until_utc == receiver.session.locked_until_utc


def test_all_sessions_are_searched_without_one(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """By a receiver that was not opened: it locks no session, and receives nothing."""
    queue = make_queue(requires_session=True)
    send(client, queue, *(colored(f"{name}{number}", number, session_id=name) for name in "ab" for number in (1, 2)))
    with client.get_queue_receiver(queue, session_id="a") as held:
        held.receive_messages(1, max_wait_time=PATIENCE)
        receiver = client.get_queue_receiver(queue)
        assert bodies(search_all(receiver, filter="color = 2")) == ["a2", "b2"]
        assert bodies(search_all(receiver, state="locked")) == ["a1"]
        for refused in (receiver.receive_messages, receiver.peek_messages):
            with pytest.raises(ServiceBusError, match="has sessions"):
                refused(1)


def test_messages_that_a_filter_cannot_judge_are_counted(client: ServiceBusClient, queue: str) -> None:
    """They are not returned, and the first failure says why."""
    send(client, queue, colored("1", 5), colored("2", "five"), colored("3", 6), colored("4", "six"))
    with client.get_queue_receiver(queue) as receiver:
        answer = receiver.peek_messages(10, filter="color > 4")
        assert (bodies(answer), answer.failed_count) == (["1", "3"], 2)
        assert answer.first_failure is not None
        assert "> does not take a text and an integer" in answer.first_failure
        plain = receiver.peek_messages(10)
        assert (plain.failed_count, plain.first_failure, plain.next_sequence_number) == (0, None, None)


@pytest.mark.parametrize(
    ("wanted", "error", "complaint"),
    [
        ({"filter": "color = "}, ValueError, r"filter: line 1, column \d+"),
        ({"filter": "color = @c"}, ValueError, "filter: parameter @c has no value"),
        ({"filter": CorrelationRuleFilter()}, ValueError, "filter: the correlation filter asks for nothing"),
        ({"filter": 5}, TypeError, "filter is int: use SqlRuleFilter"),
        ({"state": "open"}, ValueError, "state 'open': choose from active, waiting, locked, postponed"),
        ({"state": 1.5}, TypeError, "state is float: use ServiceBusMessageState"),
        ({"body_contains": 5}, TypeError, "body_contains is int: use str or bytes"),
        ({"filter": "1=1", "max_examined_count": 0}, ValueError, "max_examined_count 0: let a call examine 1"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    client: ServiceBusClient, queue: str, wanted: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    """By name, before anything is looked at."""
    with client.get_queue_receiver(queue) as receiver:
        with pytest.raises(error, match=complaint):
            receiver.peek_messages(1, **wanted)
