"""Subscriptions behind the scenes: the keeping of a topic's log, and changes of rules that are cut off or come at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver
from kafkabus._async.compat import sleep
from kafkabus._async.receiving.log_reader import LogReader as AsyncLogReader
from kafkabus._core.entity import Entity
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import SetRulesVersion, TakeSnapshot
from kafkabus._ledger.snapshot import Snapshot
from kafkabus._sync.context import ClientContext
from kafkabus._sync.entities.catalog import EntityCatalog
from kafkabus._sync.entities.rule_changes import LARGEST
from kafkabus.aio import ServiceBusClient as AsyncClient
from kafkabus.exceptions import (
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ServiceBusCommunicationError,
    ServiceBusQuotaExceededError,
)
from kafkabus.management import FalseRuleFilter, ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter
from kafkabus.testing import InMemoryNamespace
from kafkabus.upkeep import rule_change_recovery
from kafkabus_mapping.entities import EntityStatus, SubscriptionDescription, TopicDescription
from kafkabus_mapping.names import EntityPath, subscription_name
from tests.upkeep import hasten, tend

PATIENCE = 60.0

TOPIC = "news"


@pytest.fixture
def administration(untended: str) -> Iterator[ServiceBusAdministrationClient]:
    """An administration client of a namespace with a plain topic, ``news``.

    No upkeep runs; settled records need not stay.
    """
    with ServiceBusAdministrationClient.from_connection_string(untended) as opened:
        opened.create_topic(TOPIC, settled_retention=timedelta(0))
        yield opened
        opened.delete_topic(TOPIC)


@pytest.fixture
def context(untended: str) -> Iterator[ClientContext]:
    """A client's connections to that namespace, to look behind what users see."""
    opened = ClientContext(parse_settings(untended))
    yield opened
    opened.close()


