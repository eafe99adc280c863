# Generated from tests/contract/aio/test_session_administration.py by tools/generate_blocking.py. Do not edit.
"""Sessions as operators handle them: how many there are, their states, and the rest of their messages."""

from __future__ import annotations

from typing import Any

import pytest

from kafkabus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from kafkabus import ServiceBusSubQueue as SubQueue
from kafkabus.exceptions import MessageSizeExceededError, ServiceBusError, SessionCannotBeLockedError
from kafkabus.management import ServiceBusAdministrationClient
from tests.contract.conftest import Advance, MakeQueue, MakeTopic

PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""


def send(client: ServiceBusClient, queue: str, session: str, *bodies: str, **parts: Any) -> None:
    """Send messages of a session."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, session_id=session, **parts) for body in bodies])


def counts(administration: ServiceBusAdministrationClient, queue: str) -> tuple[int | None, int | None]:
    """Return how many sessions are available, and how many are locked."""
    found = administration.get_queue_runtime_properties(queue)
    return found.available_session_count, found.locked_session_count


def all_of(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Return the bodies of so many messages, in the order in which they come."""
    bodies: list[str] = []
    while len(bodies) < count:
        bodies += map(str, receiver.receive_messages(count - len(bodies), max_wait_time=PATIENCE))
    return bodies


