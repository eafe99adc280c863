"""Topics: one write, many readers, each with separate locks, dead letters and rules."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from kafkabus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from kafkabus._async.dispositions.transaction_commit import TransactionCommit
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import (
    InvalidOperationError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusQuotaExceededError,
)
from kafkabus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from tests.contract.aio.conftest import Advance, MakeQueue, MakeTopic
from tests.contract.aio.receiving import receive_all, take

PATIENCE = 60.0


async def send(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    """Send messages to a topic."""
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages(list(messages))


async def all_of(
    client: ServiceBusClient, topic: str, subscription: str, count: int, **settings: Any
) -> list[ServiceBusReceivedMessage]:
    """Receive and complete so many messages of a subscription, and see that no more come."""
    async with client.get_subscription_receiver(topic, subscription, **settings) as receiver:
        messages = await receive_all(receiver, count)
        assert len(messages) == count
        return messages


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
async def test_each_subscription_gets_every_message(
    client: ServiceBusClient, make_topic: MakeTopic, partitioned: bool
) -> None:
    """Each message comes once, with the same sequence number. Subscriptions settle it independently."""
    topic = await make_topic("one", "two", partitioned=partitioned)
    await send(client, topic, *(ServiceBusMessage(f"{n}", partition_key="k", subject="s") for n in range(10)))
    one, two = await all_of(client, topic, "one", 10), await all_of(client, topic, "two", 10)
    assert [str(message) for message in one] == [str(message) for message in two] == [f"{n}" for n in range(10)]
    assert [message.sequence_number for message in one] == [message.sequence_number for message in two]
    assert {message.subject for message in one} == {"s"}


async def test_a_subscription_begins_when_it_is_created(
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
) -> None:
    """The subscription gets messages from its creation on; deleted and created again, it gets later ones only."""
    topic = await make_topic("early")
    await send(client, topic, ServiceBusMessage("before", partition_key="k"))
    await administration.create_subscription(topic, "late")
    await send(client, topic, ServiceBusMessage("after", partition_key="k"))
    assert [str(message) for message in await all_of(client, topic, "early", 2)] == ["before", "after"]
    assert [str(message) for message in await all_of(client, topic, "late", 1)] == ["after"]
    await administration.delete_subscription(topic, "late")
    await send(client, topic, ServiceBusMessage("nobody's", partition_key="k"))
    await administration.create_subscription(topic, "late")
    await send(client, topic, ServiceBusMessage("again", partition_key="k"))
    assert [str(message) for message in await all_of(other_client, topic, "late", 1)] == ["again"]


async def test_locks_and_dead_letters_are_each_subscription_s_own(
    client: ServiceBusClient, make_topic: MakeTopic
) -> None:
    """A message that is abandoned, deferred or dead-lettered in one subscription is untouched in another."""
    topic = await make_topic("one", "two", partitioned=False)
    await send(client, topic, *(ServiceBusMessage(one) for one in ("abandoned", "deferred", "dead")))
    async with client.get_subscription_receiver(topic, "one") as receiver:
        first, second, third = await take(receiver, 3)
        await receiver.abandon_message(first)
        await receiver.defer_message(second)
        await receiver.dead_letter_message(third, reason="why", error_description="more")
        (again,) = await take(receiver, 1)
        assert (str(again), again.delivery_count) == ("abandoned", 1)
        await receiver.complete_message(again)
        (later,) = await receiver.receive_deferred_messages([second.sequence_number])
        await receiver.complete_message(later)
    (dead,) = await all_of(client, topic, "one", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert (str(dead), dead.dead_letter_reason) == ("dead", "why")
    assert dead.dead_letter_source == f"{topic}/Subscriptions/one"
    two = await all_of(client, topic, "two", 3)
    assert [(str(message), message.delivery_count) for message in two] == [
        ("abandoned", 0),
        ("deferred", 0),
        ("dead", 0),
    ]


async def test_peeking_and_receive_and_delete(client: ServiceBusClient, make_topic: MakeTopic) -> None:
    """Both work as with a queue."""
    topic = await make_topic("one")
    await send(client, topic, *(ServiceBusMessage(f"{n}", partition_key="k") for n in range(5)))
    async with client.get_subscription_receiver(
        topic, "one", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        assert [str(message) for message in await receiver.peek_messages(3)] == ["0", "1", "2"]
        assert [str(message) for message in await take(receiver, 5)] == [f"{n}" for n in range(5)]
        assert await receiver.peek_messages(3, sequence_number=1) == []
    assert str(receiver.entity_path) == f"{topic}/Subscriptions/one"


async def test_rules_say_which_messages_a_subscription_gets(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Rules go by properties or by an expression, or match nothing. Counts leave out unwanted messages."""
    topic = await make_topic("all", "red", "cheap", "none", partitioned=False)
    rules: dict[str, Any] = {
        "red": CorrelationRuleFilter(label="paint", properties={"color": "red"}),
        "cheap": SqlRuleFilter("price < @limit AND sys.Label = 'paint'", parameters={"@limit": 5}),
        "none": FalseRuleFilter(),
    }
    for subscription, filter_ in rules.items():
        await administration.delete_rule(topic, subscription, "$Default")
        await administration.create_rule(topic, subscription, "mine", filter=filter_)
    paints = [("red", 9), ("red", 1), ("blue", 2), ("blue", 7)]
    await send(
        client,
        topic,
        *(
            ServiceBusMessage(
                f"{color} {price}", subject="paint", application_properties={"Color": color, "price": price}
            )
            for color, price in paints
        ),
        ServiceBusMessage("red 0", subject="brush", application_properties={"color": "red", "price": 0}),
    )

    async def counts() -> dict[str, int]:
        found = {}
        async for one in administration.list_subscriptions_runtime_properties(topic):
            found[one.name] = one.active_message_count
        return found

    deadline = time.monotonic() + PATIENCE
    wanted = {"all": 5, "red": 2, "cheap": 2, "none": 0}
    while await counts() != wanted and time.monotonic() < deadline:
        pass
    assert await counts() == wanted
    assert len(await all_of(client, topic, "all", 5)) == 5
    assert [str(message) for message in await all_of(client, topic, "red", 2)] == ["red 9", "red 1"]
    assert [str(message) for message in await all_of(client, topic, "cheap", 2)] == ["red 1", "blue 2"]
    assert await all_of(client, topic, "none", 0) == []


