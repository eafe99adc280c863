# Generated from tests/contract/aio/test_postponed.py by tools/generate_blocking.py. Do not edit.
"""Messages that are given back with a delay, by their receiver or by a retry policy."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from kafkabus import ServiceBusSubQueue as SubQueue
from kafkabus.exceptions import MessageAlreadySettled, MessageLockLostError, OperationTimeoutError
from kafkabus.management import RetryPolicy, ServiceBusAdministrationClient
from tests.contract.conftest import Advance, MakeQueue, MakeTopic

PATIENCE = 60.0
"""How long, in seconds, tests wait at most for a message that should come."""
HOUR = timedelta(hours=1)
JUST_BEFORE, BEHIND = 3500.0, 200.0
"""How long, in seconds, tests wait to be a little before the end of an hour, and then to be behind it."""


def send(client: ServiceBusClient, queue: str, *bodies: str, **parts: Any) -> None:
    """Send messages."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, **parts) for body in bodies])


def next_of(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """Receive the next message."""
    (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
    return message


def nothing_of(receiver: ServiceBusReceiver) -> None:
    """Assert that there is no message to receive."""
    assert receiver.receive_messages(5, max_wait_time=1) == []


def active(administration: ServiceBusAdministrationClient, queue: str) -> int:
    """Return how many messages a queue has."""
    properties = administration.get_queue_runtime_properties(queue)
    return properties.active_message_count or 0


@pytest.mark.parametrize("delay", [HOUR, 3600, 3600.0])
def test_it_comes_again_after_its_delay(
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    queue: str,
    later: Advance,
    delay: timedelta | float,
) -> None:
    """To any receiver, with the same number and one delivery more; until then it counts as active, and peek shows it."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver, other_client.get_queue_receiver(queue) as other:
        first = next_of(receiver)
        receiver.abandon_message(first, delay=delay)
        with pytest.raises(MessageAlreadySettled):
            receiver.complete_message(first)
        later(queue, JUST_BEFORE)
        nothing_of(other)
        (seen,) = other.peek_messages(sequence_number=1)
        assert (seen.state, seen.delivery_count) == (ServiceBusMessageState.ACTIVE, 1)
        assert seen.postponed_until_utc is not None
        assert seen.locked_until_utc is None
        assert active(administration, queue) == 1
        later(queue, BEHIND)
        again = next_of(other)
        assert (again.sequence_number, again.delivery_count) == (first.sequence_number, 1)
        assert again.postponed_until_utc is None
        other.complete_message(again)
    assert active(administration, queue) == 0


def test_peek_says_when_it_comes(client: ServiceBusClient, queue: str) -> None:
    """In an hour, on the ledger's clock."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        message = next_of(receiver)
        begun = datetime.now(timezone.utc)
        receiver.abandon_message(message, delay=HOUR)
        (seen,) = receiver.peek_messages(sequence_number=1)
        assert seen.postponed_until_utc is not None
        assert abs(seen.postponed_until_utc - begun - HOUR) < timedelta(minutes=2)
        assert "postponed_until_utc" in repr(seen)


def test_it_is_there_on_time(client: ServiceBusClient, queue: str) -> None:
    """A receiver that waits gets it without an upkeep service; the test waits for the delay, a second."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        message = next_of(receiver)
        receiver.abandon_message(message, delay=1)
        again = next_of(receiver)
        assert again.locked_until_utc is not None
        receiver.complete_message(again)


def test_others_overtake_it(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """It holds up no message behind it, and several can be postponed together."""
    send(client, queue, "1", "2", "3", partition_key="k")
    with client.get_queue_receiver(queue) as receiver:
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < 3:
            messages += receiver.receive_messages(3, max_wait_time=PATIENCE)
        receiver.abandon_messages(messages[:2], delay=HOUR)
        receiver.abandon_message(messages[2])
        third = next_of(receiver)
        assert str(third) == "3"
        receiver.complete_message(third)
        nothing_of(receiver)
        later(queue, 3700)
        came = [str(next_of(receiver)) for _ in range(2)]
        assert came == ["1", "2"]


def test_zero_is_at_once(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """Also if there is a retry policy."""
    queue = make_queue(retry_policy=RetryPolicy.fixed(HOUR))
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        for count in range(3):
            message = next_of(receiver)
            assert message.delivery_count == count
            receiver.abandon_message(message, delay=0)


def test_the_last_delivery_is_not_postponed(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """The message is dead-lettered at once, after an abandon as after its lock expired."""
    queue = make_queue(max_delivery_count=2)
    send(client, queue, "1")
    with (
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER) as dead,
    ):
        receiver.abandon_message(next_of(receiver), delay=0)
        receiver.abandon_message(next_of(receiver), delay=HOUR)
        letter = next_of(dead)
        assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_dead_letters_can_be_postponed(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """A dead-letter queue has no retry policy, and delays that are asked for."""
    send(client, queue, "1")
    dead_letters = f"{queue}/$DeadLetterQueue"
    with (
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER) as dead,
    ):
        receiver.dead_letter_message(next_of(receiver))
        dead.abandon_message(next_of(dead), delay=HOUR)
        nothing_of(dead)
        later(dead_letters, 3700)
        dead.complete_message(next_of(dead))


def test_changed_properties_go_along(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """A message can be changed and postponed at once."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        receiver.abandon_message(next_of(receiver), delay=HOUR, properties_to_modify={"tried": 1})
        later(queue, 3700)
        assert (next_of(receiver)).application_properties == {b"tried": 1}


def test_bad_delays(client: ServiceBusClient, queue: str) -> None:
    """Each error names value, rule and remedy; the message stays locked."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        message = next_of(receiver)
        number = message.sequence_number or 0
        for delay in (-1, timedelta(seconds=-1), 604_801, timedelta(days=8), float("nan")):
            with pytest.raises(ValueError, match="0 seconds to 7 days"):
                receiver.abandon_message(message, delay=delay)
        for other in ("5", True, [5]):
            with pytest.raises(TypeError, match="give a timedelta or a number of seconds"):
                receiver.abandon_message(message, delay=other)  # type: ignore[arg-type]
        with client.transaction() as transaction:
            with pytest.raises(ValueError, match="leave one of both out"):
                receiver.abandon_message(message, delay=5, transaction=transaction)
        receiver.defer_message(message)
        (deferred,) = receiver.receive_deferred_messages(number)
        with pytest.raises(ValueError, match=f"message {number} is deferred"):
            receiver.abandon_message(deferred, delay=5)
        receiver.complete_message(deferred)


def test_a_lost_lock_postpones_nothing(client: ServiceBusClient, queue: str, later: Advance) -> None:
    """The message is available, as it was before."""
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        message = next_of(receiver)
        later(queue, 120)
        with pytest.raises(MessageLockLostError):
            receiver.abandon_message(message, delay=HOUR)
        receiver.complete_message(next_of(receiver))


# Sessions.


def test_a_session_waits_for_its_first_message(client: ServiceBusClient, make_queue: MakeQueue, later: Advance) -> None:
    """Its holder gets nothing that comes behind it, and no receiver is offered the session; order is kept."""
    queue = make_queue(requires_session=True)
    send(client, queue, "1", "2", session_id="a")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        receiver.abandon_message(next_of(receiver), delay=HOUR)
        nothing_of(receiver)
    with pytest.raises(OperationTimeoutError):
        with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1):
            pass
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        nothing_of(receiver)
    later(queue, 3700)
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=PATIENCE) as receiver:
        first, second = next_of(receiver), next_of(receiver)
        assert [(str(one), one.delivery_count) for one in (first, second)] == [("1", 1), ("2", 0)]
        receiver.complete_messages([first, second])


def test_a_session_goes_up_to_a_postponed_message(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """The messages before it can be received, other sessions as well."""
    queue = make_queue(requires_session=True)
    send(client, queue, "1", "2", "3", session_id="a")
    send(client, queue, "x", session_id="b")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        first, second = next_of(receiver), next_of(receiver)
        receiver.abandon_message(second, delay=HOUR)
        receiver.abandon_message(first)
        again = next_of(receiver)
        assert str(again) == "1"
        nothing_of(receiver)
        receiver.complete_message(again)
    with client.get_queue_receiver(queue, session_id="b") as receiver:
        receiver.complete_message(next_of(receiver))
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        nothing_of(receiver)
    later(queue, 3700)
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert [str(next_of(receiver)) for _ in range(2)] == ["2", "3"]


def test_a_holder_gets_it_on_time(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """A receiver that holds the session and waits; the test waits for the delay, a second."""
    queue = make_queue(requires_session=True)
    send(client, queue, "1", session_id="a")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        receiver.abandon_message(next_of(receiver), delay=1)
        receiver.complete_message(next_of(receiver))


# Retry policies.


def test_a_policy_counts_deliveries(client: ServiceBusClient, make_queue: MakeQueue, later: Advance) -> None:
    """Each delivery has its delay, the last one all later deliveries; an explicit delay comes first."""
    policy = RetryPolicy.by_delivery_count([timedelta(minutes=1), HOUR])
    queue = make_queue(retry_policy=policy)
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        for delay in (60, 3600, 3600):
            receiver.abandon_message(next_of(receiver))
            later(queue, delay - 30)
            nothing_of(receiver)
            later(queue, 40)
        receiver.abandon_message(next_of(receiver), delay=timedelta(days=1))
        later(queue, 3700)
        nothing_of(receiver)
        later(queue, 24 * 3600)
        assert (next_of(receiver)).delivery_count == 4


def test_a_policy_applies_to_expired_locks(client: ServiceBusClient, make_queue: MakeQueue, later: Advance) -> None:
    """One delivery is counted, as without a policy."""
    queue = make_queue(retry_policy=RetryPolicy.fixed(HOUR))
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        first = next_of(receiver)
        later(queue, 120)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(first)
        nothing_of(receiver)
        later(queue, 3700)
        assert (next_of(receiver)).delivery_count == 1


def test_a_policy_applies_to_an_expired_session(
    client: ServiceBusClient, other_client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """The messages that its holder had are postponed."""
    queue = make_queue(requires_session=True, retry_policy=RetryPolicy.fixed(HOUR))
    send(client, queue, "1", "2", session_id="a")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        next_of(receiver)
        later(queue, 120)
        with other_client.get_queue_receiver(queue, session_id="a") as other:
            nothing_of(other)
        later(queue, 3700)
        with other_client.get_queue_receiver(queue, session_id="a") as other:
            assert [(next_of(other)).delivery_count for _ in range(2)] == [1, 0]


def test_messages_that_are_given_back_unseen_are_not_postponed(client: ServiceBusClient, make_queue: MakeQueue) -> None:
    """A receiver that is closed gives prefetched messages back, uncounted."""
    queue = make_queue(retry_policy=RetryPolicy.fixed(HOUR))
    send(client, queue, "1", "2", partition_key="k")
    with client.get_queue_receiver(queue, prefetch_count=5) as receiver:
        receiver.complete_message(next_of(receiver))
    with client.get_queue_receiver(queue) as receiver:
        assert (next_of(receiver)).delivery_count == 0


def test_a_policy_does_not_postpone_the_last_delivery(
    client: ServiceBusClient, make_queue: MakeQueue, later: Advance
) -> None:
    """If its lock expires, it is dead-lettered, by upkeep or the next receiver."""
    queue = make_queue(retry_policy=RetryPolicy.fixed(HOUR), max_delivery_count=1)
    send(client, queue, "1")
    with (
        client.get_queue_receiver(queue) as receiver,
        client.get_queue_receiver(queue, sub_queue=SubQueue.DEAD_LETTER) as dead,
    ):
        next_of(receiver)
        later(queue, 120)
        nothing_of(receiver)
        assert str(next_of(dead)) == "1"


def test_a_policy_can_be_changed(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_queue: MakeQueue,
    later: Advance,
) -> None:
    """It is part of the queue's properties; None removes it."""
    queue = make_queue()
    properties = administration.get_queue(queue)
    assert properties.retry_policy is None
    policy = RetryPolicy.exponential(60, HOUR)
    administration.update_queue(properties, retry_policy=policy)
    assert (administration.get_queue(queue)).retry_policy == policy
    assert policy.delays_ms == [60_000 * 2**power for power in range(6)] + [3_600_000]
    send(client, queue, "1")
    with client.get_queue_receiver(queue) as receiver:
        receiver.abandon_message(next_of(receiver))
        later(queue, 50)
        nothing_of(receiver)
        later(queue, 20)
        receiver.complete_message(next_of(receiver))
    administration.update_queue(administration.get_queue(queue), retry_policy=None)
    assert (administration.get_queue(queue)).retry_policy is None


def test_a_subscription_has_a_policy(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    later: Advance,
) -> None:
    """Another subscription of the topic goes on without."""
    topic = make_topic("plain")
    administration.create_subscription(topic, "patient", retry_policy=RetryPolicy.fixed(HOUR))
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("1"))
    with (
        client.get_subscription_receiver(topic, "plain") as plain,
        client.get_subscription_receiver(topic, "patient") as patient,
    ):
        plain.abandon_message(next_of(plain))
        plain.complete_message(next_of(plain))
        patient.abandon_message(next_of(patient))
        nothing_of(patient)
        later(f"{topic}/Subscriptions/patient", 3700)
        patient.complete_message(next_of(patient))
