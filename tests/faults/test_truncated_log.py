"""A log lost its last records and was written to again, as after an unclean election or from an old backup."""

from __future__ import annotations

import shutil
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSender
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.topic_admin import Topics
from kafkabus._ledger.operations import LedgerState
from kafkabus._sync.context import ClientContext
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import CorrelationRuleFilter, ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, subscription_name
from tests.clock import advance
from tests.queues import crowd
from tests.servers import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

NAMESPACE = "cut"
KEPT, LOST = 50, 50
"""How many messages were sent before the copy of the logs was made, and how many after."""
LONG = timedelta(hours=1)
"""In what time a scheduled message is due, which is long after its log was cut."""
NEW = {"longer": 70, "shorter": 20, "ahead": 150}
"""Queues, and how many messages are sent to them after the cut."""


@pytest.fixture(scope="module")
def runtime() -> Iterator[EmbeddedRuntime]:
    """Queues and a topic whose logs lost their last records and got others, which no client has read yet.

    One queue more has a log without records. It starts servers four times, which takes most of the time of these tests.
    """
    folder = scratch_folder()
    try:
        with EmbeddedRuntime(folder, namespace=NAMESPACE) as started:
            create_entities(started)
            fill(started, "kept", KEPT)
            empty(started)
        logs = [log for name in (*NEW, "judged", "topic") for log in folder.rglob(f"{NAMESPACE}.{name}-0")]
        assert len(logs) == len(NEW) + 2
        for log in logs:
            shutil.copytree(log, folder / "earlier" / log.name)
        with EmbeddedRuntime(folder, namespace=NAMESPACE) as started:
            fill(started, "lost", LOST)
        for log in logs:
            shutil.rmtree(log)
            shutil.copytree(folder / "earlier" / log.name, log)
        # Upkeep would see that a log is short if it looked before the new messages are there.
        with EmbeddedRuntime(folder, namespace=NAMESPACE, upkeep=False) as started:
            refill(started)
        with EmbeddedRuntime(folder, namespace=NAMESPACE) as started:
            yield started
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_entities(runtime: EmbeddedRuntime) -> None:
    """Create the queues, and a topic with two subscriptions, one of which wants few messages."""
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        for name in (*NEW, "empty"):
            administration.create_queue(name)
        administration.create_queue("judged", requires_duplicate_detection=True)
        administration.create_topic("topic", enable_partitioning=False)
        for name in ("few", "all"):
            administration.create_subscription("topic", name)
        administration.create_rule("topic", "few", "wanted", filter=CorrelationRuleFilter(label="wanted"))
        administration.delete_rule("topic", "few", "$Default")


