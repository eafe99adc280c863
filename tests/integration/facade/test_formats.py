"""Namespaces that other versions stored: earlier formats are read, later ones refused."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.keys import clients_key, upkeep_key
from kafkabus._sync.context import ClientContext
from kafkabus._sync.entities import catalog, format_upgrade
from kafkabus._sync.stores.entity_descriptions import EntityDescriptions
from kafkabus.amqp import AmqpAnnotatedMessage
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import InvalidOperationError, NamespaceFormatError
from kafkabus.management import RetryPolicy, ServiceBusAdministrationClient, SqlRuleFilter
from kafkabus.upkeep.service import Upkeep
from kafkabus_mapping.entities import EntityDescription
from kafkabus_mapping.formats import LATEST, READABLE
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
def earlier(untended: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace that an earlier version stored in the first format, and that may be upgraded within a moment."""
    monkeypatch.setattr(format_upgrade, "SEEN_WITHIN", 0.1)
    put(golden("format-1"), untended, redis=True)
    return untended


def test_a_new_namespace_has_the_latest_format(
    administration: ServiceBusAdministrationClient, context: ClientContext
) -> None:
    """The first entity makes it."""
    administration.create_queue("orders")
    assert administration.get_namespace_properties().format == LATEST
    assert administration.upgrade_namespace().format == LATEST
    assert context.descriptions.namespace() == context.catalog.namespace()


def test_a_namespace_is_upgraded(
    earlier: str, administration: ServiceBusAdministrationClient, context: ClientContext
) -> None:
    """Every message stays in its state; what the earlier version does not read is written afterwards only."""
    stored = golden("format-1")
    assert administration.get_namespace_properties().format == 1
    written: list[tuple[int, int]] = []

    def look(_: float) -> None:
        known = context.descriptions.namespace()
        assert known is not None
        written.append((known.format, context.descriptions.written_format))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(format_upgrade, "sleep", look)
        assert administration.upgrade_namespace().format == LATEST
    assert written == [(LATEST, 1)]
    context.descriptions.catch_up()
    assert context.descriptions.written_format == LATEST
    check(earlier, stored["numbers"])


def test_what_needs_the_latest_format_waits_for_the_upgrade(
    earlier: str, administration: ServiceBusAdministrationClient
) -> None:
    """It is refused by one error before anything is sent; data sections are joined, as before. Then it works."""
    sections = AmqpAnnotatedMessage(data_body=[b"aa", b"b"])
    dear = SqlRuleFilter("amount > @least", parameters={"@least": Decimal(10)})
    priced = ServiceBusMessage("x", application_properties={"amount": Decimal("12.50")})
    with (
        ServiceBusClient.from_connection_string(earlier) as client,
        client.get_queue_sender("accounts") as sender,
        client.get_queue_receiver("accounts") as receiver,
    ):
        refusal = "needs format 2, and namespace '.*' is stored in an earlier one: .* run 'kafkabus namespace upgrade'"
        with pytest.raises(NamespaceFormatError, match=f"^a decimal among the application properties {refusal}$"):
            sender.send_messages(priced)
        with pytest.raises(NamespaceFormatError, match=f"^a decimal in rule 'dear' {refusal}$"):
            administration.create_rule("news", "all", "dear", filter=dear)
        sender.send_messages(sections)
        (joined,) = receive_all(receiver, 1)
        assert list(joined.body) == [b"aab"]
        assert not joined.application_properties
        sender.send_messages(ServiceBusMessage("y"))
        (message,) = receiver.receive_messages(1, max_wait_time=PATIENCE)
        for settle in (receiver.abandon_message, receiver.defer_message):
            with pytest.raises(
                NamespaceFormatError, match=f"^a change of a message's application properties {refusal}$"
            ):
                settle(message, properties_to_modify={"colour": "blue"})
        with pytest.raises(NamespaceFormatError, match=f"^a decimal among the application properties {refusal}$"):
            receiver.dead_letter_message(message, properties_to_modify={"amount": Decimal(1)})
        receiver.dead_letter_message(message, properties_to_modify={"colour": "blue"})
        with client.get_queue_receiver("accounts", sub_queue="deadletter") as dead_letters:
            (dead,) = receive_all(dead_letters, 1)
            assert (dead.application_properties or {})[b"colour"] == b"blue"
        administration.upgrade_namespace()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(catalog, "DESCRIPTION_AGE", 0.0)
            sender.send_messages([priced, sections])
        found = receive_all(receiver, 2)
        assert sorted([*message.body] for message in found) == [[b"aa", b"b"], [b"x"]]
        administration.create_rule("news", "all", "dear", filter=dear)


def test_retry_policies_wait_for_the_upgrade(earlier: str, administration: ServiceBusAdministrationClient) -> None:
    """Earlier versions, which share the namespace, do not read descriptions with one."""
    refusal = "needs format 2, and namespace '.*' is stored in an earlier one: .* run 'kafkabus namespace upgrade'"
    policy = RetryPolicy.fixed(10)
    accounts, everything = administration.get_queue("accounts"), administration.get_subscription("news", "all")
    with pytest.raises(NamespaceFormatError, match=f"^the retry policy of queue 'patient' {refusal}$"):
        administration.create_queue("patient", retry_policy=policy)
    with pytest.raises(NamespaceFormatError, match=f"^the retry policy of queue 'accounts' {refusal}$"):
        administration.update_queue(accounts, retry_policy=policy)
    with pytest.raises(
        NamespaceFormatError, match=f"^the retry policy of subscription 'one' of topic 'news' {refusal}$"
    ):
        administration.create_subscription("news", "one", retry_policy=policy)
    with pytest.raises(
        NamespaceFormatError, match=f"^the retry policy of subscription 'all' of topic 'news' {refusal}$"
    ):
        administration.update_subscription("news", everything, retry_policy=policy)
    administration.update_queue(accounts, max_delivery_count=3)
    administration.upgrade_namespace()
    administration.update_queue(administration.get_queue("accounts"), retry_policy=policy)
    assert administration.get_queue("accounts").retry_policy == policy


