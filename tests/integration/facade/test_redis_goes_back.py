"""Redis goes back to an earlier state, as a replica that lagged does when it is promoted; ``tests/faults`` promotes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
import redis

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import TakeSnapshot
from kafkabus._sync.context import ClientContext
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient, SqlRuleFilter
from kafkabus.upkeep import checkpoint_writer
from kafkabus_mapping.names import EntityPath
from tests.contract.receiving import receive_all
from tests.upkeep import tend

PATIENCE = 60.0


class Past:
    """The contents of Redis for a namespace at a moment.

    Args:
        store: The Redis.
        namespace: The namespace whose keys are kept.
    """

    def __init__(self, store: redis.Redis, namespace: str) -> None:
        self._store = store
        self._pattern = f"*{namespace}*"
        self._kept: dict[bytes, tuple[bytes, int]] = {}

    def keep(self) -> None:
        """Keep the present contents."""
        self._kept = {
            key: (value, max(0, self._store.pttl(key)))
            for key in self._store.scan_iter(match=self._pattern, count=1000)
            if (value := self._store.dump(key)) is not None
        }

    def come_back(self) -> None:
        """Go back to the kept contents; later changes are lost."""
        self.forget()
        for key, (value, left) in self._kept.items():
            self._store.restore(key, left, value)

    def forget(self) -> None:
        """Delete all contents."""
        for key in self._store.scan_iter(match=self._pattern, count=1000):
            self._store.delete(key)


@pytest.fixture
def past(untended: str, runtime: RunningNamespace) -> Iterator[Past]:
    """The contents of Redis for the test's namespace."""
    with redis.Redis.from_url(runtime.redis_url) as store:
        yield Past(store, parse_settings(untended).namespace)


def another(untended: str) -> ServiceBusAdministrationClient:
    """A client that has seen nothing yet."""
    return ServiceBusAdministrationClient.from_connection_string(untended)


def test_a_change_begins_with_what_kafka_holds(
    untended: str, past: Past, administration: ServiceBusAdministrationClient
) -> None:
    """That holds for a new client, too: a rule that was created before remains, and no deleted one comes back."""
    administration.create_topic("prices")
    administration.create_subscription("prices", "all")
    past.keep()
    administration.delete_rule("prices", "all", "$Default")
    administration.create_rule("prices", "all", "dear", filter=SqlRuleFilter("price > 100"))
    past.come_back()
    with another(untended) as client:
        client.create_rule("prices", "all", "cheap", filter=SqlRuleFilter("price < 10"))
        assert {rule.name for rule in client.list_rules("prices", "all")} == {"dear", "cheap"}


def test_a_client_does_not_go_back(past: Past, administration: ServiceBusAdministrationClient) -> None:
    """The client keeps the state that it has seen: changes, new entities, deleted ones."""
    queue = administration.create_queue("orders", max_delivery_count=5)
    administration.create_queue("gone")
    past.keep()
    queue.max_delivery_count = 7
    administration.update_queue(queue)
    administration.create_queue("invoices")
    administration.delete_queue("gone")
    past.come_back()
    assert administration.get_queue("orders").max_delivery_count == 7
    past.come_back()
    assert administration.get_queue("invoices").name == "invoices"
    past.come_back()
    assert [queue.name for queue in administration.list_queues()] == ["invoices", "orders"]
    past.come_back()
    with pytest.raises(MessagingEntityNotFoundError):
        administration.get_queue("gone")


def test_upkeep_has_all_clients_see_what_kafka_holds(
    untended: str, past: Past, administration: ServiceBusAdministrationClient
) -> None:
    """That holds for new clients, too."""
    administration.create_queue("orders")
    past.keep()
    administration.create_queue("invoices")
    past.come_back()
    with closing(ClientContext(parse_settings(untended))) as context:
        context.descriptions.catch_up()
    with another(untended) as client:
        assert [queue.name for queue in client.list_queues()] == ["invoices", "orders"]


def test_what_is_settled_afterwards_is_written_down(
    untended: str, past: Past, monkeypatch: pytest.MonkeyPatch, administration: ServiceBusAdministrationClient
) -> None:
    """The last checkpoint is of a higher version of the ledger.

    The settlements hold even if Redis then loses everything.
    """
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_EVERY", 0.0)
    administration.create_queue("orders")
    with ServiceBusClient.from_connection_string(untended) as client:
        client.get_queue_sender("orders").send_messages([ServiceBusMessage(str(number)) for number in range(5)])
        receiver = client.get_queue_receiver("orders")
        messages = receiver.receive_messages(5, max_wait_time=PATIENCE)
        assert len(messages) == 5
        past.keep()
        with closing(ClientContext(parse_settings(untended))) as context:
            (ledger,) = context.catalog.entity(EntityPath("orders")).ledgers
            keep = TakeSnapshot(ledger)
            for _ in range(100):
                context.ledger_client.execute(TakeSnapshot(ledger))
            context.ledger_client.execute(keep)
            context.stores.checkpoints.write({ledger.keys.prefix: keep.snapshot})
        past.come_back()
        receiver.complete_messages(messages[:2])
        for _ in range(2):
            # The first time, upkeep finds out and says so.
            with suppress(ServiceBusError):
                tend(untended, "orders")
        past.forget()
    with ServiceBusClient.from_connection_string(untended) as client:
        found = receive_all(client.get_queue_receiver("orders"), 3)
    assert sorted(map(str, found)) == ["2", "3", "4"]