def fill(runtime: EmbeddedRuntime, name: str, count: int) -> None:
    """Send messages to all entities, and have most of them read, as the ledgers then know."""
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        for queue in NEW:
            exchange(client, queue, name, count)
        # No receiver reads the second half, and half of that are duplicates.
        if name == "kept":
            exchange(client, "judged", name, count)
        else:
            copies = [ServiceBusMessage(name, message_id=str(number // 2)) for number in range(count)]
            client.get_queue_sender("judged").send_messages(copies)
        publish(client, name, count)
    context = ClientContext(parse_settings(runtime.connection_string))
    try:
        wait_until(
            context, EntityPath("judged"), lambda state: state.dedup_upto == end_of(context, EntityPath("judged"))
        )
        for path in (EntityPath(subscription_name("topic", "few")), EntityPath("topic")):
            wait_until(context, path, lambda state, path=path: state.cursor == end_of(context, path))  # type: ignore[misc]
    finally:
        context.close()


def empty(runtime: EmbeddedRuntime) -> None:
    """Have a queue's messages completed, and delete all its records."""
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        exchange(client, "empty", "kept", KEPT)
    Topics(parse_settings(runtime.connection_string)).delete_records(f"{NAMESPACE}.empty", {0: KEPT})


def refill(runtime: EmbeddedRuntime) -> None:
    """Send other messages in place of those that were lost."""
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        for queue, count in NEW.items():
            client.get_queue_sender(queue).send_messages([ServiceBusMessage(body) for body in bodies(count)])
        client.get_queue_sender("judged").send_messages([ServiceBusMessage(body) for body in bodies(70)])
        send_some(client.get_topic_sender("topic"), "new", 80)


def bodies(count: int) -> list[str]:
    """The bodies of the messages that are sent in place of those that were lost."""
    return [f"new {number}" for number in range(count)]


def exchange(client: ServiceBusClient, queue: str, name: str, count: int) -> None:
    """Send messages and complete them all."""
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages([ServiceBusMessage(f"{name} {number}") for number in range(count)])
        receive_all(receiver, count)


def publish(client: ServiceBusClient, name: str, count: int) -> None:
    """Send messages to the topic, some of them wanted, and one scheduled; the wanted ones are received."""
    with client.get_topic_sender("topic") as sender, client.get_subscription_receiver("topic", "few") as receiver:
        due = datetime.now(timezone.utc) + LONG
        sender.schedule_messages(ServiceBusMessage(f"{name}, to come"), due)
        wanted = send_some(sender, name, count)
        assert receive_all(receiver, len(wanted)) == wanted


def receive_all(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Receive and complete so many."""
    bodies: list[str] = []
    while len(bodies) < count:
        messages = receiver.receive_messages(100, max_wait_time=60)
        assert messages, f"{count - len(bodies)} messages are lost"
        receiver.complete_messages(messages)
        bodies += map(str, messages)
    return bodies


@pytest.mark.parametrize("queue", NEW)
def test_what_was_written_in_place_of_lost_records_is_received(
    runtime: EmbeddedRuntime, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the leader epoch shows where the log was cut.

    It is logged as an error. The receiver goes on: no message is skipped or comes twice, and nothing is raised.
    """
    if queue == "ahead":
        crowd(runtime.connection_string, queue)
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        assert receive_all(client.get_queue_receiver(queue), NEW[queue]) == bodies(NEW[queue])
        assert f"offsets=[({KEPT}, {KEPT + LOST - 1})]: the log was truncated" in caplog.text
        with ServiceBusClient.from_connection_string(runtime.connection_string) as other:
            client.get_queue_sender(queue).send_messages(ServiceBusMessage("the last one"))
            assert receive_all(other.get_queue_receiver(queue), 1) == ["the last one"]


def test_what_was_written_in_place_of_judged_records_is_received(runtime: EmbeddedRuntime) -> None:
    """Receivers had not read the cut messages, and half of them were duplicates: none of the new ones is a duplicate."""
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        assert receive_all(client.get_queue_receiver("judged"), 70) == bodies(70)
    context = ClientContext(parse_settings(runtime.connection_string))
    wait_until(context, EntityPath("judged"), lambda state: state.dedup_upto == KEPT + 70)
    context.close()


def test_a_topic_and_all_its_subscriptions_go_on_where_its_log_was_cut(runtime: EmbeddedRuntime) -> None:
    """Subscriptions recover that want few messages, none of them the last before the cut, or that have no reader."""
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_topic_sender("topic") as sender,
        client.get_subscription_receiver("topic", "few") as receiver,
    ):
        assert receive_all(receiver, 8) == bodies(80)[::10]
        soon = ServiceBusMessage("later", subject="wanted")
        sender.schedule_messages(soon, datetime.now(timezone.utc) + timedelta(seconds=1))
        assert receive_all(receiver, 1) == ["later"]
        advance(runtime.redis_url, NAMESPACE, "topic", LONG.total_seconds())
        unread = receive_all(client.get_subscription_receiver("topic", "all"), KEPT + 80 + 2)
        kept = [f"kept {number}" for number in range(KEPT)]
        assert sorted(unread) == sorted([*kept, *bodies(80), "kept, to come", "later"])


def send_some(sender: ServiceBusSender, name: str, count: int) -> list[str]:
    """Send messages; return the bodies of the wanted ones."""
    sender.send_messages(
        [
            ServiceBusMessage(f"{name} {number}", subject="wanted" if number % 10 == 0 else "other")
            for number in range(count)
        ]
    )
    return [f"{name} {number}" for number in range(0, count, 10)]


def end_of(context: ClientContext, path: EntityPath) -> int:
    """Return the offset at which the log ends."""
    return context.topics.ends(context.catalog.entity(path).topic, [0])[0]


def wait_until(context: ClientContext, path: EntityPath, done: Callable[[LedgerState], bool]) -> None:
    """Wait until the ledger of an entity's first partition is in some state."""
    deadline = time.monotonic() + 30
    ledger = context.catalog.entity(path).ledgers[0]
    while (state := context.ledger_client.states([ledger])[0]) is None or not done(state):
        assert time.monotonic() < deadline, state
        time.sleep(0.05)


def test_a_log_without_records_is_not_taken_for_a_truncated_one(runtime: EmbeddedRuntime) -> None:
    """All settled messages are deleted, and a restarted broker knows no leader epoch of the log any more."""
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        assert client.get_queue_receiver("empty").receive_messages(1, max_wait_time=1) == []
        exchange(client, "empty", "new", 20)
