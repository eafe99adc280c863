"""Sessions as operators handle them: how many there are, their states, and the rest of their messages."""

from __future__ import annotations

from typing import Any

import pytest

from kafkabus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from kafkabus import ServiceBusSubQueue as SubQueue
from kafkabus.aio import ServiceBusClient, ServiceBusReceiver
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import MessageSizeExceededError, ServiceBusError, SessionCannotBeLockedError
from tests.contract.aio.conftest import Advance, MakeQueue, MakeTopic

PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""


async def send(client: ServiceBusClient, queue: str, session: str, *bodies: str, **parts: Any) -> None:
    """Send messages of a session."""
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(body, session_id=session, **parts) for body in bodies])


async def counts(administration: ServiceBusAdministrationClient, queue: str) -> tuple[int | None, int | None]:
    """Return how many sessions are available, and how many are locked."""
    found = await administration.get_queue_runtime_properties(queue)
    return found.available_session_count, found.locked_session_count


async def all_of(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Return the bodies of so many messages, in the order in which they come."""
    bodies: list[str] = []
    while len(bodies) < count:
        bodies += map(str, await receiver.receive_messages(count - len(bodies), max_wait_time=PATIENCE))
    return bodies


async def test_sessions_are_counted(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Those that are available, and those that are locked; messages that no receiver has come to count as one session."""
    queue = await make_queue(requires_session=True, partitioned=False)
    assert await counts(administration, queue) == (0, 0)
    for session in ("a", "b", "c"):
        await send(client, queue, session, "1", "2")
    assert await counts(administration, queue) == (1, 0)
    assert sorted([str(name) async for name in client.list_queue_sessions(queue)]) == ["a", "b", "c"]
    assert await counts(administration, queue) == (3, 0)
    async with client.get_queue_receiver(queue, session_id="b") as receiver:
        assert await counts(administration, queue) == (2, 1)
        for message in await receiver.receive_messages(2, max_wait_time=PATIENCE):
            await receiver.complete_message(message)
    assert await counts(administration, queue) == (2, 0)
    async with client.get_queue_receiver(queue, session_id="new"):
        (listed,) = [one async for one in administration.list_queues_runtime_properties() if one.name == queue]
        assert (listed.available_session_count, listed.locked_session_count) == (2, 1)


async def test_a_locked_session_of_an_empty_queue_is_counted(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Also in a list, which does not look at empty queues one by one; entities without sessions have no such numbers."""
    queue, plain = await make_queue(requires_session=True), await make_queue()
    async with client.get_queue_receiver(queue, session_id="idle"):
        found = {one.name: one async for one in administration.list_queues_runtime_properties()}
        assert (found[queue].available_session_count, found[queue].locked_session_count) == (0, 1)
        assert (found[plain].available_session_count, found[plain].locked_session_count) == (None, None)
    assert await counts(administration, plain) == (None, None)


async def test_sessions_of_a_subscription_are_counted(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """By themselves."""
    topic = await make_topic(partitioned=False)
    await administration.create_subscription(topic, "s", requires_session=True)
    await administration.create_subscription(topic, "plain")
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(ServiceBusMessage("1", session_id="a"))
    async with client.get_subscription_receiver(topic, "s", session_id="b"):
        found = await administration.get_subscription_runtime_properties(topic, "s")
        assert (found.available_session_count, found.locked_session_count) == (1, 1)
    found = await administration.get_subscription_runtime_properties(topic, "plain")
    assert (found.available_session_count, found.locked_session_count) == (None, None)


async def test_a_state_is_read_set_and_cleared_without_the_session(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Whether a receiver has the session or not; it sees what was set."""
    queue = await make_queue(requires_session=True)
    assert await administration.get_session_state(queue, "s") is None
    await administration.set_session_state(queue, "s", "först")
    assert await administration.get_session_state(queue, "s") == "först".encode()
    async with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert receiver.session is not None
        assert await receiver.session.get_state() == "först".encode()
        await receiver.session.set_state(b"second")
        assert await administration.get_session_state(queue, "s") == b"second"
        await administration.set_session_state(queue, "s", b"third")
        assert await receiver.session.get_state() == b"third"
        await administration.set_session_state(queue, "s", None)
        assert await receiver.session.get_state() is None
    assert await administration.get_session_state(queue, "s") is None
    await administration.set_session_state(queue, "s", b"")
    assert await administration.get_session_state(queue, "s") == b""
    with pytest.raises(TypeError, match="a state of type int"):
        await administration.set_session_state(queue, "s", 5)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(MessageSizeExceededError, match="nothing was changed"):
        await administration.set_session_state(queue, "s", b"x" * 2_000_000)


@pytest.mark.parametrize("dead_letters", [True, False])
async def test_the_rest_of_a_session_is_ended(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue, dead_letters: bool
) -> None:
    """All that waits in it, postponed messages as well; neither other sessions nor deferred messages of it."""
    queue = await make_queue(requires_session=True, partitioned=False)
    await send(client, queue, "poison", "deferred", "postponed", "1", "2")
    await send(client, queue, "good", "3")
    await send(client, queue, "poison", "4")
    async with client.get_queue_receiver(queue, session_id="poison") as receiver:
        first, second = await receiver.receive_messages(2, max_wait_time=PATIENCE)
        await receiver.defer_message(first)
        await receiver.abandon_message(second, delay=3600)
    if dead_letters:
        ended = await administration.dead_letter_session(
            queue, "poison", reason="poison", error_description="it never ends"
        )
    else:
        ended = await administration.purge_session(queue, "poison")
    assert ended == 4
    dead = await client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER).peek_messages(10)
    expected = ["postponed", "1", "2", "4"] if dead_letters else []
    assert sorted(map(str, dead)) == sorted(expected)
    assert {letter.dead_letter_reason for letter in dead} == ({"poison"} if dead_letters else set())
    async with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session is not None
        assert (receiver.session.session_id, await all_of(receiver, 1)) == ("good", ["3"])
    async with client.get_queue_receiver(queue, session_id="poison") as receiver:
        assert await receiver.receive_messages(max_wait_time=1) == []
        (deferred,) = await receiver.receive_deferred_messages(first.sequence_number)
        assert str(deferred) == "deferred"


async def test_many_messages_and_expired_ones_are_ended(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue, later: Advance
) -> None:
    """Expired ones are not among those that are counted."""
    queue = await make_queue(requires_session=True)
    await send(client, queue, "s", *(str(number) for number in range(250)))
    async with client.get_queue_sender(queue) as sender:
        short = ServiceBusMessage("expired", session_id="s", time_to_live=1)
        await sender.send_messages(short)
    await later(queue, 5)
    assert await administration.purge_session(queue, "s") in {250, 251}
    assert await administration.purge_session(queue, "s") == 0
    assert (await administration.get_queue_runtime_properties(queue)).active_message_count == 0


async def test_a_session_that_a_receiver_has_is_left_to_it(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_queue: MakeQueue
) -> None:
    """Until its lock is broken."""
    queue = await make_queue(requires_session=True)
    await send(client, queue, "s", "1", "2")
    async with client.get_queue_receiver(queue, session_id="s") as receiver:
        assert await all_of(receiver, 1) == ["1"]
        for end in (administration.purge_session, administration.dead_letter_session):
            with pytest.raises(SessionCannotBeLockedError, match="session 's'"):
                await end(queue, "s")
        await administration.break_lock(queue, session_id="s")
        assert await administration.purge_session(queue, "s") == 2


async def test_an_entity_without_sessions_has_none_of_this(
    administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """The error says so."""
    complaint = "has no sessions: requires_session is set when"
    with pytest.raises(ServiceBusError, match=complaint):
        await administration.get_session_state(queue, "s")
    with pytest.raises(ServiceBusError, match=complaint):
        await administration.set_session_state(queue, "s", "x")
    for end in (administration.purge_session, administration.dead_letter_session):
        with pytest.raises(ServiceBusError, match=complaint):
            await end(queue, "s")
    with pytest.raises(ValueError, match="reason has 5,000 characters"):
        await administration.dead_letter_session(queue, "s", reason="x" * 5_000)