async def test_rules_compare_and_count_decimals(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """With other numbers, and exactly: three dimes are 0.3."""
    topic = await make_topic("dear", "equal", "sum", partitioned=False)
    rules: dict[str, tuple[Any, Any]] = {
        "dear": (SqlRuleFilter("amount > 12 AND amount < @most", parameters={"@most": Decimal("12.6")}), None),
        "equal": (CorrelationRuleFilter(properties={"amount": Decimal("12.5")}), None),
        "sum": (SqlRuleFilter("amount + amount + amount = 0.3"), SqlRuleAction("SET amount = amount * 3 - 0.05")),
    }
    for subscription, (filter_, action) in rules.items():
        await administration.create_rule(topic, subscription, "mine", filter=filter_, action=action)
        await administration.delete_rule(topic, subscription, "$Default")
    stored = await administration.get_rule(topic, "dear", "mine")
    assert isinstance(stored.filter, SqlRuleFilter)
    assert stored.filter.parameters == {"@most": Decimal("12.6")}
    for amount in (Decimal("12.50"), Decimal("0.1"), Decimal(12), 12.5):
        await send(client, topic, ServiceBusMessage(str(amount), application_properties={"amount": amount}))
    assert [str(message) for message in await all_of(client, topic, "dear", 2)] == ["12.50", "12.5"]
    assert [str(message) for message in await all_of(client, topic, "equal", 2)] == ["12.50", "12.5"]
    (changed,) = await all_of(client, topic, "sum", 1)
    assert (changed.application_properties or {})[b"amount"] == Decimal("0.25")


async def test_a_duration_between_times_is_compared(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Microsoft's documentation subtracts times so."""
    topic = await make_topic("late", partitioned=False)
    late = SqlRuleFilter("sys.EnqueuedTimeUtc - due > @grace", parameters={"@grace": timedelta(minutes=5)})
    await administration.create_rule(topic, "late", "late", filter=late)
    await administration.delete_rule(topic, "late", "$Default")
    now = datetime.now(timezone.utc)
    for name, due in (("early", now + timedelta(hours=1)), ("late", now - timedelta(hours=1))):
        await send(client, topic, ServiceBusMessage(name, application_properties={"due": due}))
    assert [str(message) for message in await all_of(client, topic, "late", 1)] == ["late"]


async def test_a_rule_counts_from_when_it_was_made(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Earlier messages follow the earlier rules, even if no receiver had received them."""
    topic = await make_topic("one", partitioned=False)

    def numbered(n: int) -> ServiceBusMessage:
        return ServiceBusMessage(f"{n}", application_properties={"n": n})

    async with client.get_topic_sender(topic) as sender, client.get_subscription_receiver(topic, "one") as receiver:
        await sender.send_messages([numbered(0), numbered(1)])
        (first,) = await receiver.receive_messages(1, max_wait_time=PATIENCE)
        await administration.create_rule(topic, "one", "even", filter=SqlRuleFilter("n % 2 = 0"))
        await administration.delete_rule(topic, "one", "$Default")
        await sender.send_messages([numbered(2), numbered(3), numbered(4)])
        await administration.update_rule(
            topic, "one", await administration.get_rule(topic, "one", "even"), filter=SqlRuleFilter("n % 2 = 1")
        )
        await sender.send_messages([numbered(5), numbered(6)])
        others = await take(receiver, 4)
        assert [str(message) for message in (first, *others)] == ["0", "1", "2", "4", "5"]
        await receiver.complete_messages([first, *others])
        assert await receiver.receive_messages(1, max_wait_time=0.5) == []


async def test_an_action_changes_the_copy_of_its_rule(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The copy names the rule. It stays changed when it is peeked, comes again, is deferred or dead-lettered."""
    topic = await make_topic("plain", "changed", partitioned=False)
    await administration.delete_rule(topic, "changed", "$Default")
    await administration.create_rule(
        topic, "changed", "dear", filter=SqlRuleFilter("price > 5"), action=SqlRuleAction("SET price = price + 1")
    )
    for price in (7, 3):
        await send(client, topic, ServiceBusMessage("x", application_properties={"price": price}))
    async with client.get_subscription_receiver(topic, "changed") as receiver:
        wanted = {b"price": 8, b"RuleName": b"dear"}
        (peeked,) = await receiver.peek_messages(5)
        assert peeked.application_properties == wanted
        (message,) = await take(receiver, 1)
        assert message.application_properties == wanted
        await receiver.abandon_message(message)
        (message,) = await take(receiver, 1)
        assert message.application_properties == wanted
        await receiver.defer_message(message)
        (message,) = await receiver.receive_deferred_messages([message.sequence_number])
        assert message.application_properties == wanted
        await receiver.dead_letter_message(message)
    (dead,) = await all_of(client, topic, "changed", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert dead.application_properties == wanted
    assert [m.application_properties for m in await all_of(client, topic, "plain", 2)] == [{b"price": 7}, {b"price": 3}]


async def test_each_rule_with_an_action_makes_a_copy(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """All rules without an action give the message once. Another subscription gets none of the copies."""
    topic = await make_topic("copies", "plain", partitioned=False, requires_duplicate_detection=True)
    await administration.create_rule(topic, "copies", "also", filter=SqlRuleFilter("n = 1"))
    for name in ("a", "b"):
        await administration.create_rule(
            topic, "copies", name, filter=SqlRuleFilter("n = 1"), action=SqlRuleAction(f"SET made = '{name}'")
        )
    await send(client, topic, *(ServiceBusMessage(f"{n}", application_properties={"n": n}) for n in (1, 2)))
    found = await all_of(client, topic, "copies", 4)
    assert all(b"sb-addressed-to" not in (message.application_properties or {}) for message in found)
    made = [(message.application_properties or {}).get(b"made") for message in found if str(message) == "1"]
    assert sorted(made, key=repr) == [None, b"a", b"b"]
    assert [str(message) for message in found if str(message) == "2"] == ["2"]
    assert len({message.sequence_number for message in found}) == 4
    assert [str(message) for message in await all_of(client, topic, "plain", 2)] == ["1", "2"]


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
async def test_what_was_acknowledged_while_a_transaction_is_open_goes_by_the_earlier_rules(
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    commits: bool,
) -> None:
    """A subscription that is created during it gets none of its messages: readers cannot see the end of the log yet."""
    topic = await make_topic("changed", partitioned=False)
    await administration.delete_rule(topic, "changed", "$Default")
    await administration.create_rule(topic, "changed", "colour", filter=SqlRuleFilter("sys.Label = 'red'"))

    async def prepare(*_arguments: Any) -> None:
        await send(other_client, topic, *(ServiceBusMessage(f"{n}", subject="red") for n in range(4)))
        rule = await administration.get_rule(topic, "changed", "colour")
        await administration.update_rule(topic, "changed", rule, filter=SqlRuleFilter("sys.Label = 'blue'"))
        await administration.create_subscription(topic, "late")
        later = [ServiceBusMessage("4", subject="blue"), ServiceBusMessage("5", subject="red")]
        await send(other_client, topic, *later)
        if not commits:
            raise LookupError

    # The transaction's messages are stored, and not committed yet.
    monkeypatch.setattr(TransactionCommit, "_prepare", prepare)
    with suppress(LookupError):
        async with client.get_topic_sender(topic) as sender, client.transaction() as transaction:
            await sender.send_messages(ServiceBusMessage("inside", subject="red"), transaction=transaction)
    inside = ["inside"] if commits else []
    changed = await all_of(client, topic, "changed", len(inside) + 5)
    assert [str(message) for message in changed] == [*inside, "0", "1", "2", "3", "4"]
    assert [str(message) for message in await all_of(client, topic, "late", 2)] == ["4", "5"]


async def test_a_message_that_no_rule_can_be_said_of_is_dead_lettered(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """That depends on the subscription's setting; if another rule matches, the subscription gets the message anyway."""
    topic = await make_topic(partitioned=False)
    for name, keeps in (("keeps", True), ("drops", False)):
        await administration.create_subscription(topic, name, dead_lettering_on_filter_evaluation_exceptions=keeps)
        await administration.delete_rule(topic, name, "$Default")
        await administration.create_rule(topic, name, "large", filter=SqlRuleFilter("n > 5"))
    await send(client, topic, *(ServiceBusMessage(f"{n}", application_properties={"n": n}) for n in ("x", 9, 1)))
    for name in ("keeps", "drops"):
        assert [str(message) for message in await all_of(client, topic, name, 1)] == ["9"]
    (dead,) = await all_of(client, topic, "keeps", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert (str(dead), dead.dead_letter_reason) == ("x", "FilterEvaluationException")
    assert "large" in (dead.dead_letter_error_description or "")
    assert await all_of(client, topic, "drops", 0, sub_queue=ServiceBusSubQueue.DEAD_LETTER) == []


@pytest.mark.parametrize("several", [True, False], ids=["several", "one"])
async def test_a_message_is_dead_lettered_of_which_a_copy_would_be_too_large(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic, several: bool
) -> None:
    """It is dead-lettered as it was sent and not tried again, and other messages come."""
    topic = await make_topic("one", partitioned=False)
    double = SqlRuleAction("; ".join(["SET text = text + text"] * 9))
    for name in ("a", "b") if several else ("a",):
        await administration.create_rule(topic, "one", name, filter=SqlRuleFilter("EXISTS(text)"), action=double)
    if not several:
        await administration.create_rule(topic, "one", "small", filter=SqlRuleFilter("NOT EXISTS(text)"))
        await administration.delete_rule(topic, "one", "$Default")
    large = ServiceBusMessage("large", application_properties={"text": "x" * 1000})
    await send(client, topic, large, ServiceBusMessage("small"))
    assert [str(message) for message in await all_of(client, topic, "one", 1)] == ["small"]
    (dead,) = await all_of(client, topic, "one", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert (str(dead), dead.dead_letter_reason) == ("large", "FilterEvaluationException")
    assert "262144 are allowed" in (dead.dead_letter_error_description or "")
    assert (dead.application_properties or {})[b"text"] == b"x" * 1000


async def test_rules_are_kept_as_they_were_given(
    administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """They keep their kinds and the types of their values. ``$Default`` comes first."""
    topic = await make_topic("one")
    noon = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    values: dict[str, Any] = {"s": "x", "i": 1, "l": 1 << 40, "f": 1.5, "b": True, "d": noon, "t": timedelta(seconds=3)}
    given: dict[str, Any] = {
        "all": TrueRuleFilter(),
        "correlated": CorrelationRuleFilter(correlation_id="c", properties=values),
        "nothing": FalseRuleFilter(),
        "sql": SqlRuleFilter("a = @s", parameters={f"@{name}": value for name, value in values.items()}),
    }
    for name, filter_ in given.items():
        made = await administration.create_rule(
            topic, "one", name, filter=filter_, action=SqlRuleAction("SET a = 1") if name == "sql" else None
        )
        assert (made.name, made.filter) == (name, filter_)
    filters = {rule.name: rule.filter async for rule in administration.list_rules(topic, "one")}
    assert list(filters) == ["$Default", *given]
    assert {name: (type(one), one) for name, one in filters.items() if name != "$Default"} == {
        name: (type(one), one) for name, one in given.items()
    }
    assert type(filters["$Default"]) is TrueRuleFilter
    assert (await administration.get_rule(topic, "one", "sql")).action == SqlRuleAction("SET a = 1")
    await administration.delete_rule(topic, "one", "$Default")
    await administration.create_rule(topic, "one", "$default")
    assert [rule.name async for rule in administration.list_rules(topic, "one")] == ["$default", *given]
    counts = await administration.get_topic_runtime_properties(topic)
    assert (counts.subscription_count, counts.sql_filter_count, counts.correlation_filter_count) == (1, 4, 1)


async def test_what_makes_no_sense_is_refused(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """The error says what is wrong, and what to do."""
    topic = await make_topic("one")
    with pytest.raises(InvalidOperationError, match=r"rule 'bad': line 1, column 5.*a name"):
        await administration.create_rule(topic, "one", "bad", filter=SqlRuleFilter("a = "))
    with pytest.raises(InvalidOperationError, match=r"@x has no value"):
        await administration.create_rule(topic, "one", "bad", filter=SqlRuleFilter("a = @x"))
    with pytest.raises(InvalidOperationError, match=r"REMOVE or SET"):
        await administration.create_rule(topic, "one", "bad", action=SqlRuleAction("a = 1"))
    with pytest.raises(InvalidOperationError, match=r"asks for nothing"):
        await administration.create_rule(topic, "one", "bad", filter=CorrelationRuleFilter())
    with pytest.raises(ServiceBusQuotaExceededError, match=r"use fewer or shorter rules"):
        await administration.create_rule(
            topic, "one", "bad", filter=SqlRuleFilter("a = @x", parameters={"@x": "x" * 2_000_000})
        )
    with pytest.raises(MessagingEntityAlreadyExistsError, match=r"has a rule '\$default' already"):
        await administration.create_rule(topic, "one", "$default")
    with pytest.raises(MessagingEntityNotFoundError, match=r"has no rule 'other'; it has: '\$Default'"):
        await administration.delete_rule(topic, "one", "other")
    with pytest.raises(MessagingEntityNotFoundError, match="there is no subscription 'two' of topic"):
        await administration.get_subscription(topic, "two")
    long = f"{topic}{'t' * 200}"
    await administration.create_topic(long)
    with pytest.raises(ValueError, match="its topics would be named"):
        await administration.create_subscription(long, "s" * 50)
    await administration.delete_topic(long)
    with pytest.raises(MessagingEntityNotFoundError, match="there is no topic 'none'"):
        await administration.create_subscription("none", "two")
    with pytest.raises(MessagingEntityAlreadyExistsError, match="there is a subscription 'ONE' of topic"):
        await administration.create_subscription(topic, "ONE")
    with pytest.raises(MessagingEntityAlreadyExistsError, match="there is a topic"):
        await administration.create_queue(topic)
    with pytest.raises(ValueError, match="subscription name 'a/b'"):
        client.get_subscription_receiver(topic, "a/b")
    with pytest.raises(ValueError, match="separates a topic's name from a subscription's"):
        client.get_queue_sender(f"{topic}/Subscriptions/one")
    with pytest.raises(InvalidOperationError, match="is a topic: receive from one of its subscriptions"):
        await client.get_queue_receiver(topic).receive_messages(1, max_wait_time=1)
    with pytest.raises(MessagingEntityNotFoundError, match="no subscription 'two' of a topic"):
        await client.get_subscription_receiver(topic, "two").receive_messages(1, max_wait_time=1)


async def test_scheduled_messages_of_a_topic(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    later: Advance,
) -> None:
    """Each subscription, even a later one, gets them once, at their time. It gets no cancelled ones."""
    topic = await make_topic("one", partitioned=False)
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    async with client.get_topic_sender(topic) as sender:
        numbers = await sender.schedule_messages([ServiceBusMessage("x"), ServiceBusMessage("y")], due)
        await sender.cancel_scheduled_messages(numbers[1:])
        await sender.send_messages(ServiceBusMessage("now"))
    assert [str(message) for message in await all_of(client, topic, "one", 1)] == ["now"]
    assert (await administration.get_topic_runtime_properties(topic)).scheduled_message_count == 1
    await administration.create_subscription(topic, "two")
    await later(topic, 3601)
    for name in ("one", "two"):
        (message,) = await all_of(client, topic, name, 1)
        assert str(message) == "x"
        assert message.sequence_number not in numbers


async def test_duplicates_of_a_topic(client: ServiceBusClient, make_topic: MakeTopic) -> None:
    """Each subscription gets the first of them, even if its rules want only the second."""
    topic = await make_topic("one", "two", requires_duplicate_detection=True)
    await send(client, topic, *(ServiceBusMessage("a", message_id="m") for _ in range(2)))
    await send(client, topic, ServiceBusMessage("a", message_id="m"), ServiceBusMessage("b", message_id="n"))
    for name in ("one", "two"):
        assert sorted(str(message) for message in await all_of(client, topic, name, 2)) == ["a", "b"]


async def test_scheduled_duplicates_of_a_topic(client: ServiceBusClient, make_topic: MakeTopic, later: Advance) -> None:
    """Among messages with one id, each subscription gets the first that was stored, scheduled or not."""
    topic = await make_topic("one", "two", partitioned=False, requires_duplicate_detection=True)
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    await send(client, topic, ServiceBusMessage("first", message_id="m"))
    async with client.get_topic_sender(topic) as sender:
        for body, message_id in (("second", "m"), ("third", "n"), ("fourth", "n")):
            await sender.schedule_messages(ServiceBusMessage(body, message_id=message_id), due)
    await send(client, topic, ServiceBusMessage("fifth", message_id="n"))
    await later(topic, 3601)
    for name in ("one", "two"):
        assert [str(message) for message in await all_of(client, topic, name, 2)] == ["first", "third"]


async def test_sessions_of_a_subscription(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Its messages come in order, with state. Another subscription of the topic has no sessions."""
    topic = await make_topic("plain")
    await administration.create_subscription(topic, "sessions", requires_session=True)
    await administration.delete_rule(topic, "sessions", "$Default")
    await administration.create_rule(topic, "sessions", "even", filter=SqlRuleFilter("n % 2 = 0"))
    await send(
        client,
        topic,
        *(ServiceBusMessage(f"{n}", session_id=f"s{n % 3}", application_properties={"n": n}) for n in range(12)),
    )
    found: dict[str, list[str]] = {}
    for name in ("s0", "s1", "s2"):
        async with client.get_subscription_receiver(topic, "sessions", session_id=name) as receiver:
            messages = await take(receiver, 2)
            await receiver.complete_messages(messages)
            assert receiver.session is not None
            await receiver.session.set_state(name.encode())
            found[name] = [str(message) for message in messages]
    assert found == {"s0": ["0", "6"], "s1": ["4", "10"], "s2": ["2", "8"]}
    assert [str(one) async for one in client.list_subscription_sessions(topic, "sessions")] == ["s0", "s1", "s2"]
    assert len(await all_of(client, topic, "plain", 12)) == 12


async def test_subscriptions_forward(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    make_queue: MakeQueue,
) -> None:
    """Subscriptions forward the messages that their rules want to a queue. A queue forwards to a topic."""
    topic, queue = await make_topic("kept"), await make_queue()
    await administration.create_subscription(topic, "moved", forward_to=queue)
    feeder = await make_queue(forward_to=topic)
    async with client.get_queue_sender(feeder) as sender:
        await sender.send_messages([ServiceBusMessage(f"{n}", partition_key="k") for n in range(4)])
    assert [str(message) for message in await all_of(client, topic, "kept", 4)] == ["0", "1", "2", "3"]
    async with client.get_queue_receiver(queue) as receiver:
        messages = await take(receiver, 4)
        assert [str(message) for message in messages] == ["0", "1", "2", "3"]
        await receiver.complete_messages(messages)


async def test_settings_of_topics_and_subscriptions(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """They are kept, listed and changed. Fixed settings stay."""
    topic = await make_topic("b", "a", user_metadata="x", default_message_time_to_live=timedelta(days=1))
    properties = await administration.get_topic(topic)
    assert (properties.name, properties.status, properties.availability_status) == (topic, "Active", "Available")
    assert (properties.user_metadata, properties.enable_partitioning) == ("x", True)
    await administration.update_topic(dict(properties), user_metadata="y")
    assert (await administration.get_topic(topic)).user_metadata == "y"
    with pytest.raises(InvalidOperationError, match="enable_partitioning=False of topic"):
        await administration.update_topic(properties, enable_partitioning=False)
    assert topic in [one.name async for one in administration.list_topics()]
    assert [one.name async for one in administration.list_subscriptions(topic)] == ["a", "b"]
    subscription = await administration.get_subscription(topic, "a")
    assert (subscription.name, subscription.max_delivery_count) == ("a", 10)
    await administration.update_subscription(topic, subscription, max_delivery_count=3, status="ReceiveDisabled")
    changed = await administration.get_subscription(topic, "a")
    assert (changed.max_delivery_count, changed.status) == (3, "ReceiveDisabled")
    fresh = await administration.get_subscription_runtime_properties(topic, "a")
    assert (fresh.total_message_count, fresh.active_message_count, fresh.dead_letter_message_count) == (0, 0, 0)
    with pytest.raises(TypeError, match="is no subscription's properties"):
        await administration.update_subscription(topic, None)  # type: ignore[arg-type]


async def test_a_subscription_that_nobody_uses_is_deleted(
    client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
    later: Advance,
) -> None:
    """An idle subscription is deleted although messages are sent to its topic; a subscription with a receiver stays."""
    topic = await make_topic(partitioned=False, default_message_time_to_live=timedelta(days=1))
    for name in ("idle", "used"):
        await administration.create_subscription(topic, name, auto_delete_on_idle=timedelta(minutes=5))
    deadline = time.monotonic() + 60
    sender, receiver = client.get_topic_sender(topic), client.get_subscription_receiver(topic, "used")
    left = ["idle", "used"]
    while "idle" in left and time.monotonic() < deadline:
        for name in left:
            await later(f"{topic}/Subscriptions/{name}", 140)
        await sender.send_messages(ServiceBusMessage("x"))
        await receiver.complete_messages(await take(receiver, 1))
        # However slow the machine is, less than five minutes pass between two heartbeats of the receiver.
        sent = heard = await administration.get_subscription_runtime_properties(topic, "used")
        while heard.accessed_at_utc == sent.accessed_at_utc and time.monotonic() < deadline:
            assert not await receiver.receive_messages(max_wait_time=0.2)
            heard = await administration.get_subscription_runtime_properties(topic, "used")
        left = [one.name async for one in administration.list_subscriptions(topic)]
    assert left == ["used"]
    assert (await administration.get_subscription(topic, "used")).status == "Active"


async def test_messages_of_a_subscription_expire(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, make_topic: MakeTopic
) -> None:
    """Its own time to live counts, or its topic's if that is shorter. The messages that it wants are dead-lettered."""
    topic = await make_topic("long", partitioned=False, default_message_time_to_live=timedelta(minutes=10))
    await administration.create_subscription(
        topic, "short", default_message_time_to_live=timedelta(seconds=1), dead_lettering_on_message_expiration=True
    )
    await administration.create_rule(topic, "short", "x", filter=CorrelationRuleFilter(label="x"))
    await administration.delete_rule(topic, "short", "$Default")
    await send(client, topic, *(ServiceBusMessage(one, subject=one) for one in ("y", "x", "z")))
    (dead,) = await all_of(client, topic, "short", 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert (str(dead), dead.dead_letter_reason) == ("x", "TTLExpiredException")
    assert await all_of(client, topic, "short", 0) == []
    async with client.get_subscription_receiver(topic, "long") as receiver:
        (message, *_) = await take(receiver, 3)
        assert message.expires_at_utc == message.enqueued_time_utc + timedelta(minutes=10)


async def test_a_subscription_that_gives_nothing(
    client: ServiceBusClient,
    other_client: ServiceBusClient,
    administration: ServiceBusAdministrationClient,
    make_topic: MakeTopic,
) -> None:
    """The status is its own, or its topic's. Its messages wait."""
    topic = await make_topic("one", "two", partitioned=False)
    subscription = await administration.get_subscription(topic, "one")
    await administration.update_subscription(topic, subscription, status="ReceiveDisabled")
    await send(client, topic, ServiceBusMessage("x"))
    with pytest.raises(MessagingEntityDisabledError, match=r"subscription .* has status ReceiveDisabled"):
        await client.get_subscription_receiver(topic, "one").receive_messages(1, max_wait_time=1)
    assert len(await all_of(client, topic, "two", 1)) == 1
    await administration.update_subscription(topic, subscription, status="Active")
    properties = await administration.get_topic(topic)
    await administration.update_topic(properties, status="SendDisabled")
    with pytest.raises(MessagingEntityDisabledError, match=r"topic .* has status SendDisabled"):
        await other_client.get_topic_sender(topic).send_messages(ServiceBusMessage("y"))
    assert len(await all_of(other_client, topic, "one", 1)) == 1
