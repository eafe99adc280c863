# Generated from tests/contract/aio/test_sessions.py by tools/generate_blocking.py. Do not edit.
"""Sessions: their order, their locks, the receivers that get them, and the outcome for their messages."""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest

from kafkabus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from kafkabus._sync.compat import sleep
from kafkabus.exceptions import (
    InvalidOperationError,
    MessageNotFoundError,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from tests.contract.conftest import Advance, MakeQueue
from tests.contract.receiving import receive_all

PATIENCE = 60.0


@pytest.fixture(params=[True, False], ids=["partitioned", "plain"])
def sessions(make_queue: MakeQueue, request: pytest.FixtureRequest) -> str:
    """A new queue with sessions."""
    return make_queue(partitioned=request.param, requires_session=True)


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    """A new partitioned queue with sessions."""
    return make_queue(requires_session=True)


def test_receive_and_delete_ends_with_the_lock(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """A receiver that waits for as long as the lock lasts, here a second, has nothing to settle, and lost nothing."""
    queue = make_queue(requires_session=True, lock_duration=timedelta(seconds=1))
    send(client, queue, "a", count=3)
    with client.get_queue_receiver(
        queue, session_id="a", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=1
    ) as receiver:
        assert [str(message) for message in receiver] == ["a0", "a1", "a2"]
        with pytest.raises(SessionLockLostError):
            receiver.receive_messages(max_wait_time=0.1)


def send(client: ServiceBusClient, queue: str, *sessions: str, count: int = 1, start: int = 0) -> None:
    """Send numbered messages to sessions, one after the other in turn."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(
            [
                ServiceBusMessage(f"{session}{number}", session_id=session)
                for number in range(start, start + count)
                for session in sessions
            ]
        )


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    """Return the bodies of messages."""
    return [str(message) for message in messages]


def test_a_session_is_received_in_order_by_whoever_locked_it(client: ServiceBusClient, sessions: str) -> None:
    """Other messages in the queue do not change that."""
    send(client, sessions, "a", "b", count=5)
    with client.get_queue_receiver(sessions, session_id="a") as receiver:
        session = receiver.session
        assert session is not None
        assert session.session_id == "a"
        assert session.locked_until_utc is not None
        first = receiver.receive_messages(2, max_wait_time=60)
        rest = receiver.receive_messages(10, max_wait_time=60)
        assert bodies(first + rest) == ["a0", "a1", "a2", "a3", "a4"]
        assert all(message.session_id == "a" for message in first)
        assert all(message.locked_until_utc is None and message.lock_token is not None for message in first)
        receiver.complete_messages(first + rest)
        assert receiver.receive_messages(1, max_wait_time=0.2) == []
        send(client, sessions, "a", start=5)
        assert bodies(receiver.receive_messages(10, max_wait_time=60)) == ["a5"]


def test_sessions_whose_names_differ_behind_a_nul_are_different(client: ServiceBusClient, sessions: str) -> None:
    """The whole name counts."""
    names = ["a", "a\0", "a\0b"]
    send(client, sessions, *names)
    for name in reversed(names):
        with client.get_queue_receiver(sessions, session_id=name) as receiver:
            assert bodies(receive_all(receiver, 1)) == [f"{name}0"]


def test_what_is_given_back_comes_again_in_its_place(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """A receiver abandoned it, was closed, or let the lock expire. An expired lock counts a delivery."""
    send(client, queue, "a", count=4)
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        messages = receiver.receive_messages(3, max_wait_time=60)
        receiver.abandon_message(messages[1])
        again = receiver.receive_messages(1, max_wait_time=60)
        assert [(str(message), message.delivery_count) for message in again] == [("a1", 1)]
        receiver.complete_message(messages[0])
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        messages = receiver.receive_messages(10, max_wait_time=60)
        assert [(str(message), message.delivery_count) for message in messages] == [("a1", 1), ("a2", 0), ("a3", 0)]
        later(queue, 61)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(messages[0])
        with client.get_queue_receiver(queue, session_id="a") as another:
            messages = another.receive_messages(10, max_wait_time=60)
            assert [(str(one), one.delivery_count) for one in messages] == [("a1", 2), ("a2", 1), ("a3", 1)]


def test_what_comes_again_within_a_lock_is_settled_like_the_rest(client: ServiceBusClient, queue: str) -> None:
    """It was abandoned or deferred, and is received once more, beside messages that were held all the time."""
    send(client, queue, "a", count=6)
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        messages = receiver.receive_messages(5, max_wait_time=60)
        receiver.abandon_messages([messages[0], messages[2]])
        again = receiver.receive_messages(2, max_wait_time=60)
        assert bodies(again) == ["a0", "a2"]
        receiver.defer_message(messages[1])
        (deferred,) = receiver.receive_deferred_messages(messages[1].sequence_number or 0)
        receiver.complete_messages([*again, deferred, messages[3], messages[4]])
        rest = receiver.receive_messages(10, max_wait_time=60)
        assert bodies(rest) == ["a5"]
        receiver.complete_messages(rest)
        assert receiver.peek_messages(10, sequence_number=1) == []


def test_a_lost_lock_is_said_of_every_later_use(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """Receiving, settling, renewing and recalling raise the error."""
    send(client, queue, "a", count=2)
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=60)
        session = receiver.session
        assert session is not None
        before = session.locked_until_utc
        later(queue, 30)
        renewed = session.renew_lock()
        assert before is not None
        assert renewed == session.locked_until_utc
        assert renewed >= before + timedelta(seconds=25)
        with pytest.raises(TypeError, match=r"session.renew_lock"):
            receiver.renew_message_lock(message)
        later(queue, 61)
        with pytest.raises(SessionLockLostError):
            session.renew_lock()
        for use in (
            receiver.complete_message,
            receiver.abandon_message,
            receiver.defer_message,
            receiver.dead_letter_message,
        ):
            with pytest.raises(SessionLockLostError):
                use(message)
        with pytest.raises(SessionLockLostError):
            receiver.receive_messages(1, max_wait_time=1)
        with pytest.raises(SessionLockLostError):
            receiver.receive_deferred_messages(message.sequence_number or 0)
        with pytest.raises(SessionLockLostError):
            next(iter(receiver))


def test_a_session_of_a_closed_receiver_is_nobodys(client: ServiceBusClient, queue: str) -> None:
    """That holds whether the receiver was opened or not. The next receiver gets the session."""
    send(client, queue, "a")
    for opened in (True, False):
        receiver = client.get_queue_receiver(queue, session_id="a")
        session = receiver.session
        assert session is not None
        if opened:
            assert session.get_state() is None
        receiver.close()
        for use in (session.renew_lock, session.get_state, partial(session.set_state, "x"), receiver.receive_messages):
            with pytest.raises(ValueError, match="already been shutdown"):
                use()
        with client.get_queue_receiver(queue, session_id="a") as another:
            assert bodies(another.receive_messages(1, max_wait_time=60)) == ["a0"]


def test_a_session_is_iterated_until_its_lock_is_over(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """A message still comes just before that.

    A receiver needs no ``with``, and waits for a session as its settings say.
    """
    send(client, queue, "a", count=3)
    receiver = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE)
    got = [next(iter(receiver))]
    later(queue, 55)
    got.append(next(iter(receiver)))
    later(queue, 10)
    with pytest.raises(SessionLockLostError):
        next(iter(receiver))
    assert bodies(got) == ["a0", "a1"]
    receiver.close()
    waiting = client.get_queue_receiver(queue, session_id="b", max_wait_time=0.2)
    assert [str(message) for message in waiting] == []
    none = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.2)
    with client.get_queue_receiver(queue, session_id="a"):
        with pytest.raises(OperationTimeoutError, match=r"within 0.2 s"):
            next(iter(none))


def test_a_session_is_one_receivers_at_a_time(
    client: ServiceBusClient, other_client: ServiceBusClient, sessions: str
) -> None:
    """Other receivers cannot take it by name, and get other sessions. Closing gives it up."""
    send(client, sessions, "a", "b")
    with client.get_queue_receiver(sessions, session_id="a") as receiver:
        for one in (client, other_client):
            with pytest.raises(SessionCannotBeLockedError, match=r"'a'.*locked by another"):
                with one.get_queue_receiver(sessions, session_id="a"):
                    pass
        with other_client.get_queue_receiver(
            sessions, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE
        ) as another:
            assert another.session is not None
            assert another.session.session_id == "b"
            assert bodies(another.receive_messages(5, max_wait_time=60)) == ["b0"]
        assert bodies(receiver.receive_messages(5, max_wait_time=60)) == ["a0"]
    with other_client.get_queue_receiver(sessions, session_id="a") as another:
        assert bodies(another.receive_messages(5, max_wait_time=60)) == ["a0"]


def test_no_session_in_time_is_an_error_and_a_named_one_need_have_no_messages(
    client: ServiceBusClient, queue: str
) -> None:
    """The error comes after the receiver's wait, or the call's own if that is shorter."""
    with pytest.raises(OperationTimeoutError, match=r"within 0.2 s"):
        with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.2):
            pass
    receiver = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION)
    with pytest.raises(OperationTimeoutError, match=r"within 0.3 s"):
        receiver.receive_messages(1, max_wait_time=0.3)
    assert receiver.session is not None
    assert receiver.session.session_id is None
    assert receiver.session.locked_until_utc is None
    with client.get_queue_receiver(queue, session_id="", max_wait_time=0.2) as named:
        assert [str(message) for message in named] == []
        assert named.session is not None
        assert named.session.session_id == ""


def test_many_receivers_share_many_sessions(client: ServiceBusClient, queue: str) -> None:
    """Each receiver takes one session after the other until none is left. Every message comes once, in order."""
    names = [f"s{number}-" for number in range(12)]
    send(client, queue, *names, count=20)
    received: dict[str, list[str]] = defaultdict(list)

    def work(number: int) -> None:
        del number
        while True:
            receiver = client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2)
            with receiver:
                assert receiver.session is not None
                for message in receiver:
                    received[receiver.session.session_id or ""].append(str(message))
                    receiver.complete_message(message)
                    if len(received[receiver.session.session_id or ""]) == 20:
                        break

    with ThreadPoolExecutor(5) as pool:
        ended = [future.exception() for future in [pool.submit(work, number) for number in range(5)]]
    assert [type(one) for one in ended] == [OperationTimeoutError] * 5
    assert received == {name: [f"{name}{number}" for number in range(20)] for name in names}


def test_a_session_that_is_held_keeps_nobody_else_waiting(make_queue: MakeQueue, client: ServiceBusClient) -> None:
    """A session with many messages in the same partition does not hold others up, either."""
    queue = make_queue(partitioned=False, requires_session=True)
    send(client, queue, "stuck", count=1500)
    send(client, queue, "a", "b")
    with client.get_queue_receiver(queue, session_id="stuck") as holder:
        assert len(holder.receive_messages(10, max_wait_time=60)) == 10
        seen: set[str] = set()
        for _ in range(2):
            with client.get_queue_receiver(
                queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE
            ) as receiver:
                (message,) = receiver.receive_messages(5, max_wait_time=60)
                receiver.complete_message(message)
                seen.add(str(message))
        assert seen == {"a0", "b0"}
        rest: list[str] = []
        while len(rest) < 1490:
            rest += bodies(holder.receive_messages(500, max_wait_time=60))
        assert rest == [f"stuck{number}" for number in range(10, 1500)]


def test_scheduled_messages_of_other_sessions_hide_none_from_a_peek(
    client: ServiceBusClient, make_queue: MakeQueue
) -> None:
    """A look goes on behind them, however few messages it asks for."""
    name = make_queue(partitioned=False, requires_session=True)
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name, session_id="a") as receiver:
        for session in "bab":
            scheduled = [ServiceBusMessage(f"{session}{number}", session_id=session) for number in range(5)]
            sender.schedule_messages(scheduled, later)
        sender.send_messages([ServiceBusMessage(f"a{number}", session_id="a") for number in range(5, 8)])
        seen: list[str] = []
        while found := receiver.peek_messages(2):
            seen += bodies(found)
        assert seen == [f"a{number}" for number in range(8)]


def test_messages_of_a_session_are_deferred_peeked_and_dead_lettered(client: ServiceBusClient, queue: str) -> None:
    """A receiver of the same session gets deferred messages. The dead-letter queue has no sessions."""
    send(client, queue, "a", "b", count=4)
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert bodies(receiver.peek_messages(10)) == ["a0", "a1", "a2", "a3"]
        first, second, third, fourth = receiver.receive_messages(4, max_wait_time=60)
        receiver.defer_message(first)
        receiver.dead_letter_message(second, reason="because")
        receiver.complete_message(third)
        assert bodies(receiver.peek_messages(10, sequence_number=1)) == ["a0", "a3"]
        deferred = first.sequence_number or 0
    with client.get_queue_receiver(queue, session_id="b") as other:
        assert bodies(other.peek_messages(10)) == ["b0", "b1", "b2", "b3"]
        with pytest.raises(MessageNotFoundError):
            other.receive_deferred_messages(deferred)
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        (again,) = receiver.receive_deferred_messages(deferred)
        assert (str(again), again.delivery_count) == ("a0", 0)
        receiver.complete_message(again)
        assert bodies(receiver.receive_messages(5, max_wait_time=60)) == [str(fourth)]
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        (message,) = dead.receive_messages(5, max_wait_time=60)
        assert (str(message), message.session_id, message.dead_letter_reason) == ("a1", "a", "because")
        assert message.locked_until_utc is not None
        dead.complete_message(message)


def test_a_message_delivered_too_often_leaves_its_session(
    make_queue: MakeQueue, client: ServiceBusClient, later: Advance
) -> None:
    """The other messages of the session go on."""
    queue = make_queue(requires_session=True, max_delivery_count=2)
    send(client, queue, "a", count=2)
    for _ in range(2):
        with client.get_queue_receiver(queue, session_id="a") as receiver:
            assert bodies(receiver.receive_messages(1, max_wait_time=60)) == ["a0"]
            later(queue, 61)
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert bodies(receiver.receive_messages(5, max_wait_time=PATIENCE)) == ["a1"]
    with client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
        (message,) = dead.receive_messages(5, max_wait_time=60)
        assert (str(message), message.dead_letter_reason) == ("a0", "MaxDeliveryCountExceeded")
        dead.complete_message(message)


def test_received_and_deleted_in_order(client: ServiceBusClient, queue: str) -> None:
    """Messages that were not handed out are still there."""
    send(client, queue, "a", count=5)
    with client.get_queue_receiver(
        queue, session_id="a", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        assert bodies(receiver.receive_messages(3, max_wait_time=60)) == ["a0", "a1", "a2"]
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert bodies(receiver.receive_messages(5, max_wait_time=60)) == ["a3", "a4"]


def test_prefetched_messages_are_given_back_when_the_receiver_is_closed(client: ServiceBusClient, queue: str) -> None:
    """No delivery counts, and the order stays."""
    send(client, queue, "a", count=6)
    with client.get_queue_receiver(queue, session_id="a", prefetch_count=3) as receiver:
        assert bodies(receiver.receive_messages(1, max_wait_time=60)) == ["a0"]
        assert bodies(receiver.receive_messages(1, max_wait_time=60)) == ["a1"]
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        messages = receiver.receive_messages(10, max_wait_time=60)
        assert [(str(one), one.delivery_count) for one in messages] == [(f"a{number}", 0) for number in range(6)]


def test_a_renewer_keeps_the_lock_of_a_session(make_queue: MakeQueue, client: ServiceBusClient) -> None:
    """The renewer gets the receiver, and registers it when the session is opened."""
    queue = make_queue(requires_session=True, lock_duration=timedelta(seconds=1))
    send(client, queue, "a")
    with (
        AutoLockRenewer() as renewer,
        client.get_queue_receiver(
            queue,
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=PATIENCE,
            auto_lock_renewer=renewer,
        ) as receiver,
    ):
        session = receiver.session
        assert session is not None
        (message,) = receiver.receive_messages(1, max_wait_time=60)
        with pytest.raises(ValueError, match=r"register receiver.session"):
            renewer.register(receiver, message)
        seen = {session.locked_until_utc}
        deadline = time.monotonic() + PATIENCE
        while len(seen) < 4:
            assert time.monotonic() < deadline
            sleep(0.05)
            seen.add(session.locked_until_utc)
        receiver.complete_message(message)


def test_what_is_kept_of_a_session_outlives_its_receivers(
    client: ServiceBusClient, other_client: ServiceBusClient, sessions: str, later: Advance
) -> None:
    """The state is kept as bytes, until a receiver clears it."""
    with client.get_queue_receiver(sessions, session_id="a") as receiver:
        assert receiver.session is not None
        assert receiver.session.get_state() is None
        receiver.session.set_state("ä", timeout=5)
        assert receiver.session.get_state(timeout=5) == "ä".encode()
        receiver.session.set_state(bytearray(b"\x00\xff"))
    with other_client.get_queue_receiver(sessions, session_id="a") as receiver:
        assert receiver.session is not None
        assert receiver.session.get_state() == b"\x00\xff"
        receiver.session.set_state(b"")
        assert receiver.session.get_state() == b""
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None
        receiver.session.set_state("last")
        with pytest.raises(TypeError, match=r"a state of type int"):
            receiver.session.set_state(1)  # type: ignore[arg-type]
        with pytest.raises(MessageSizeExceededError, match=r"nothing was changed"):
            receiver.session.set_state(bytes(2_000_000))
        later(sessions, 61)
        with pytest.raises(SessionLockLostError):
            receiver.session.set_state("stale")
        with pytest.raises(SessionLockLostError):
            receiver.session.get_state()
    with client.get_queue_receiver(sessions, session_id="a") as receiver:
        assert receiver.session is not None
        assert receiver.session.get_state() == b"last"


def test_sessions_are_listed_by_when_their_state_was_set(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """A cutoff leaves out sessions whose state was set before it, and those without a state."""
    send(client, queue, "waits")
    moments: list[datetime] = []
    for name in ("early", "late"):
        with client.get_queue_receiver(queue, session_id=name) as receiver:
            assert receiver.session is not None
            receiver.session.set_state(name)
            until = receiver.session.locked_until_utc
            assert until is not None
            # Locks last for a minute.
            moments.append(until - timedelta(minutes=1))
        later(queue, 30)
    cutoff = moments[0] + timedelta(seconds=10)
    assert {"early", "late"} <= {str(name) for name in client.list_queue_sessions(queue)}
    found = [str(name) for name in client.list_queue_sessions(queue, state_updated_after=cutoff)]
    assert found == ["late"]


def test_sessions_are_listed(client: ServiceBusClient, sessions: str) -> None:
    """The list has the ids of sessions with messages or a lock, page by page too."""
    assert [str(name) for name in client.list_queue_sessions(sessions)] == []
    send(client, sessions, "b", "a")
    with client.get_queue_receiver(sessions, session_id="locked"):
        assert [str(name) for name in client.list_queue_sessions(sessions)] == ["a", "b", "locked"]
    names = [f"s{number:03}" for number in range(150)]
    send(client, sessions, *names)
    pages = [[str(name) for name in page] for page in client.list_queue_sessions(sessions).by_page()]
    assert [len(page) for page in pages] == [100, 52]
    assert [name for page in pages for name in page] == ["a", "b", *names]


def test_what_does_not_fit_a_queue_with_sessions_is_refused(
    client: ServiceBusClient, queue: str, make_queue: MakeQueue
) -> None:
    """Messages without a session, receivers without one, and sessions of queues that have none are refused."""
    with client.get_queue_sender(queue) as sender:
        with pytest.raises(InvalidOperationError, match=r"requires sessions.*nothing was sent"):
            sender.send_messages([ServiceBusMessage("x", session_id="a"), ServiceBusMessage("y")])
    receiver = client.get_queue_receiver(queue)
    with pytest.raises(ServiceBusError, match=r"has sessions: receive from it with session_id"):
        receiver.receive_messages(1, max_wait_time=1)
    with pytest.raises(ServiceBusError, match=r"has sessions"):
        receiver.peek_messages(1)
    with pytest.raises(ServiceBusError, match=r"has sessions"):
        with client.get_queue_receiver(queue):
            pass
    plain = make_queue()
    with pytest.raises(ServiceBusError, match=r"has no sessions"):
        with client.get_queue_receiver(plain, session_id="a"):
            pass
    with pytest.raises(ServiceBusError, match=r"has no sessions"):
        assert [str(name) for name in client.list_queue_sessions(plain)]
    with pytest.raises(ServiceBusError, match=r"session ids are texts"):
        client.get_queue_receiver(queue, session_id=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"sub-queues have no sessions"):
        client.get_queue_receiver(queue, session_id="a", sub_queue="deadletter")
    with pytest.raises(ValueError, match=r"without session_id"):
        client.get_queue_receiver(queue, session_id="a").purge_messages()
