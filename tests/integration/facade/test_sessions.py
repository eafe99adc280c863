"""Sessions on real logs: a Redis that lost everything, plain producers, several clients, states that are stored late."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from redis import Redis

from kafkabus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import Ledger, ListUpdatedStates, StoredSessionState
from kafkabus._ledger.snapshot import StoredState
from kafkabus._sync.context import ClientContext
from kafkabus._sync.dispositions.transfer import Transfers
from kafkabus._sync.kafka.compacted_topic import CompactedTopic
from kafkabus._sync.stores.session_states import SessionStates
from kafkabus.embedded import EmbeddedRuntime, RunningNamespace
from kafkabus.exceptions import OperationTimeoutError, ServiceBusCommunicationError, SessionLockLostError
from kafkabus_mapping.keys import partition_of
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.integration.facade.test_rebuild import empty, holds, wait_for_checkpoint
from tests.kafka_log import KAFKA_LOG
from tests.queues import new_queue

PATIENCE = 20.0
NAMESPACE = "sessions"
"""A namespace whose Redis may be emptied; see ``own_runtime``."""


def send(client: ServiceBusClient, queue: str, sessions: list[str], count: int) -> None:
    """Send numbered messages to sessions, one after the other in turn."""
    client.get_queue_sender(queue).send_messages(
        [ServiceBusMessage(f"{session}{number}", session_id=session) for number in range(count) for session in sessions]
    )


def receive_all(client: ServiceBusClient, queue: str) -> dict[str, list[ServiceBusReceivedMessage]]:
    """Receive and complete all messages, session by session, and return them."""
    found: dict[str, list[ServiceBusReceivedMessage]] = {}
    while True:
        receiver = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
        try:
            with receiver:
                assert receiver.session is not None
                name = receiver.session.session_id or ""
                while messages := receiver.receive_messages(100, max_wait_time=0.5):
                    receiver.complete_messages(messages)
                    found.setdefault(name, []).extend(messages)
        except OperationTimeoutError:
            return found


def test_sessions_and_their_states_survive_an_emptied_redis(
    own_runtime: EmbeddedRuntime, context: ClientContext
) -> None:
    """Settled messages stay settled, the rest comes in order, and held messages count as delivered."""
    queue = new_queue(own_runtime.connection_string, requires_session=True)
    names = [f"s{number}-" for number in range(5)]
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        send(client, queue, names, 40)
        with client.get_queue_receiver(queue, session_id="s0-") as receiver:
            messages = receiver.receive_messages(30, max_wait_time=60)
            assert len(messages) == 30
            receiver.complete_messages(messages[:20])
            assert receiver.session is not None
            receiver.session.set_state("twenty")
            wait_for_checkpoint(context, queue, 0, lambda one: one.cursor == 200 and holds(one.waiting) == 180)
            empty(own_runtime)
            found = receive_all(client, queue)
            assert receiver.session.session_id == "s0-"
        assert {name: [str(message) for message in several] for name, several in found.items()} == {
            name: [f"{name}{number}" for number in range(20 if name == "s0-" else 0, 40)] for name in names
        }
        assert [message.delivery_count for message in found["s0-"]] == [1] * 10 + [0] * 10
        with client.get_queue_receiver(queue, session_id="s0-") as receiver:
            assert receiver.session is not None
            assert receiver.session.get_state() == b"twenty"


def test_a_plain_producers_records_without_a_session_are_dead_lettered(runtime: RunningNamespace) -> None:
    """Records in another partition than their session's are moved there, and received like the others."""
    queue = new_queue(runtime.connection_string, requires_session=True, enable_partitioning=True)
    right, wrong = partition_of("s", 16), (partition_of("s", 16) + 1) % 16
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
    for partition, body, session in (
        (right, "none", None),
        (right, "broken", b"\xff"),
        (wrong, "astray", b"s"),
        (right, "fine", b"s"),
    ):
        producer.produce(
            f"tests.{queue}", body, partition=partition, headers={} if session is None else {"sb-session-id": session}
        )
    assert producer.flush(30) == 0
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        found = receive_all(client, queue)["s"]
        assert sorted(map(str, found)) == ["astray", "fine"]
        with client.get_queue_receiver(queue, sub_queue="deadletter") as receiver:
            dead: dict[str, str | None] = {}
            while len(dead) < 2:
                for message in receiver.receive_messages(2, max_wait_time=PATIENCE):
                    dead[str(message)] = message.dead_letter_reason
                    receiver.complete_message(message)
    assert dead == dict.fromkeys(("none", "broken"), "SessionIdMissing")


