"""A client that uses many entities looks them up, and their topics, together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, aio
from kafkabus._async.entities import catalog
from kafkabus._async.receiving import log_reader, readers
from kafkabus._core.exceptions import MessagingEntityDisabledError, MessagingEntityNotFoundError, ServiceBusError
from kafkabus._kafka import consumer_pool
from kafkabus._kafka.topic_admin import Topic
from kafkabus._ledger.operations import Operation
from kafkabus._sync.context import ClientContext
from kafkabus._sync.entities.catalog import DESCRIPTION_AGE
from kafkabus._sync.entities.recovery import CALM_TOPIC_AGE, TOPIC_AGE
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.entities import EntityDescription, EntityStatus
from kafkabus_mapping.names import EntityPath

QUEUES = ["a", "b", "c", "d"]
PATIENCE = 60.0


@pytest.fixture
def namespace() -> Iterator[InMemoryNamespace]:
    """A namespace with four queues, and without upkeep, which would look entities up as well."""
    with InMemoryNamespace(upkeep=False) as here:
        with ServiceBusAdministrationClient.from_connection_string(here.connection_string) as client:
            for name in QUEUES:
                client.create_queue(name)
        yield here


@pytest.fixture
def administration(namespace: InMemoryNamespace) -> Iterator[ServiceBusAdministrationClient]:
    """Another client, which changes the queues."""
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as client:
        yield client


@pytest.fixture
def context(namespace: InMemoryNamespace) -> Iterator[ClientContext]:
    """A client that has just used all queues."""
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        for name in QUEUES:
            client.get_queue_sender(name).send_messages(ServiceBusMessage("x"))
        yield client._connections()


def grow_old(context: ClientContext) -> None:
    """Make all descriptions older than they may be."""
    for known in context.catalog._entities.values():
        known.asked_at -= DESCRIPTION_AGE


def test_entities_in_use_are_looked_up_together(
    administration: ServiceBusAdministrationClient, context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call for all; what was replaced or deleted is looked up by itself, and what is not used not at all."""
    asked: list[Sequence[str]] = []
    several = context.descriptions.get_many

    def ask(names: Sequence[str]) -> list[EntityDescription | None]:
        asked.append(names)
        return several(names)

    before = {name: context.catalog.entity(EntityPath(name)) for name in QUEUES}
    settings = administration.get_queue("b")
    settings.status = EntityStatus.DISABLED
    administration.update_queue(settings)
    administration.delete_queue("c")
    administration.create_queue("c")
    context.catalog._entities["d"].used_at -= 3 * DESCRIPTION_AGE
    grow_old(context)
    monkeypatch.setattr(context.descriptions, "get_many", ask)
    assert context.catalog.entity(EntityPath("a")).ledgers == before["a"].ledgers
    assert context.catalog.entity(EntityPath("b")).description.status is EntityStatus.DISABLED
    assert asked == [["a", "b", "c"]]
    assert context.catalog.entity(EntityPath("c")).generation != before["c"].generation
    administration.delete_queue("d")
    with pytest.raises(MessagingEntityNotFoundError):
        context.catalog.entity(EntityPath("d"))


