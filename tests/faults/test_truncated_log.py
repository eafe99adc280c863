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
from tests.queues import crowd
from tests.servers import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


@pytest.fixture
def data() -> Iterator[Path]:
    """The folder in which the servers keep their data."""
    folder = scratch_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def exchange(runtime: EmbeddedRuntime, name: str, count: int) -> None:
    """Send messages and complete them all."""
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages([ServiceBusMessage(f"{name} {number}") for number in range(count)])
        receive_all(receiver, count)


def receive_all(receiver: ServiceBusReceiver, count: int) -> list[str]:
    """Receive and complete so many."""
    bodies: list[str] = []
    while len(bodies) < count:
        messages = receiver.receive_messages(100, max_wait_time=60)
        assert messages, f"{count - len(bodies)} messages are lost"
        receiver.complete_messages(messages)
        bodies += map(str, messages)
    return bodies


@pytest.mark.parametrize(
    ("count", "crowded"),
    [(70, False), (20, False), (150, True)],
    ids=["longer than before", "shorter than before", "longer, and claimed ahead"],
)
def test_what_was_written_in_place_of_lost_records_is_received(
    data: Path, count: int, crowded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the leader epoch tells where the log was cut.

    It is logged as an error. The receiver goes on: no message is skipped or comes twice, and nothing is raised.
    """
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
    ):
        administration.create_queue("orders")
        exchange(runtime, "kept", 50)
    (log,) = data.rglob("cut.orders-0")
    shutil.copytree(log, data / "earlier")
    with EmbeddedRuntime(data, namespace="cut") as runtime:
        exchange(runtime, "lost", 50)
    shutil.rmtree(log)
    shutil.copytree(data / "earlier", log)
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        bodies = [f"new {number}" for number in range(count)]
        sender.send_messages([ServiceBusMessage(body) for body in bodies])
        if crowded:
            crowd(runtime.connection_string, "orders")
        assert receive_all(receiver, count) == bodies
        assert "offsets=[(50, 99)]: the log was truncated" in caplog.text
        with ServiceBusClient.from_connection_string(runtime.connection_string) as other:
            sender.send_messages(ServiceBusMessage("the last one"))
            assert receive_all(other.get_queue_receiver("orders"), 1) == ["the last one"]


def test_what_was_written_in_place_of_judged_records_is_received(data: Path) -> None:
    """Receivers had not read the cut messages, and half of them were duplicates: none of the new ones is a duplicate."""
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
    ):
        administration.create_queue("orders", requires_duplicate_detection=True)
        exchange(runtime, "kept", 50)
    (log,) = data.rglob("cut.orders-0")
    shutil.copytree(log, data / "earlier")
    with EmbeddedRuntime(data, namespace="cut") as runtime:
        with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
            client.get_queue_sender("orders").send_messages(
                [ServiceBusMessage("lost", message_id=str(number // 2)) for number in range(50)]
            )
        wait_until_judged(runtime, 100)
    shutil.rmtree(log)
    shutil.copytree(data / "earlier", log)
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        bodies = [f"new {number}" for number in range(70)]
        client.get_queue_sender("orders").send_messages([ServiceBusMessage(body) for body in bodies])
        assert receive_all(receiver, 70) == bodies
        wait_until_judged(runtime, 120)


def test_a_topic_and_all_its_subscriptions_go_on_where_its_log_was_cut(data: Path) -> None:
    """Subscriptions recover that want few messages, none of them the last before the cut, or that have no reader."""
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
    ):
        administration.create_topic("orders", enable_partitioning=False)
        for name in ("few", "all"):
            administration.create_subscription("orders", name)
        administration.create_rule("orders", "few", "wanted", filter=CorrelationRuleFilter(label="wanted"))
        administration.delete_rule("orders", "few", "$Default")
        publish(runtime, "kept")
    (log,) = data.rglob("cut.orders-0")
    shutil.copytree(log, data / "earlier")
    with EmbeddedRuntime(data, namespace="cut") as runtime:
        publish(runtime, "lost")
    shutil.rmtree(log)
    shutil.copytree(data / "earlier", log)
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_topic_sender("orders") as sender,
        client.get_subscription_receiver("orders", "few") as receiver,
    ):
        bodies = send_some(sender, "new", 80)
        assert receive_all(receiver, len(bodies)) == bodies
        soon = ServiceBusMessage("later", subject="wanted")
        sender.schedule_messages(soon, datetime.now(timezone.utc) + timedelta(seconds=1))
        assert receive_all(receiver, 1) == ["later"]
        unread = receive_all(client.get_subscription_receiver("orders", "all"), 132)
        kept, new = ([f"{name} {number}" for number in range(count)] for name, count in (("kept", 50), ("new", 80)))
        assert sorted(unread) == sorted([*kept, *new, "kept, to come", "later"])


def publish(runtime: EmbeddedRuntime, name: str) -> None:
    """Send messages to the topic, some of them wanted, and one scheduled; the wanted ones are received."""
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_topic_sender("orders") as sender,
        client.get_subscription_receiver("orders", "few") as receiver,
    ):
        due = datetime.now(timezone.utc) + timedelta(seconds=45)
        sender.schedule_messages(ServiceBusMessage(f"{name}, to come"), due)
        wanted = send_some(sender, name, 50)
        assert receive_all(receiver, len(wanted)) == wanted
    context = ClientContext(parse_settings(runtime.connection_string))
    for path in (EntityPath(subscription_name("orders", "few")), EntityPath("orders")):
        wait_until(context, path, lambda context, state, path=path: state.cursor == end_of(context, path))  # type: ignore[misc]
    context.close()


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


def wait_until_judged(runtime: EmbeddedRuntime, offset: int) -> None:
    """Wait until upkeep knows which records below an offset are duplicates."""
    context = ClientContext(parse_settings(runtime.connection_string))
    wait_until(context, EntityPath("orders"), lambda _, state: state.dedup_upto == offset)
    context.close()


def wait_until(context: ClientContext, path: EntityPath, done: Callable[[ClientContext, LedgerState], bool]) -> None:
    """Wait until the ledger of an entity's first partition is in some state."""
    deadline = time.monotonic() + 30
    ledger = context.catalog.entity(path).ledgers[0]
    while (state := context.ledger_client.states([ledger])[0]) is None or not done(context, state):
        assert time.monotonic() < deadline, state
        time.sleep(0.05)


def test_a_log_without_records_is_not_taken_for_a_truncated_one(data: Path) -> None:
    """All settled messages are deleted, and a restarted broker knows no leader epoch of the log any more."""
    with (
        EmbeddedRuntime(data, namespace="cut") as runtime,
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
    ):
        administration.create_queue("orders")
        exchange(runtime, "old", 50)
        Topics(parse_settings(runtime.connection_string)).delete_records("cut.orders", {0: 50})
    with EmbeddedRuntime(data, namespace="cut") as runtime:
        with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
            assert client.get_queue_receiver("orders").receive_messages(1, max_wait_time=1) == []
        exchange(runtime, "new", 20)