class Upkeep:
    """Upkeep of a topic and its subscriptions, whenever the test calls it.

    Args:
        connection_string: Of the namespace.
        monkeypatch: Has it do its occasional tasks at once.
    """

    def __init__(self, connection_string: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connection_string = connection_string
        hasten(monkeypatch)
        monkeypatch.setattr(rule_change_recovery, "CUT_OFF_AFTER", 0.0)

    def tend(self, *subscriptions: str) -> None:
        """Run for two checkpoints each, and until the topic knows the later ones."""
        tend(self._connection_string, *(subscription_name(TOPIC, one) for one in subscriptions), TOPIC)


@pytest.fixture
def upkeep(untended: str, monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    """Upkeep of the topic and its subscriptions."""
    return Upkeep(untended, monkeypatch)


def send(client: ServiceBusClient, *numbers: int) -> None:
    """Send numbers."""
    with client.get_topic_sender(TOPIC) as sender:
        sender.send_messages([ServiceBusMessage(f"{n}", application_properties={"n": n}) for n in numbers])


def take(receiver: ServiceBusReceiver, count: int) -> list[int]:
    """Receive and complete so many messages, and return their numbers."""
    taken: list[int] = []
    while len(taken) < count:
        messages = receiver.receive_messages(count - len(taken), max_wait_time=60)
        assert messages, taken
        receiver.complete_messages(messages)
        taken += [int(str(message)) for message in messages]
    return taken


def log_start(context: ClientContext) -> int:
    """Return the offset at which the topic's log begins."""
    return context.topics.starts(context.catalog.entity(EntityPath(TOPIC)).topic, [0])[0]


def entity_of(context: ClientContext, subscription: str) -> Entity:
    """Return a subscription of the topic."""
    return context.catalog.entity(EntityPath(subscription_name(TOPIC, subscription)))


def standing(context: ClientContext, subscription: str) -> list[tuple[Snapshot, Snapshot | None]]:
    """Return the states of the ledgers of the topic and of a subscription, now and by their last checkpoints."""
    entities = context.catalog.entity(EntityPath(TOPIC)), entity_of(context, subscription)
    keeps = [TakeSnapshot(entity.ledgers[0]) for entity in entities]
    context.ledger_client.execute(*keeps)
    return [(keep.snapshot, context.stores.checkpoints.read(keep.ledger.keys.prefix)) for keep in keeps]


def description_of(context: ClientContext, subscription: str) -> SubscriptionDescription:
    """Return the present descriptions of the topic and of a subscription."""
    found = context.descriptions.get(subscription_name(TOPIC, subscription))
    assert isinstance(found, SubscriptionDescription)
    return found


def test_a_log_is_trimmed_up_to_what_all_subscriptions_have_settled(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, context: ClientContext, upkeep: Upkeep
) -> None:
    """The slow subscription keeps it, until it is deleted. Without any subscription nothing is kept."""
    for name in ("fast", "slow"):
        administration.create_subscription(TOPIC, name)
    send(client, *range(10))
    take(client.get_subscription_receiver(TOPIC, "fast"), 10)
    slow = client.get_subscription_receiver(TOPIC, "slow")
    take(slow, 4)
    upkeep.tend("fast", "slow")
    assert log_start(context) == 4
    assert take(slow, 2) == [4, 5]
    upkeep.tend("fast", "slow")
    assert log_start(context) == 6
    administration.delete_subscription(TOPIC, "slow")
    upkeep.tend("fast")
    assert log_start(context) == 10
    administration.delete_subscription(TOPIC, "fast")
    send(client, 10, 11)
    upkeep.tend()
    assert log_start(context) == 12


def test_what_no_rule_wants_keeps_no_log(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, context: ClientContext, upkeep: Upkeep
) -> None:
    """That holds even if no client receives from the subscription."""
    administration.create_subscription(TOPIC, "nothing")
    administration.create_rule(TOPIC, "nothing", "none", filter=FalseRuleFilter())
    administration.delete_rule(TOPIC, "nothing", "$Default")
    send(client, *range(10))
    upkeep.tend("nothing")
    assert log_start(context) == 10
    counts = administration.get_subscription_runtime_properties(TOPIC, "nothing")
    assert counts.total_message_count == 0


def test_a_deferred_message_keeps_no_log(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, context: ClientContext, upkeep: Upkeep
) -> None:
    """It is kept apart for its subscription, as the rule of its time made it."""
    administration.create_subscription(TOPIC, "one")
    send(client, *range(30))
    with client.get_subscription_receiver(TOPIC, "one") as receiver:
        first = receiver.receive_messages(1, max_wait_time=60)[0]
        receiver.defer_message(first)
        assert take(receiver, 29) == list(range(1, 30))
        upkeep.tend("one")
        assert log_start(context) == 30
        number = first.sequence_number
        assert [str(message) for message in receiver.peek_messages(5, sequence_number=number)] == ["0"]
        (deferred,) = receiver.receive_deferred_messages(number)
        assert (str(deferred), deferred.application_properties) == ("0", {b"n": 0})
        receiver.complete_message(deferred)
        assert receiver.peek_messages(5, sequence_number=number) == []


@pytest.mark.parametrize("told", [False, True], ids=["before a ledger knows", "when the ledger knows"])
def test_a_change_of_rules_that_was_cut_off_is_done_by_upkeep(
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    context: ClientContext,
    upkeep: Upkeep,
    told: bool,
) -> None:
    """Earlier messages follow the earlier rules, later ones the new rules; nothing is received before."""
    administration.create_subscription(TOPIC, "one")
    administration.create_rule(TOPIC, "one", "even", filter=SqlRuleFilter("n % 2 = 0"))
    administration.delete_rule(TOPIC, "one", "$Default")
    receiver = client.get_subscription_receiver(TOPIC, "one")
    send(client, 0, 1, 2)
    description = description_of(context, "one")
    (even,) = description.rules
    odd = even.model_copy(update={"filter": even.filter.model_copy(update={"expression": "n % 2 = 1"})})
    changing = description.model_copy(update={"changing": (odd,)})
    context.descriptions.put(changing)
    if told:
        context.ledger_client.execute(
            SetRulesVersion(entity_of(context, "one").ledgers[0], changing.rules_version + 1, 3)
        )
    else:
        # A client that does not know of the change goes on by the earlier rules.
        assert take(receiver, 1) == [0]
    send(client, 3, 4)
    upkeep.tend("one")
    assert description_of(context, "one").changing is None
    send(client, 5, 6)
    if told:
        assert take(receiver, 4) == [0, 2, 3, 5]
    else:
        assert take(receiver, 3) == [2, 4, 5]
    assert receiver.receive_messages(1, max_wait_time=0.5) == []


def test_rules_that_are_too_large_change_nothing(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, context: ClientContext
) -> None:
    """That holds for the smallest excess, too. The existing rules remain, and can be changed."""
    administration.create_subscription(TOPIC, "one")
    sql = SqlRuleFilter("n = @n OR a = @x", parameters={"@n": 0, "@x": ""})
    administration.create_rule(TOPIC, "one", "large", filter=sql)
    administration.delete_rule(TOPIC, "one", "$Default")
    receiver = client.get_subscription_receiver(TOPIC, "one")
    room = LARGEST - len(description_of(context, "one").model_dump_json())
    refused = 0
    for length in range(room, 0, -10):
        larger = SqlRuleFilter(sql.sql_expression, parameters={"@n": 1, "@x": "x" * length})
        rule = administration.get_rule(TOPIC, "one", "large")
        try:
            administration.update_rule(TOPIC, "one", rule, filter=larger)
            break
        except ServiceBusQuotaExceededError:
            refused += 1
        assert description_of(context, "one").changing is None
    assert refused > 0
    send(client, 0, 1, 2)
    assert take(receiver, 1) == [1]
    administration.update_rule(TOPIC, "one", administration.get_rule(TOPIC, "one", "large"), filter=sql)
    send(client, 0)
    assert take(receiver, 1) == [0]


def test_rules_that_no_message_was_sent_under_leave_nothing_behind(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, context: ClientContext
) -> None:
    """That holds for many changes one by one, on a log that others keep."""
    send(client, 0)
    administration.create_subscription(TOPIC, "one")
    for number in range(5):
        administration.create_rule(TOPIC, "one", f"{number}", filter=SqlRuleFilter(f"n = {number}"))
    assert [len(one.rules) for one in description_of(context, "one").rule_sets] == [6]
    send(client, 1)
    administration.delete_rule(TOPIC, "one", "$Default")
    administration.delete_rule(TOPIC, "one", "1")
    assert [len(one.rules) for one in description_of(context, "one").rule_sets] == [6, 4]
    send(client, 1, 2)
    assert take(client.get_subscription_receiver(TOPIC, "one"), 2) == [1, 2]


def test_a_change_of_a_topic_that_was_cut_off_is_done_by_upkeep(
    administration: ServiceBusAdministrationClient, context: ClientContext, upkeep: Upkeep
) -> None:
    """Its subscriptions follow the change as well: the last one, if several clients change the topic at once."""
    administration.create_subscription(TOPIC, "one")
    topic = context.descriptions.get(TOPIC)
    assert isinstance(topic, TopicDescription)
    disabled = topic.model_copy(update={"status": EntityStatus.RECEIVE_DISABLED})
    context.descriptions.put(disabled)
    upkeep.tend("one")
    assert description_of(context, "one").topic_status is EntityStatus.RECEIVE_DISABLED
    context.maintenance.lifecycle.share(topic)
    assert description_of(context, "one").topic_status is EntityStatus.RECEIVE_DISABLED


def test_rules_survive_the_loss_of_redis(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, context: ClientContext
) -> None:
    """Each message follows the rules that were in force when it was sent."""
    administration.create_subscription(TOPIC, "one")
    send(client, 0, 1)
    administration.create_rule(TOPIC, "one", "even", filter=SqlRuleFilter("n % 2 = 0"))
    administration.delete_rule(TOPIC, "one", "$Default")
    send(client, 2, 3)
    context.ledger_client.forget(list(entity_of(context, "one").ledgers))
    administration.update_rule(
        TOPIC, "one", administration.get_rule(TOPIC, "one", "even"), filter=SqlRuleFilter("n % 2 = 1")
    )
    send(client, 4, 5)
    context.ledger_client.forget(list(entity_of(context, "one").ledgers))
    with client.get_subscription_receiver(TOPIC, "one") as receiver:
        assert take(receiver, 4) == [0, 1, 2, 5]
        assert receiver.receive_messages(1, max_wait_time=0.5) == []


def test_rules_of_several_clients_at_once_are_all_made(
    untended: str, administration: ServiceBusAdministrationClient
) -> None:
    """No client undoes another one's change, nor does a client that changes a setting at the same time."""
    administration.create_subscription(TOPIC, "one")

    def create(number: int) -> None:
        with ServiceBusAdministrationClient.from_connection_string(untended) as mine:
            for each in range(3):
                mine.create_rule(TOPIC, "one", f"r{number}.{each}", filter=SqlRuleFilter(f"n = {number}"))
                mine.update_subscription(TOPIC, mine.get_subscription(TOPIC, "one"), user_metadata=f"{number}.{each}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(create, range(4)))
    names = [rule.name for rule in administration.list_rules(TOPIC, "one")]
    assert names == ["$Default", *(f"r{number}.{each}" for number in range(4) for each in range(3))]


def test_of_several_creations_at_once_one_is_done(
    untended: str, administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """The other clients get an error. Messages are received from the return of the first creation on."""
    sent: list[int] = []

    def create(number: int) -> bool:
        with ServiceBusAdministrationClient.from_connection_string(untended) as mine:
            with suppress(MessagingEntityAlreadyExistsError):
                mine.create_subscription(TOPIC, "one")
                sent.append(number)
                send(client, number)
                return True
            return False

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(create, range(4)))
    assert sum(done) == len(sent) == 1
    assert take(client.get_subscription_receiver(TOPIC, "one"), 1) == sent
    assert [one.name for one in administration.list_subscriptions(TOPIC)] == ["one"]


@pytest.fixture
def stale(untended: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceBusClient]:
    """A client that keeps the description that it saw first, unless it is notified of a newer one."""
    with ServiceBusClient.from_connection_string(untended) as opened:
        opened._context = ClientContext(parse_settings(untended))
        ask = opened._context.catalog.entity

        def entity(path: EntityPath) -> Entity:
            with monkeypatch.context() as patch:
                patch.setattr("kafkabus._sync.entities.catalog.DESCRIPTION_AGE", 3600.0)
                return ask(path)

        monkeypatch.setattr(opened._context.catalog, "entity", entity)
        yield opened


def mark_with(administration: ServiceBusAdministrationClient, subscription: str, color: str) -> None:
    """Have a subscription mark all later messages with this color."""
    administration.create_rule(TOPIC, subscription, color, action=SqlRuleAction(f"SET color = '{color}'"))
    for rule in administration.list_rules(TOPIC, subscription):
        if rule.name != color:
            administration.delete_rule(TOPIC, subscription, rule.name)


def test_what_was_granted_before_is_known_by_the_rules_that_chose_it(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, stale: ServiceBusClient
) -> None:
    """That holds for a client that heard of no change, for messages that another one abandoned, and for deferred ones."""
    administration.create_subscription(TOPIC, "one")
    mark_with(administration, "one", "red")
    late = stale.get_subscription_receiver(TOPIC, "one")
    send(client, 0)
    assert colors(late.receive_messages(1, max_wait_time=60)) == [b"red"]
    mark_with(administration, "one", "blue")
    send(client, 1, 2)
    with client.get_subscription_receiver(TOPIC, "one") as receiver:
        deferred, abandoned = receiver.receive_messages(2, max_wait_time=60)
        receiver.defer_message(deferred)
        receiver.abandon_message(abandoned)
    assert colors(late.receive_deferred_messages(deferred.sequence_number or 0)) == [b"blue"]
    (again,) = late.receive_messages(1, max_wait_time=60)
    assert (colors([again]), again.delivery_count) == ([b"blue"], 1)


def test_whoever_abandoned_it_a_message_comes_again_by_the_rules_that_chose_it(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, stale: ServiceBusClient
) -> None:
    """The client heard of no change, and is granted nothing new."""
    administration.create_subscription(TOPIC, "one")
    mark_with(administration, "one", "red")
    late = stale.get_subscription_receiver(TOPIC, "one")
    send(client, 0)
    assert take(late, 1) == [0]
    mark_with(administration, "one", "blue")
    send(client, 1)
    with client.get_subscription_receiver(TOPIC, "one") as receiver:
        receiver.abandon_message(receiver.receive_messages(1, max_wait_time=60)[0])
    assert colors(late.receive_messages(1, max_wait_time=60)) == [b"blue"]


def test_a_session_goes_on_by_the_rules_that_chose_its_messages(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, stale: ServiceBusClient
) -> None:
    """Its holder heard of no change, though another client filed its messages."""
    administration.create_subscription(TOPIC, "one", requires_session=True)
    mark_with(administration, "one", "red")
    sender = client.get_topic_sender(TOPIC)
    sender.send_messages(ServiceBusMessage("0", session_id="s"))
    with stale.get_subscription_receiver(TOPIC, "one", session_id="s") as late:
        assert colors(late.receive_messages(1, max_wait_time=60)) == [b"red"]
        mark_with(administration, "one", "blue")
        sender.send_messages([ServiceBusMessage("1", session_id="s"), ServiceBusMessage("2", session_id="other")])
        with client.get_subscription_receiver(TOPIC, "one", session_id="other") as receiver:
            assert colors(receiver.receive_messages(1, max_wait_time=60)) == [b"blue"]
        assert colors(late.receive_messages(1, max_wait_time=60)) == [b"blue"]


@pytest.mark.parametrize("deferred", [False, True])
def test_who_cannot_ask_for_the_rules_is_granted_the_same_once_more(
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    stale: ServiceBusClient,
    monkeypatch: pytest.MonkeyPatch,
    *,
    deferred: bool,
) -> None:
    """No message of a session comes before it, and deferred ones can be fetched at once."""
    administration.create_subscription(TOPIC, "one", requires_session=True)
    mark_with(administration, "one", "red")
    sender = client.get_topic_sender(TOPIC)
    sender.send_messages([ServiceBusMessage(str(number), session_id="s") for number in range(3)])
    with stale.get_subscription_receiver(TOPIC, "one", session_id="s") as late:
        (first,) = late.receive_messages(1, max_wait_time=60)
        if deferred:
            late.defer_message(first)

        def receive() -> list[ServiceBusReceivedMessage]:
            if deferred:
                return late.receive_deferred_messages(first.sequence_number or 0)
            return late.receive_messages(1, max_wait_time=60)

        mark_with(administration, "one", "blue")
        with monkeypatch.context() as patch:
            patch.setattr(EntityCatalog, "entity_anew", _fail)
            with pytest.raises(ServiceBusCommunicationError):
                receive()
        assert [str(message) for message in receive()] == ["0" if deferred else "1"]


def _fail(*_arguments: object, **_named: object) -> None:
    raise ServiceBusCommunicationError("not asked")


def colors(messages: list[ServiceBusReceivedMessage]) -> list[object]:
    """Return the results of a rule's action on messages."""
    return [(message.application_properties or {}).get(b"color") for message in messages]


def test_who_receives_hears_of_settings_that_say_what_is_received(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver follows changes of how to treat messages for which a rule fails."""
    monkeypatch.setattr("kafkabus._sync.entities.catalog.DESCRIPTION_AGE", 0.0)
    administration.create_subscription(TOPIC, "one", dead_lettering_on_filter_evaluation_exceptions=False)
    administration.create_rule(TOPIC, "one", "large", filter=SqlRuleFilter("n > 5"))
    administration.delete_rule(TOPIC, "one", "$Default")
    faulty = ServiceBusMessage("x", application_properties={"n": "x"})
    with client.get_topic_sender(TOPIC) as sender, client.get_subscription_receiver(TOPIC, "one") as receiver:
        sender.send_messages(faulty)
        send(client, 6)
        assert take(receiver, 1) == [6]
        administration.update_subscription(
            TOPIC,
            administration.get_subscription(TOPIC, "one"),
            dead_lettering_on_filter_evaluation_exceptions=True,
        )
        sender.send_messages(faulty)
        send(client, 7)
        assert take(receiver, 1) == [7]
    counts = administration.get_subscription_runtime_properties(TOPIC, "one")
    assert counts.dead_letter_message_count == 1


def test_a_receive_ends_in_time_though_it_passes_much_that_is_not_wanted(
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    context: ClientContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work that this client has not come to is left to the next one."""
    monkeypatch.setattr("kafkabus._core.fetch_plan.PASSED_OVER", 100)
    monkeypatch.setattr("kafkabus._sync.kafka.partition_fetcher.CHOOSE_FOR", 0.0)
    administration.create_subscription(TOPIC, "one")
    administration.create_rule(TOPIC, "one", "none", filter=FalseRuleFilter())
    administration.delete_rule(TOPIC, "one", "$Default")
    send(client, *range(3000))
    assert client.get_subscription_receiver(TOPIC, "one").receive_messages(1, max_wait_time=0.01) == []
    (state,) = context.ledger_client.states(entity_of(context, "one").ledgers)
    assert state is None or state.cursor < 3000


def test_one_client_reads_subscriptions_that_have_come_to_different_places(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, untended: str
) -> None:
    """There are more of them than a client has consumers, each of which reads the topic's log from one place.

    It takes seconds, because some wait for their turn, which another one gives up after a second.
    """
    names = [f"s{number}" for number in range(6)]
    for name in names:
        administration.create_subscription(TOPIC, name)
    send(client, *range(300))
    taken = {name: take(client.get_subscription_receiver(TOPIC, name), 1 + 50 * i) for i, name in enumerate(names)}
    with ServiceBusClient.from_connection_string(untended) as another:
        receivers = {name: another.get_subscription_receiver(TOPIC, name) for name in names}
        for _ in range(6):
            for name in names:
                taken[name] += take(receivers[name], min(50, 300 - len(taken[name])))
        send(another, 300)
        for name in names:
            taken[name] += take(receivers[name], 1)
    assert all(numbers == list(range(301)) for numbers in taken.values())


def test_a_subscription_that_is_half_deleted_is_not_in_its_topics_way(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, context: ClientContext, upkeep: Upkeep
) -> None:
    """The client that deleted it died: messages that the subscription had not settled keep no log."""
    for name in ("one", "gone"):
        administration.create_subscription(TOPIC, name)
    send(client, *range(10))
    assert take(client.get_subscription_receiver(TOPIC, "one"), 10) == list(range(10))
    gone = description_of(context, "gone")
    context.descriptions.put(gone.model_copy(update={"status": EntityStatus.DELETING}))
    upkeep.tend("one")
    assert log_start(context) == 10


def test_the_log_of_a_topic_that_detects_duplicates_is_trimmed(
    administration: ServiceBusAdministrationClient,
    client: ServiceBusClient,
    context: ClientContext,
    upkeep: Upkeep,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records are deleted once none of them counts any more for duplicate detection."""
    administration.delete_topic(TOPIC)
    administration.create_topic(TOPIC, settled_retention=timedelta(0), requires_duplicate_detection=True)
    administration.create_subscription(TOPIC, "one")
    with client.get_topic_sender(TOPIC) as sender:
        sender.send_messages([ServiceBusMessage(f"{n // 2}", message_id=f"{n // 2}") for n in range(20)])
    send(client, 10)
    assert take(client.get_subscription_receiver(TOPIC, "one"), 11) == list(range(11))
    monkeypatch.setattr(Entity, "window_ms", 0)
    deadline = time.monotonic() + 60
    while log_start(context) < 20:
        # Messages that were stored since the checkpoint before the last count still.
        assert time.monotonic() < deadline, standing(context, "one")
        upkeep.tend("one")
    upkeep.tend("one")
    known = [(one.cursor, one.skipped, one.duplicates) for one, _ in standing(context, "one")]
    assert known == [(21, [], []), (21, [], [])]


def test_rejected_messages_cost_redis_no_work(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, context: ClientContext
) -> None:
    """A thousand messages, of which one is wanted, take a handful of requests."""
    administration.create_subscription(TOPIC, "one")
    administration.create_rule(TOPIC, "one", "last", filter=SqlRuleFilter("n = 999"))
    administration.delete_rule(TOPIC, "one", "$Default")
    send(client, *range(1000))
    ledgers = entity_of(context, "one").ledgers
    (before,) = context.ledger_client.states(ledgers)
    assert take(client.get_subscription_receiver(TOPIC, "one"), 1) == [999]
    (after,) = context.ledger_client.states(ledgers)
    assert before is not None
    assert after is not None
    assert after.version - before.version < 20


async def until(done: Callable[[], object]) -> None:
    """Let other tasks go on until a condition holds."""
    while not done():
        await sleep(0.01)


async def test_a_subscription_that_is_deleted_while_its_reader_asks_for_its_rules_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another task finds out that it is gone, and gives up its reader, which is about to ask for its rules."""
    reached, go_on = asyncio.Event(), asyncio.Event()
    learn = AsyncLogReader.learn_rules

    async def learn_later(self: AsyncLogReader) -> None:
        reached.set()
        await go_on.wait()
        await learn(self)

    path = EntityPath("t/Subscriptions/s")
    with (
        InMemoryNamespace() as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
    ):
        administration.create_topic("t")
        administration.create_subscription("t", "s")
        async with AsyncClient.from_connection_string(namespace.connection_string) as client:
            context = client._connections()
            monkeypatch.setattr(AsyncLogReader, "learn_rules", learn_later)
            receiving = asyncio.create_task(
                client.get_subscription_receiver("t", "s").receive_messages(1, max_wait_time=30)
            )

            async def delete_it() -> list[object]:
                await until(lambda: path.key in context.receiving.readers._known)
                await asyncio.to_thread(administration.create_rule, "t", "s", "another")
                await client.get_topic_sender("t").send_messages(ServiceBusMessage("x"))
                await reached.wait()
                await asyncio.to_thread(administration.delete_subscription, "t", "s")
                context.catalog._entities[path.key].asked_at = -math.inf
                asking = asyncio.create_task(context.catalog.entity(path))
                await until(lambda: asking.done() or ((lock := context.catalog._locks.get(path.key)) and lock.locked()))
                go_on.set()
                return list(await asyncio.gather(receiving, asking, return_exceptions=True))

            found = await asyncio.wait_for(delete_it(), PATIENCE)
            assert [type(one) for one in found] == [MessagingEntityNotFoundError] * 2
