"""Redis lost everything: ledgers go on from their last checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from kafkabus._core.message import receipt_of
from kafkabus._ledger.ranges import Counted
from kafkabus._ledger.snapshot import Snapshot
from kafkabus._sync.context import ClientContext
from kafkabus._sync.dispositions import transfer
from kafkabus._sync.dispositions.transfer import EntityLog, Intent
from kafkabus._sync.stores.checkpoints import Checkpoints
from kafkabus.cli.connection import receiver_of
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import RetryPolicy, ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.properties import write_changes
from tests.contract.receiving import receive_all
from tests.queues import KINDS, active_in, new_source, sent_to

PATIENCE = 60.0
NAMESPACE = "rebuilt"
"""A namespace whose Redis may be emptied; see ``own_runtime``."""


BLUE = {"colour": "blue"}


def is_blue(message: ServiceBusReceivedMessage) -> bool:
    """Return whether a message has the changed property."""
    return (message.application_properties or {}).get(b"colour") == b"blue"


def empty(runtime: EmbeddedRuntime) -> None:
    """Delete all keys of Redis."""
    with redis.Redis.from_url(runtime.redis_url) as store:
        store.flushall()


def wait_for_checkpoint(context: ClientContext, queue: str, partition: int, wanted: Callable[[Snapshot], bool]) -> None:
    """Wait until a ledger was written down as it should be."""
    prefix = context.catalog.entity(EntityPath(queue)).ledgers[partition].keys.prefix
    deadline = time.monotonic() + PATIENCE
    while True:
        snapshot = Checkpoints(context.connections).read(prefix)
        if snapshot is not None and wanted(snapshot):
            return
        assert time.monotonic() < deadline, snapshot
        time.sleep(0.1)


def holds(ranges: list[Counted]) -> int:
    """Return how many messages ranges hold."""
    return sum(last - first + 1 for first, last, _ in ranges)


@pytest.mark.parametrize("kind", KINDS)
def test_an_emptied_redis_forgets_nothing_that_was_written_down(
    own_runtime: EmbeddedRuntime, context: ClientContext, kind: str
) -> None:
    """Settled messages stay settled and deferred ones deferred; locked ones come again, counted; changed ones are changed."""
    with (
        ServiceBusAdministrationClient.from_connection_string(own_runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(own_runtime.connection_string) as client,
    ):
        source = new_source(administration, kind, f"kept-{kind}")
        client.get_queue_sender(sent_to(source)).send_messages(
            [ServiceBusMessage(str(number)) for number in range(100)]
        )
        receiver = receiver_of(client, source)
        messages = receiver.receive_messages(60, max_wait_time=60)
        receiver.complete_messages(messages[:40])
        receiver.defer_messages(messages[40:45], properties_to_modify=BLUE)
        receiver.dead_letter_messages(messages[45:50], "why")
        receiver.abandon_message(messages[50], properties_to_modify=BLUE)
        wait_for_checkpoint(
            context,
            source,
            0,
            lambda one: (
                (one.cursor, one.watermark, one.moving) == (60, 40, [])
                and holds(one.deferred) == 5
                and holds(one.waiting) == 10
                and len(one.changes) == 6
            ),
        )
        empty(own_runtime)
        again = receive_all(receiver, 50, settle=False)
        assert {str(message): message.delivery_count for message in again} == {
            **{str(number): 1 for number in range(50, 60)},
            **{str(number): 0 for number in range(60, 100)},
        }
        assert [str(message) for message in again if is_blue(message)] == ["50"]
        receiver.complete_messages(again)
        deferred = receiver.receive_deferred_messages([message.sequence_number for message in messages[40:45]])
        assert [str(message) for message in deferred if is_blue(message)] == ["40", "41", "42", "43", "44"]
        dead = receiver_of(client, source, sub_queue="deadletter").peek_messages(10)
        assert [str(message) for message in dead] == ["45", "46", "47", "48", "49"]
        assert active_in(administration, source) == 5


def test_changed_properties_of_any_size_survive_an_emptied_redis(
    own_runtime: EmbeddedRuntime, context: ClientContext
) -> None:
    """Those of many messages together are more than a record of Kafka holds; checkpoints go on."""
    with (
        ServiceBusAdministrationClient.from_connection_string(own_runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(own_runtime.connection_string) as client,
    ):
        administration.create_queue("large")
        client.get_queue_sender("large").send_messages([ServiceBusMessage(str(number)) for number in range(20)])
        receiver = client.get_queue_receiver("large")
        messages = receive_all(receiver, 20, settle=False)
        for message in messages[:15]:
            receiver.defer_message(message, properties_to_modify={"note": str(message) * 100_000})
        receiver.complete_messages(messages[15:])
        wait_for_checkpoint(
            context, "large", 0, lambda one: (one.cursor, holds(one.deferred), len(one.changes)) == (20, 15, 15)
        )
        empty(own_runtime)
        deferred = receiver.receive_deferred_messages([message.sequence_number for message in messages[:15]])
        assert {str(one): (one.application_properties or {})[b"note"] for one in deferred} == {
            str(number): (str(number) * 100_000).encode() for number in range(15)
        }
        receiver.complete_messages(deferred)
        assert receiver.receive_messages(1, max_wait_time=2) == []
        wait_for_checkpoint(context, "large", 0, lambda one: (one.watermark, one.changes) == (20, []))


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_leases_and_ten_transfers_survive_an_emptied_redis(
    own_runtime: EmbeddedRuntime, context: ClientContext, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is delivered again or is in the dead-letter queue, once, with the properties that were changed with that."""
    # On a busy machine, upkeep would finish the transfers before it writes them down.
    monkeypatch.setattr(transfer, "ORPHAN_AGE", 10 * PATIENCE)
    with (
        ServiceBusAdministrationClient.from_connection_string(own_runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(own_runtime.connection_string) as client,
    ):
        source = new_source(administration, kind, f"open-{kind}")
        sender, receiver = client.get_queue_sender(sent_to(source)), receiver_of(client, source)
        total = 1100
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(total)])
        messages: list[ServiceBusReceivedMessage] = []
        while len(messages) < total:
            messages += receiver.receive_messages(1, max_wait_time=60)
        entity = context.catalog.entity(EntityPath(source))
        destination = context.catalog.entity(EntityPath(source).dead_letter)
        moving = {receipt_of(message).delivery.lease: [receipt_of(message).record] for message in messages[:12]}
        intent = Intent(0, "moved", None)
        began = time.monotonic()
        assert not any(context.transfers.begin(EntityLog(entity, 0), moving, intent, write_changes(BLUE)).values())
        # Half of them were copied, and none has ended.
        copied = [(receipt_of(message).record, intent) for message in messages[:6]]
        context.transfers.produce(EntityLog(entity, 0), EntityLog(destination, 0), copied, began)
        wait_for_checkpoint(context, source, 0, lambda one: (one.cursor, len(one.moving)) == (total, 12))
        empty(own_runtime)
        again = receive_all(receiver, total - 12, settle=False)
        assert sorted(int(str(message)) for message in again) == list(range(12, total))
        assert {message.delivery_count for message in again} == {1}
        dead_letters = receiver_of(client, source, sub_queue="deadletter")
        dead = receive_all(dead_letters, 12, settle=False)
        assert sorted(int(str(message)) for message in dead if is_blue(message)) == list(range(12))


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_checkpoint_everything_in_the_log_comes_again(own_runtime: EmbeddedRuntime, kind: str) -> None:
    """Nothing is lost."""
    untended = own_runtime.connection_string.replace("sb://rebuilt.", "sb://untended.", 1)
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
    ):
        source = new_source(administration, kind, f"unkept-{kind}")
        client.get_queue_sender(sent_to(source)).send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        receiver = receiver_of(client, source)
        receiver.complete_messages(receiver.receive_messages(2, max_wait_time=60))
        empty(own_runtime)
        assert [str(message) for message in receive_all(receiver, 2)] == ["a", "b"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sessions", [False, True])
def test_an_explicit_delay_survives_an_emptied_redis(own_runtime: EmbeddedRuntime, kind: str, sessions: bool) -> None:
    """Redis is emptied before or after a checkpoint, whichever it is: the message is not early. The test waits for it, 8 s."""
    with (
        ServiceBusAdministrationClient.from_connection_string(own_runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(own_runtime.connection_string) as client,
    ):
        source = new_source(administration, kind, f"delayed-{kind}-{sessions}", requires_session=sessions)
        session = "a" if sessions else None
        client.get_queue_sender(sent_to(source)).send_messages(
            [ServiceBusMessage(str(number), session_id=session) for number in range(3)]
        )
        with receiver_of(client, source, session_id=session) as receiver:
            messages = receive_all(receiver, 3, settle=False)
            begun = time.monotonic()
            receiver.abandon_message(messages[0], delay=8)
            receiver.complete_message(messages[1])
        empty(own_runtime)
        came: dict[str, tuple[float, int]] = {}
        with receiver_of(client, source, session_id=session) as receiver:
            deadline = begun + PATIENCE
            while "0" not in came and time.monotonic() < deadline:
                for message in receiver.receive_messages(1, max_wait_time=1):
                    came[str(message)] = time.monotonic() - begun, message.delivery_count
                    receiver.complete_message(message)
        elapsed, deliveries = came["0"]
        assert elapsed > 7.5, "it came early"
        assert deliveries == 1
        if sessions:
            assert "2" not in came, "it came before an earlier message of its session"


@pytest.mark.parametrize("sessions", [False, True])
def test_a_delay_of_a_policy_is_in_the_checkpoint(
    own_runtime: EmbeddedRuntime, context: ClientContext, sessions: bool
) -> None:
    """A message whose lock expired, or that was abandoned, stays postponed, at its place and with its deliveries."""
    name, session = f"policy-{sessions}", "a" if sessions else None
    with (
        ServiceBusAdministrationClient.from_connection_string(own_runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(own_runtime.connection_string) as client,
    ):
        policy = RetryPolicy.fixed(3600)
        administration.create_queue(
            name, requires_session=sessions, retry_policy=policy, lock_duration=timedelta(seconds=60 if sessions else 1)
        )
        client.get_queue_sender(name).send_messages(ServiceBusMessage("0", session_id=session))
        with client.get_queue_receiver(name, session_id=session) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=60)
            if sessions:
                receiver.abandon_message(message)
            wait_for_checkpoint(context, name, 0, lambda one: len(one.postponed) == 1)
        empty(own_runtime)
        with client.get_queue_receiver(name, session_id=session) as receiver:
            assert receiver.receive_messages(1, max_wait_time=2) == []
            (seen,) = receiver.peek_messages(1, sequence_number=1)
        assert seen.postponed_until_utc is not None
        assert seen.delivery_count == 1
        assert active_in(administration, name) == 1