def test_a_session_moves_from_client_to_client_in_order(runtime: RunningNamespace) -> None:
    """Messages that one client filed are read again by the next one."""
    queue = new_queue(runtime.connection_string, requires_session=True)
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as one,
        ServiceBusClient.from_connection_string(runtime.connection_string) as another,
    ):
        send(one, queue, ["a", "b"], 60)
        bodies: list[str] = []
        for turn in range(12):
            with (one if turn % 2 else another).get_queue_receiver(queue, session_id="a") as receiver:
                messages = receiver.receive_messages(5, max_wait_time=PATIENCE)
                receiver.complete_messages(messages)
                bodies += map(str, messages)
        assert bodies == [f"a{number}" for number in range(len(bodies))]
        rest = receive_all(another, queue)
        assert bodies + [str(message) for message in rest.get("a", ())] == [f"a{number}" for number in range(60)]
        assert [str(message) for message in rest["b"]] == [f"b{number}" for number in range(60)]


def test_a_redis_that_answers_late_does_not_change_a_sessions_order(own_runtime: EmbeddedRuntime) -> None:
    """Messages that were apparently granted when the lock was nearly over are handed out, or come again in order."""
    queue = new_queue(own_runtime.connection_string, requires_session=True, lock_duration=timedelta(seconds=8))
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        send(client, queue, ["a"], 6)
        with client.get_queue_receiver(queue, session_id="a") as receiver:
            assert receiver.session is not None
            messages = receiver.receive_messages(2, max_wait_time=PATIENCE)
            receiver.session.renew_lock()
            with Redis.from_url(own_runtime.redis_url) as redis:
                # The delay is more than half of the lock, so that twice as much is more than all of it.
                redis.client_pause(4500)
            for _ in range(2):
                messages += receiver.receive_messages(2, max_wait_time=PATIENCE)
        assert [str(message) for message in messages] == [f"a{number}" for number in range(6)]
        assert [message.delivery_count for message in messages] == [0] * 6


