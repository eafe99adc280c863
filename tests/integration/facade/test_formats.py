"""Namespaces that other versions stored: earlier formats are read, later ones refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.keys import upkeep_key
from kafkabus._sync.context import ClientContext
from kafkabus._sync.entities import catalog
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import NamespaceFormatError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep.service import Upkeep
from kafkabus_mapping.formats import READABLE
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.contract.receiving import receive_all
from tests.golden.make import FILE
from tests.golden.requests import COMPLETED, LOCKED, QUEUE, SENT, repeat
from tests.golden.stored import put
from tests.golden.story import check

PATIENCE = 60.0
GOLDEN = Path(__file__).resolve().parents[2] / "golden"
FORMATS = sorted(folder.name for folder in GOLDEN.glob("format-*"))


def golden(name: str) -> dict[str, Any]:
    """Return what the first release of a format stored."""
    stored: dict[str, Any] = json.loads((GOLDEN / name / FILE).read_text(encoding="utf-8"))
    return stored


def test_each_format_that_is_read_has_golden_data() -> None:
    """Otherwise the other tests would show nothing."""
    assert [f"format-{number}" for number in READABLE] == FORMATS


@pytest.mark.parametrize("with_redis", [True, False], ids=["with Redis", "Redis empty"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_namespace_of_an_earlier_version_goes_on(untended: str, name: str, with_redis: bool) -> None:
    """Each message is in the state in which the earlier version left it; without Redis, the checkpoints say so.

    Storing it all takes some seconds, as topics of two dozen logs are created.
    """
    stored = golden(name)
    put(stored, untended, redis=with_redis)
    check(untended, stored["numbers"])


@pytest.mark.parametrize("name", FORMATS)
def test_clients_of_two_versions_share_a_queue(runtime: RunningNamespace, untended: str, name: str) -> None:
    """Locks of the earlier version hold in this one; what it does not settle comes once its locks have ended."""
    stored = put(golden(name), untended, redis=True)
    with (
        redis.Redis.from_url(runtime.redis_url) as store,
        ServiceBusClient.from_connection_string(untended) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        repeat(store, stored["requests"], "receive")
        assert [str(message) for message in receive_all(receiver, len(SENT) - LOCKED)] == SENT[LOCKED:]
        repeat(store, stored["requests"], "complete")
        advance(runtime.redis_url, stored["namespace"], QUEUE, 61)
        again = receive_all(receiver, LOCKED - COMPLETED)
        assert [(str(message), message.delivery_count) for message in again] == [
            (body, 1) for body in SENT[COMPLETED:LOCKED]
        ]


@pytest.fixture
def context(untended: str) -> Iterator[ClientContext]:
    """A client's connections to that namespace, to look behind what users see."""
    opened = ClientContext(parse_settings(untended))
    yield opened
    opened.close()


@pytest.fixture
def queue(untended: str) -> str:
    """A queue of that namespace that holds a message."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("orders")
    with ServiceBusClient.from_connection_string(untended) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("one"))
    return "orders"


def upgrade(context: ClientContext) -> str:
    """Do as a later version does that brings a namespace into its format; return the error for this version, as a pattern."""
    known = context.descriptions.namespace()
    assert known is not None
    later = known.model_copy(update={"format": READABLE[-1] + 1, "format_by": "9.8.7"})
    context.descriptions.put_namespace(later)
    return (
        f"namespace '{context.settings.namespace}' is stored in format {later.format} by kafkabus 9.8.7; this kafkabus "
        rf"\S+ reads format {READABLE[-1]}: upgrade it"
    )


async def test_upkeep_of_an_earlier_version_ends(untended: str, context: ClientContext, queue: str) -> None:
    """It takes no entity from the instances of the later version: they never hear of it, and no checkpoint is written."""
    (ledger,) = context.catalog.entity(EntityPath(queue)).ledgers
    refusal = upgrade(context)
    with pytest.raises(NamespaceFormatError, match=refusal):
        await asyncio.wait_for(Upkeep(parse_settings(untended)).run(asyncio.Event()), PATIENCE)
    assert context.ledger_client.last_heartbeat(upkeep_key(context.settings.namespace)) is None
    assert context.checkpoints.read(ledger.keys.prefix) is None


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "Redis empty"])
def test_a_later_format_is_refused(
    runtime: RunningNamespace, untended: str, context: ClientContext, queue: str, cached: bool
) -> None:
    """Every call of a client raises the same error, which names both versions; nothing is written."""
    refusal = upgrade(context)
    logs = [context.topics.ends(f"{context.settings.namespace}.{name}", [0]) for name in ("orders", "DESCRIPTIONS")]
    with redis.Redis.from_url(runtime.redis_url) as store:
        if not cached:
            store.delete(*store.scan_iter(f"{{{context.settings.namespace}*"))
        before = set(store.scan_iter(f"{{{context.settings.namespace}*"))
        with (
            ServiceBusAdministrationClient.from_connection_string(untended) as administration,
            ServiceBusClient.from_connection_string(untended) as client,
        ):
            calls: list[Callable[[], object]] = [
                lambda: client.get_queue_sender(queue).send_messages(ServiceBusMessage("two")),
                lambda: client.get_queue_receiver(queue).receive_messages(1, max_wait_time=60),
                lambda: client.get_queue_receiver(queue).peek_messages(1),
                lambda: administration.create_queue("another"),
                lambda: administration.create_namespace("Premium", 4),
                lambda: administration.delete_queue(queue),
                lambda: list(administration.list_queues()),
                lambda: administration.get_queue_runtime_properties(queue),
            ]
            for call in calls:
                with pytest.raises(NamespaceFormatError, match=refusal):
                    call()
        assert {
            key for key in store.scan_iter(f"{{{context.settings.namespace}*") if b":descriptions" not in key
        } <= before
    assert logs == [
        context.topics.ends(f"{context.settings.namespace}.{name}", [0]) for name in ("orders", "DESCRIPTIONS")
    ]


def test_a_client_that_runs_stops_with_its_description(
    untended: str, context: ClientContext, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks the description up every few seconds anyway, and the format comes with it."""
    monkeypatch.setattr(catalog, "DESCRIPTION_AGE", 0.0)
    with ServiceBusClient.from_connection_string(untended) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("two"))
        refusal = upgrade(context)
        with pytest.raises(NamespaceFormatError, match=refusal):
            sender.send_messages(ServiceBusMessage("three"))