def test_where_unmatched_messages_go_waits_for_the_upgrade(
    earlier: str, administration: ServiceBusAdministrationClient
) -> None:
    """Earlier versions do not read the description of such a topic."""
    refusal = "needs format 2, and namespace '.*' is stored in an earlier one: .* run 'kafkabus namespace upgrade'"
    with pytest.raises(NamespaceFormatError, match=f"^the destination of unmatched messages of topic 'new' {refusal}$"):
        administration.create_topic("new", unmatched_to="accounts")
    news = administration.get_topic("news")
    with pytest.raises(
        NamespaceFormatError, match=f"^the destination of unmatched messages of topic 'news' {refusal}$"
    ):
        administration.update_topic(news, unmatched_to="accounts")
    administration.update_topic(news, user_metadata="changed")
    administration.upgrade_namespace()
    administration.update_topic(administration.get_topic("news"), unmatched_to="accounts")
    assert str(administration.get_topic("news").unmatched_to).endswith("/accounts")


def test_an_upgrade_that_was_cut_off_is_finished(
    earlier: str, administration: ServiceBusAdministrationClient, context: ClientContext
) -> None:
    """Until then, programs write the earlier format."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(format_upgrade, "sleep", die)
        with pytest.raises(KeyboardInterrupt):
            administration.upgrade_namespace()
    assert administration.get_namespace_properties().format == 1
    assert administration.upgrade_namespace().format == LATEST
    known = context.descriptions.namespace()
    assert known is not None
    assert (known.format, known.upgrading_from) == (LATEST, None)


def die(_: float) -> None:
    """End as Ctrl-C does."""
    raise KeyboardInterrupt


def test_a_program_of_an_earlier_version_forbids_the_upgrade(
    earlier: str, administration: ServiceBusAdministrationClient, context: ClientContext
) -> None:
    """The error names each of them, what it does, and what to do; clients of this version are none of them."""
    beats = context.ledger_client
    with ServiceBusClient.from_connection_string(earlier) as client, client.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(1, max_wait_time=1)
        beats.heartbeat(upkeep_key(context.settings.namespace), "upkeep-1", 60)
        beats.heartbeat(context.catalog.entity(EntityPath("payments")).receivers_key, "client-1", 60)
        beats.heartbeat(clients_key(context.settings.namespace), '{"id":"x","version":"0.3.0","reads":1}', 60)
        with pytest.raises(InvalidOperationError) as caught:
            administration.upgrade_namespace()
    assert str(caught.value) == (
        f"namespace {context.settings.namespace!r} was not upgraded, because programs that do not read format 2 use it: client "
        "x of kafkabus 0.3.0; 'kafkabus serve', instance upkeep-1; a receiver of payments, client client-1; upgrade or stop "
        "them, and try again after some seconds"
    )
    assert administration.get_namespace_properties().format == 1


def test_one_of_two_clients_creates_a_namespace(
    untended: str, administration: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's error names the tier. The test gives it half a second, enough to be done if nothing held it."""
    every, refused = EntityDescriptions.all, list[Exception]()

    def create_premium() -> None:
        with ServiceBusAdministrationClient.from_connection_string(untended) as other:
            try:
                other.create_namespace("Premium", 4)
            except InvalidOperationError as error:
                refused.append(error)

    thread = threading.Thread(target=create_premium)

    def meet(descriptions: EntityDescriptions) -> list[EntityDescription]:
        if not thread.ident:
            thread.start()
            thread.join(0.5)
        return every(descriptions)

    monkeypatch.setattr(EntityDescriptions, "all", meet)
    assert administration.create_namespace().messaging_sku == "Standard"
    thread.join()
    assert "was created in tier Standard" in str(refused[0])


def test_a_namespace_that_does_not_exist_is_not_upgraded(administration: ServiceBusAdministrationClient) -> None:
    """The error says what makes it."""
    with pytest.raises(
        InvalidOperationError, match="does not exist yet: the first queue or topic, or 'kafkabus namespace"
    ):
        administration.upgrade_namespace()


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
        rf"\S+ reads formats {READABLE[0]} to {READABLE[-1]}: upgrade it"
    )


async def test_upkeep_of_an_earlier_version_ends(untended: str, context: ClientContext, queue: str) -> None:
    """It takes no entity from the instances of the later version: they never hear of it, and no checkpoint is written."""
    (ledger,) = context.catalog.entity(EntityPath(queue)).ledgers
    refusal = upgrade(context)
    with pytest.raises(NamespaceFormatError, match=refusal):
        await asyncio.wait_for(Upkeep(parse_settings(untended)).run(asyncio.Event()), PATIENCE)
    assert context.ledger_client.last_heartbeat(upkeep_key(context.settings.namespace)) is None
    assert context.stores.checkpoints.read(ledger.keys.prefix) is None


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