def test_an_entity_that_is_wanted_anew_is_not_taken_from_an_older_look(
    administration: ServiceBusAdministrationClient, context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller asks for it while all are looked up; the older answer does not count."""
    several = context.descriptions.get_many

    def ask(names: Sequence[str]) -> list[EntityDescription | None]:
        described = several(names)
        settings = administration.get_queue("b")
        settings.status = EntityStatus.DISABLED
        administration.update_queue(settings)
        context.catalog._entities["b"].asked_at = float("-inf")
        return described

    grow_old(context)
    with monkeypatch.context() as patch:
        patch.setattr(context.descriptions, "get_many", ask)
        context.catalog.entity(EntityPath("a"))
    assert context.catalog.entity(EntityPath("b")).description.status is EntityStatus.DISABLED


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_receiver_that_waits_learns_what_became_of_its_entity(
    namespace: InMemoryNamespace,
    administration: ServiceBusAdministrationClient,
    monkeypatch: pytest.MonkeyPatch,
    is_deleted: bool,
) -> None:
    """It does not look itself, however long it waits."""
    for module, constant in ((log_reader, "TOPIC_AGE"), (log_reader, "SLOW_POLL"), (consumer_pool, "SURVEY")):
        monkeypatch.setattr(module, constant, 2 * PATIENCE)
    monkeypatch.setattr(catalog, "DESCRIPTION_AGE", 0.2)
    monkeypatch.setattr(readers, "LOOK_EVERY", 0.05)
    async with aio.ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        wait = asyncio.create_task(client.get_queue_receiver("a").receive_messages(max_wait_time=PATIENCE))
        known = client._connections().receiving.readers._known
        while not (wait.done() or ("a" in known and known["a"].reader.log._turn.locked())):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if is_deleted:
            administration.delete_queue("a")
        else:
            settings = administration.get_queue("a")
            settings.status = EntityStatus.DISABLED
            administration.update_queue(settings)
        with pytest.raises(MessagingEntityNotFoundError if is_deleted else MessagingEntityDisabledError):
            await wait


def test_topics_that_are_read_are_asked_for_together(context: ClientContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request for all, rarer if nothing happens; one by one if a topic is another one, or Kafka refuses."""
    entities = [context.catalog.entity(EntityPath(name)) for name in QUEUES]
    asked: list[Sequence[str]] = []
    describe_all = context.topics.describe_all
    found: dict[str, Topic] = {}
    refuses = False

    def ask(names: Sequence[str], timeout: float | None = None) -> dict[str, Topic]:
        asked.append(names)
        if refuses and len(names) > 1:
            raise ServiceBusError("refused")
        return {**describe_all(names, timeout), **{name: found[name] for name in names if name in found}}

    for entity in entities:
        context.maintenance.recovery.check_topic(entity)
    monkeypatch.setattr(context.topics, "describe_all", ask)

    def check(age: float = TOPIC_AGE, *, calm: bool = False) -> None:
        asked.clear()
        for read in context.maintenance.recovery._topics_read.values():
            read.asked_at -= age
        for entity in entities:
            context.maintenance.recovery.check_topic(entity, calm=calm)

    check()
    assert asked == [[entity.topic for entity in entities]]
    check(calm=True)
    assert asked == []
    check(CALM_TOPIC_AGE - TOPIC_AGE, calm=True)
    assert asked == [[entity.topic for entity in entities]]
    check()
    refuses = True
    check()
    assert asked == [[entity.topic for entity in entities], *([entity.topic] for entity in entities)]
    refuses, topic = False, entities[2].topic
    found[topic] = Topic(topic, "another", 2, ())
    with pytest.raises(ServiceBusError, match="was created again with 2 partitions"):
        check()
    assert asked[:2] == [[entity.topic for entity in entities], [topic]]


def test_a_ledger_whose_poll_failed_is_asked_again(context: ClientContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing happens, only ledgers that have changed since they were asked are asked; a failed call asked none."""
    entity = context.catalog.entity(EntityPath("a"))
    log = context.receiving.readers.messages_of(entity).log
    execute, asked = context.ledger_client.execute, list[int]()

    def fail(*_operations: Operation) -> None:
        raise ServiceBusError("Redis does not answer")

    def count(*operations: Operation) -> None:
        asked.append(len(operations))
        execute(*operations)

    with monkeypatch.context() as patch:
        patch.setattr(context.ledger_client, "execute", fail)
        with pytest.raises(ServiceBusError):
            log._ask_for_returned(changed_only=True)
    monkeypatch.setattr(context.ledger_client, "execute", count)
    for _ in range(2):
        log._ask_for_returned(changed_only=True)
    assert asked == [entity.partitions]