def test_a_state_that_was_not_stored_is_stored_by_who_reads_it(
    own_runtime: EmbeddedRuntime, context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that was seen once is therefore not lost with Redis."""
    queue = new_queue(own_runtime.connection_string, requires_session=True)
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:

        def refuse(*_arguments: object, **_named: object) -> list[int]:
            raise ServiceBusCommunicationError("not stored")

        with client.get_queue_receiver(queue, session_id="a") as receiver:
            assert receiver.session is not None
            receiver.session.set_state("first")
            with monkeypatch.context() as patch:
                patch.setattr(CompactedTopic, "store", refuse)
                with pytest.raises(ServiceBusCommunicationError):
                    receiver.session.set_state("second")
            assert receiver.session.get_state() == b"second"
        entity = context.catalog.entity(EntityPath(queue))
        (state,) = states_of(context, entity)
        assert state.session == "a"
        empty(own_runtime)
        with client.get_queue_receiver(queue, session_id="a") as receiver:
            assert receiver.session is not None
            assert receiver.session.get_state() == b"second"


def states_of(context: ClientContext, entity: Entity) -> list[StoredState]:
    """Return the states of a plain queue's sessions, as they are stored."""
    (ledger,) = entity.ledgers
    return context.stores.session_states.read({ledger: entity})[ledger]


def test_a_state_that_comes_late_does_not_stand(own_runtime: EmbeddedRuntime, context: ClientContext) -> None:
    """Its writer learns the present state, and stores that again, even if the state was cleared."""
    queue = new_queue(own_runtime.connection_string, requires_session=True)
    entity = context.catalog.entity(EntityPath(queue))
    name = f"late-{uuid.uuid4().hex[:8]}"
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        for last, expected in (("second", b"second"), (None, None)):
            with client.get_queue_receiver(queue, session_id=name) as receiver:
                assert receiver.session is not None
                receiver.session.set_state("first")
                (before,) = (one for one in states_of(context, entity) if one.session == name)
                receiver.session.set_state(last)
                late = StoredSessionState(name, before.version, before.updated, before.value, False)
                context.stores.session_states.store(entity, entity.ledgers[0], late)
                found = [one for one in states_of(context, entity) if one.session == name]
                assert len(found) == (expected is not None)
                assert receiver.session.get_state() == expected


def test_a_state_that_redis_lost_while_it_was_stored_does_not_stand(
    own_runtime: EmbeddedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock by which it was set is lost as well, and its writer gets that error."""
    queue = new_queue(own_runtime.connection_string, requires_session=True)
    store = CompactedTopic.store
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:

        def lose(*arguments: Any, **named: Any) -> list[int]:
            patch.undo()
            empty(own_runtime)
            # The ledger is made again from the present state.
            list(client.list_queue_sessions(queue))
            return store(*arguments, **named)

        for before in (None, b"first"):
            with client.get_queue_receiver(queue, session_id="a") as receiver:
                assert receiver.session is not None
                receiver.session.set_state(before)
                with monkeypatch.context() as patch:
                    patch.setattr(CompactedTopic, "store", lose)
                    with pytest.raises(SessionLockLostError, match="was not changed"):
                        receiver.session.set_state("lost")
            for _ in range(2):
                with client.get_queue_receiver(queue, session_id="a") as receiver:
                    assert receiver.session is not None
                    assert receiver.session.get_state() == before
                empty(own_runtime)


def test_a_state_that_was_set_while_another_client_read_them_stands(
    own_runtime: EmbeddedRuntime, context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis was emptied twice: a client that read the checkpoint before the second time reads it again."""
    queue = new_queue(own_runtime.connection_string, requires_session=True)
    read = SessionStates.read
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:

        def read_before(*arguments: Any) -> dict[Ledger, list[StoredState]]:
            patch.undo()
            states = read(*arguments)
            with client.get_queue_receiver(queue, session_id="a") as receiver:
                assert receiver.session is not None
                receiver.session.set_state("set")
            empty(own_runtime)
            return states

        entity = context.catalog.entity(EntityPath(queue))
        empty(own_runtime)
        with monkeypatch.context() as patch:
            patch.setattr(SessionStates, "read", read_before)
            context.ledger_client.execute(ListUpdatedStates(entity.ledgers[0], -1))
        with client.get_queue_receiver(queue, session_id="a") as receiver:
            assert receiver.session is not None
            assert receiver.session.get_state() == b"set"


def test_what_cannot_be_moved_is_in_nobodys_way(
    own_runtime: EmbeddedRuntime, context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rebuild all waiting messages are sorted. They are moved once that works again, and no delivery counts."""
    queue = new_queue(own_runtime.connection_string, requires_session=True)
    producer = Producer({"bootstrap.servers": own_runtime.bootstrap_servers}, logger=KAFKA_LOG)
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        with monkeypatch.context() as patch:
            patch.setattr(Transfers, "dead_letter", _fail)
            producer.produce(f"sessions.{queue}", "astray", partition=0)
            assert producer.flush(30) == 0
            send(client, queue, ["a"], 3)
            assert list(client.list_queue_sessions(queue)) == ["a"]
            wait_for_checkpoint(context, queue, 0, lambda one: one.cursor == 4 and holds(one.waiting) == 4)
            empty(own_runtime)
            found = receive_all(client, queue)
            assert [str(message) for message in found["a"]] == ["a0", "a1", "a2"]
        advance(own_runtime.redis_url, "sessions", queue, 61)
        send(client, queue, ["b"], 1)
        assert set(receive_all(client, queue)) == {"b"}
        with client.get_queue_receiver(queue, sub_queue="deadletter") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=PATIENCE)
            assert (str(message), message.dead_letter_reason) == ("astray", "SessionIdMissing")
            receiver.complete_message(message)


def _fail(*_arguments: object, **_named: object) -> None:
    raise ServiceBusCommunicationError("not moved")