def test_sessions_are_counted(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Those that are available, and those that are locked; messages that no receiver has come to count as one session."""
    queue = make_queue(requires_session=True, partitioned=False)
    assert counts(administration, queue) == (0, 0)
    for session in ("a", "b", "c"):
        send(client, queue, session, "1", "2")
    assert counts(administration, queue) == (1, 0)
    assert sorted([str(name) for name in client.list_queue_sessions(queue)]) == ["a", "b", "c"]
    assert counts(administration, queue) == (3, 0)
    with client.get_queue_receiver(queue, session_id="b") as receiver:
        assert counts(administration, queue) == (2, 1)
        for message in receiver.receive_messages(2, max_wait_time=PATIENCE):
            receiver.complete_message(message)
    assert counts(administration, queue) == (2, 0)
    with client.get_queue_receiver(queue, session_id="new"):
        (listed,) = [one for one in administration.list_queues_runtime_properties() if one.name == queue]
        assert (listed.available_session_count, listed.locked_session_count) == (2, 1)


def test_a_locked_session_of_an_empty_queue_is_counted(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Also in a list, which does not look at empty queues one by one; entities without sessions have no such numbers."""
    queue, plain = make_queue(requires_session=True), make_queue()
    with client.get_queue_receiver(queue, session_id="idle"):
        found = {one.name: one for one in administration.list_queues_runtime_properties()}
        assert (found[queue].available_session_count, found[queue].locked_session_count) == (0, 1)
        assert (found[plain].available_session_count, found[plain].locked_session_count) == (None, None)
    assert counts(administration, plain) == (None, None)


def test_sessions_of_a_subscription_are_counted(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """By themselves."""
    topic = make_topic(partitioned=False)
    administration.create_subscription(topic, "s", requires_session=True)
    administration.create_subscription(topic, "plain")
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("1", session_id="a"))
    with client.get_subscription_receiver(topic, "s", session_id="b"):
        found = administration.get_subscription_runtime_properties(topic, "s")
        assert (found.available_session_count, found.locked_session_count) == (1, 1)
    found = administration.get_subscription_runtime_properties(topic, "plain")
    assert (found.available_session_count, found.locked_session_count) == (None, None)


def test_a_state_is_read_set_and_cleared_without_the_session(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Whether a receiver has the session or not; it sees what was set."""
    queue = make_queue(requires_session=True)
    assert administration.get_session_state(queue, "s") is None
    administration.set_session_state(queue, "s", "först")
    assert administration.get_session_state(queue, "s") == "först".encode()
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert receiver.session is not None
        assert receiver.session.get_state() == "först".encode()
        receiver.session.set_state(b"second")
        assert administration.get_session_state(queue, "s") == b"second"
        administration.set_session_state(queue, "s", b"third")
        assert receiver.session.get_state() == b"third"
        administration.set_session_state(queue, "s", None)
        assert receiver.session.get_state() is None
    assert administration.get_session_state(queue, "s") is None
    administration.set_session_state(queue, "s", b"")
    assert administration.get_session_state(queue, "s") == b""
    with pytest.raises(TypeError, match="a state of type int"):
        administration.set_session_state(queue, "s", 5)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(MessageSizeExceededError, match="nothing was changed"):
        administration.set_session_state(queue, "s", b"x" * 2_000_000)


@pytest.mark.parametrize("dead_letters", [True, False])
def test_the_rest_of_a_session_is_ended(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue, dead_letters: bool
) -> None:
    """All that waits in it, postponed messages as well; neither other sessions nor deferred messages of it."""
    queue = make_queue(requires_session=True, partitioned=False)
    send(client, queue, "poison", "deferred", "postponed", "1", "2")
    send(client, queue, "good", "3")
    send(client, queue, "poison", "4")
    with client.get_queue_receiver(queue, session_id="poison") as receiver:
        first, second = receiver.receive_messages(2, max_wait_time=PATIENCE)
        receiver.defer_message(first)
        receiver.abandon_message(second, delay=3600)
    if dead_letters:
        ended = administration.dead_letter_session(queue, "poison", reason="poison", error_description="it never ends")
    else:
        ended = administration.purge_session(queue, "poison")
    assert ended == 4
    dead = client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER).peek_messages(10)
    expected = ["postponed", "1", "2", "4"] if dead_letters else []
    assert sorted(map(str, dead)) == sorted(expected)
    assert {letter.dead_letter_reason for letter in dead} == ({"poison"} if dead_letters else set())
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session is not None
        assert (receiver.session.session_id, all_of(receiver, 1)) == ("good", ["3"])
    with client.get_queue_receiver(queue, session_id="poison") as receiver:
        assert receiver.receive_messages(max_wait_time=1) == []
        (deferred,) = receiver.receive_deferred_messages(first.sequence_number)
        assert str(deferred) == "deferred"


def test_many_messages_and_expired_ones_are_ended(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue, later: Advance
) -> None:
    """Expired ones are not among those that are counted."""
    queue = make_queue(requires_session=True)
    send(client, queue, "s", *(str(number) for number in range(250)))
    with client.get_queue_sender(queue) as sender:
        short = ServiceBusMessage("expired", session_id="s", time_to_live=1)
        sender.send_messages(short)
    later(queue, 5)
    assert administration.purge_session(queue, "s") in {250, 251}
    assert administration.purge_session(queue, "s") == 0
    assert (administration.get_queue_runtime_properties(queue)).active_message_count == 0


def test_a_session_that_a_receiver_has_is_left_to_it(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Until its lock is broken."""
    queue = make_queue(requires_session=True)
    send(client, queue, "s", "1", "2")
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert all_of(receiver, 1) == ["1"]
        for end in (administration.purge_session, administration.dead_letter_session):
            with pytest.raises(SessionCannotBeLockedError, match="session 's'"):
                end(queue, "s")
        administration.break_lock(queue, session_id="s")
        assert administration.purge_session(queue, "s") == 2


def test_an_entity_without_sessions_has_none_of_this(
    administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """The error says so."""
    complaint = "has no sessions: requires_session is set when"
    with pytest.raises(ServiceBusError, match=complaint):
        administration.get_session_state(queue, "s")
    with pytest.raises(ServiceBusError, match=complaint):
        administration.set_session_state(queue, "s", "x")
    for end in (administration.purge_session, administration.dead_letter_session):
        with pytest.raises(ServiceBusError, match=complaint):
            end(queue, "s")
    with pytest.raises(ValueError, match="reason has 5,000 characters"):
        administration.dead_letter_session(queue, "s", reason="x" * 5_000)
