"""Unmatched messages behind the scenes: changes that are under way, others that were cut off, and the topic's log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import LedgerState
from kafkabus._sync.context import ClientContext
from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep import unmatched
from kafkabus_mapping.entities import SubscriptionDescription, TopicDescription
from kafkabus_mapping.names import UNMATCHED, EntityPath, subscription_name
from tests.contract.receiving import receive_all
from tests.integration.facade.test_forwarded import all_forwarded, all_of, forward
from tests.upkeep import hasten, tend

TOPIC, REST = "news", "rest"
READER = subscription_name(TOPIC, UNMATCHED)


@pytest.fixture
def administration(untended: str) -> Iterator[ServiceBusAdministrationClient]:
    """An administration client of a namespace with a plain topic, ``news``, whose unmatched messages go to ``rest``.

    No upkeep runs; settled records need not stay.
    """
    with ServiceBusAdministrationClient.from_connection_string(untended) as opened:
        opened.create_queue(REST, enable_partitioning=False)
        opened.create_topic(TOPIC, enable_partitioning=False, unmatched_to=REST, settled_retention=timedelta(0))
        opened.create_subscription(TOPIC, "s")
        yield opened
        opened.delete_topic(TOPIC)
        opened.delete_queue(REST)


@pytest.fixture
def context(untended: str) -> Iterator[ClientContext]:
    """A client's connections to that namespace, to look behind what users see."""
    opened = ClientContext(parse_settings(untended))
    yield opened
    opened.close()


def send(client: ServiceBusClient, *bodies: str) -> None:
    """Send messages."""
    with client.get_topic_sender(TOPIC) as sender:
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def never(_state: LedgerState) -> bool:
    """Go on forwarding until it fails."""
    return False


def received(client: ServiceBusClient, count: int) -> list[str]:
    """Receive and complete so many messages of the subscription, and those that still come after them."""
    with client.get_subscription_receiver(TOPIC, "s") as receiver:
        return [str(message) for message in receive_all(receiver, count)]


@pytest.mark.usefixtures("administration")
def test_rules_that_are_being_changed_are_waited_for(
    untended: str, client: ServiceBusClient, context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new rules count from before a message that was sent meanwhile: by the earlier ones it would be nowhere."""
    monkeypatch.setattr(unmatched, "WAITS_FOR_RULES", 0.1)
    name = subscription_name(TOPIC, "s")
    with context.descriptions.lock_for_change(name) as lock:
        known = context.descriptions.get(name)
        assert isinstance(known, SubscriptionDescription)
        changing = known.model_copy(update={"changing": ()})
        context.descriptions.put(changing)
        send(client, "while the rules change")
        with pytest.raises(ServiceBusError, match=r"waits: the rules of news/Subscriptions/s are being changed"):
            forward(untended, READER, never)
        ends = context.topics.stored_ends(known.topic, [0])

        def ends_before(_topics: object, _topic: str, _partitions: object) -> dict[int, int]:
            return {0: ends[0] - 1}

        monkeypatch.setattr(type(context.topics), "stored_ends", ends_before)
        context.maintenance.rule_changes.settle(lock, changing)
        monkeypatch.undo()
    forward(untended, READER, all_forwarded(1))
    assert all_of(client, REST, 1) == ["while the rules change"]
    assert received(client, 0) == []


@pytest.mark.usefixtures("administration")
def test_messages_that_were_judged_twice(
    untended: str,
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An instance that ends before it settles what a subscription wants leaves it to another one, which says the same."""
    send(client, "for s")
    with monkeypatch.context() as patch:
        patch.setattr(unmatched, "Settlement", _fail)
        with pytest.raises(ZeroDivisionError):
            forward(untended, READER, never)
    administration.delete_rule(TOPIC, "s", "$Default")
    send(client, "for the rest")
    forward(untended, READER, all_forwarded(2))
    assert all_of(client, REST, 1) == ["for the rest"]
    assert received(client, 1) == ["for s"]


@pytest.mark.usefixtures("administration")
def test_the_topic_s_log_is_kept_until_its_messages_are_judged(
    untended: str, client: ServiceBusClient, context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscription of upkeep keeps it as any other one, and the usage of the log names it."""
    hasten(monkeypatch)
    topic = context.catalog.entity(EntityPath(TOPIC)).topic
    send(client, *map(str, range(10)))
    received(client, 10)
    tend(untended, subscription_name(TOPIC, "s"), READER, TOPIC)
    assert context.topics.starts(topic, [0]) == {0: 0}
    # Another client, which has not read checkpoints yet: they are read again after some seconds.
    with ServiceBusAdministrationClient.from_connection_string(untended) as reader:
        usage = {usage.subscription_name: usage.records for usage in reader.get_topic_log_usage(TOPIC)}
    assert usage == {"s": (0,), UNMATCHED: (10,)}
    forward(untended, READER, all_forwarded(10))
    tend(untended, subscription_name(TOPIC, "s"), READER, TOPIC)
    assert context.topics.starts(topic, [0]) == {0: 10}


def test_upkeep_finishes_what_was_cut_off(
    untended: str, client: ServiceBusClient, context: ClientContext, administration: ServiceBusAdministrationClient
) -> None:
    """A topic whose creation was cut off is read from then on; one whose update was cut off is read no more."""
    known, topic = context.descriptions.get(READER), context.descriptions.get(TOPIC)
    assert known is not None
    assert isinstance(topic, TopicDescription)
    context.maintenance.lifecycle.delete(known)
    tend(untended, TOPIC)
    send(client, "x")
    administration.delete_rule(TOPIC, "s", "$Default")
    send(client, "y")
    forward(untended, READER, all_forwarded(2))
    assert all_of(client, REST, 1) == ["y"]
    context.descriptions.put(topic.model_copy(update={"unmatched_to": None}))
    tend(untended, TOPIC)
    with pytest.raises(MessagingEntityNotFoundError):
        administration.get_subscription(TOPIC, UNMATCHED)


def _fail(*_: object) -> None:
    raise ZeroDivisionError
