"""Spark distinguishes settled messages from others by the checkpoints in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from kafkabus._ledger.snapshot import Snapshot
from kafkabus.management import CorrelationRuleFilter, RuleProperties, ServiceBusAdministrationClient
from kafkabus_mapping.checkpoints import block_text, read_checkpoint
from kafkabus_mapping.names import EntityPath, SubQueue, subscription_name
from kafkabus_mapping.properties import decode_properties
from kafkabus_spark.states import ranges_of
from tests.contract.receiving import take
from tests.spark.marks import SPARK

pytestmark = SPARK


def counted(offsets: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """Ranges of offsets with delivery counts."""
    return st.lists(st.tuples(offsets, st.integers(0, 5), st.just(1)).map(lambda one: (one[0], one[0] + one[1], 1)))


@given(st.integers(0, 90), counted(st.integers(0, 99)), counted(st.integers(0, 99)), *[st.sets(st.integers(0, 99))] * 3)
def test_ranges_are_those_that_a_ledger_is_rebuilt_from(
    cursor: int,
    waiting: list[tuple[int, int, int]],
    deferred: list[tuple[int, int, int]],
    moving: set[int],
    scheduled: set[int],
    skipped: set[int],
) -> None:
    """An offset is settled in Spark if and only if no client would get it after Redis was lost."""
    snapshot = Snapshot(
        cursor,
        7,
        waiting=sorted(waiting),
        deferred=sorted(deferred),
        moving=[(offset, 1, "intent") for offset in sorted(moving)],
        scheduled=[(offset, 5) for offset in sorted(scheduled)],
        skipped=sorted(skipped),
    )
    blocks = {block: block_text(7, content) for block, content in snapshot.blocks().items()}
    ranges = ranges_of(read_checkpoint(snapshot.head(dict.fromkeys(blocks, 7)), blocks))
    states = {offset: state for first, last, state in ranges for offset in range(first, last + 1)}
    assert len(states) == sum(last - first + 1 for first, last, _ in ranges)
    unsettled = {offset for offset in range(120) if states.get(offset, "active" if offset >= cursor else None)}
    assert unsettled == {one for first, last in snapshot.unsettled for one in range(first, min(last, 119) + 1)}


KINDS = ("queue", "sessions", "subscription", "dead letters")
NAME = "orders"


def create(administration: ServiceBusAdministrationClient, kind: str) -> dict[str, Any]:
    """Create an entity of a kind, partitioned; return the arguments by which Spark finds it."""
    if kind == "subscription":
        administration.create_topic(NAME, enable_partitioning=True)
        rule = RuleProperties(
            "only", filter=CorrelationRuleFilter(label="wanted"), action=None, created_at_utc=datetime.now(timezone.utc)
        )
        administration.create_subscription(NAME, "wanted", default_rule=rule)
        return {"subscription": "wanted"}
    administration.create_queue(NAME, enable_partitioning=True, requires_session=kind == "sessions")
    return {"sub_queue": SubQueue.DEAD_LETTER} if kind == "dead letters" else {}


def receiver_of(client: ServiceBusClient, kind: str) -> ServiceBusReceiver:
    """Return a receiver of that entity."""
    if kind == "subscription":
        return client.get_subscription_receiver(NAME, "wanted")
    if kind == "dead letters":
        return client.get_queue_receiver(NAME, sub_queue=SubQueue.DEAD_LETTER)
    return client.get_queue_receiver(NAME, session_id="s" if kind == "sessions" else None)


def send(
    client: ServiceBusClient, kind: str, *names: str, subject: str = "wanted", due: datetime | None = None
) -> None:
    """Send messages to it, or have them dead-lettered there."""
    session = "s" if kind == "sessions" else None
    messages = [
        ServiceBusMessage(
            name,
            message_id=name,
            subject=subject,
            session_id=session,
            scheduled_enqueue_time_utc=due,
            application_properties={**OWN},
        )
        for name in names
    ]
    sender = client.get_topic_sender(NAME) if kind == "subscription" else client.get_queue_sender(NAME)
    sender.send_messages(messages)
    if kind == "dead letters":
        with client.get_queue_receiver(NAME) as receiver:
            for one in take(receiver, len(names)):
                receiver.dead_letter_message(one, reason="Test")


OWN: dict[str | bytes, Any] = {"colour": "red", "size": 5, "price": Decimal("12.50"), "large": 2**60, "rate": 1.0}
CHANGED: dict[str | bytes, Any] = {
    "colour": 'blue "\\',
    "price": Decimal("0.10"),
    "flag": True,
    "nothing": None,
    "share": -0.0,
}
CHANGED_AS_TEXT = {
    "colour": 'blue "\\',
    "size": "5",
    "price": "0.10",
    "large": str(2**60),
    "flag": "true",
    "rate": "1.0",
    "share": "-0.0",
    "nothing": None,
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in {"queue", "sessions"} else pytest.mark.extended) for kind in KINDS]
)
def test_messages_have_the_states_that_their_ledgers_give_them(
    spark: SparkSession, untended: str, tend: Callable[[EntityPath], None], kind: str
) -> None:
    """Settled are what was completed or dead-lettered; the others are what receivers may still get, and have their states.

    They have the properties that were changed since. It takes seconds: jobs read descriptions, checkpoints and messages.
    """
    expected: dict[str, str | None] = {
        "0": None,
        "1": None,
        "2": "deferred",
        "3": "active",
        "4": "active",
        "5": "active",
    }
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
    ):
        where = create(administration, kind)
        path = EntityPath(subscription_name(NAME, "wanted") if kind == "subscription" else NAME)
        send(client, kind, *expected)
        if kind == "subscription":
            send(client, kind, "other", subject="not wanted")
        with receiver_of(client, kind) as receiver:
            messages = {one.message_id: one for one in take(receiver, len(expected))}
            receiver.complete_messages([messages["0"], messages["1"]])
            receiver.defer_message(messages["2"], properties_to_modify=CHANGED)
            receiver.abandon_message(messages["3"], properties_to_modify={"colour": None})
            if kind != "dead letters":
                receiver.dead_letter_message(messages["5"], reason="Test")
                expected["5"] = None
            tend(path.dead_letter if kind == "dead letters" else path)
            rows = kafkabus_spark.read(spark, untended, NAME, **where, state="all").collect()
        assert {row["message_id"]: row["state"] for row in rows} == expected
        found = {row["message_id"]: row for row in rows}
        changed = [decode_properties(found[name]["application_properties_json"]) for name in ("2", "3", "4")]
        assert changed == [OWN | CHANGED, OWN | {"colour": None}, OWN]
        assert {type(one["rate"]) for one in changed} == {float}
        assert found["2"]["application_properties"] == CHANGED_AS_TEXT
        assert [found[name]["application_properties"]["colour"] for name in ("3", "4")] == [None, "red"]
        assert [row["settled"] for row in rows] == [row["state"] is None for row in rows]
        assert None not in {row["checkpoint_time"] for row in rows if row["settled"]}


def test_unsettled_is_what_receivers_may_still_get(
    spark: SparkSession, untended: str, tend: Callable[[EntityPath], None]
) -> None:
    """Messages that come after a checkpoint count as unsettled. It takes seconds, as the test above."""
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
    ):
        create(administration, "queue")
        send(client, "queue", "done", "left")
        with receiver_of(client, "queue") as receiver:
            messages = {one.message_id: one for one in take(receiver, 2)}
            receiver.complete_message(messages["done"])
            receiver.abandon_message(messages["left"])
        tend(EntityPath(NAME))
        send(client, "queue", "new")
        send(client, "queue", "later", due=datetime.now(timezone.utc) + timedelta(hours=1))
        assert states(spark, untended, "unsettled").keys() == {"left", "new", "later"}
        assert states(spark, untended, "settled") == {"done": None}
        tend(EntityPath(NAME))
        assert states(spark, untended, "unsettled") == {"left": "active", "new": "active", "later": "scheduled"}


def states(spark: SparkSession, connection: str, state: str) -> dict[str, str | None]:
    """Read a part of the messages; return their states, by the checkpoints of now."""
    rows = kafkabus_spark.read(spark, connection, NAME, state=state).collect()
    return {row["message_id"]: row["state"] for row in rows}


@pytest.fixture
def short(untended: str) -> Iterator[ServiceBusReceiver]:
    """A receiver of the queue "short" with 60 messages, whose records are deleted once they are settled."""
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
    ):
        administration.create_queue("short", settled_retention=timedelta(0))
        client.get_queue_sender("short").send_messages(
            [
                ServiceBusMessage(f"{number}", message_id=f"{number}", application_properties={"n": number})
                for number in range(60)
            ]
        )
        yield client.get_queue_receiver("short")


def test_messages_whose_records_are_kept_apart_are_read(
    spark: SparkSession, untended: str, short: ServiceBusReceiver, tend: Callable[[EntityPath], None]
) -> None:
    """Deferred messages outlast their log. Without ``state`` only the log is read."""
    messages = take(short, 60)
    short.defer_messages([messages[3], messages[7]])
    short.complete_messages([one for one in messages if one.message_id not in {"3", "7"}])
    for _ in range(2):
        tend(EntityPath("short"))
    assert kafkabus_spark.read(spark, untended, "short").count() == 0
    rows = kafkabus_spark.read(spark, untended, "short", state="unsettled").collect()
    assert {row["message_id"]: (bytes(row["body"]), row["state"]) for row in rows} == {
        "3": (b"3", "deferred"),
        "7": (b"7", "deferred"),
    }
    third, seventh = (messages[number].sequence_number for number in (3, 7))
    enqueued = messages[7].enqueued_time_utc
    parts: list[tuple[dict[str, Any], set[str]]] = [
        ({"starting_sequence_numbers": seventh}, {"7"}),
        ({"ending_sequence_numbers": third}, {"3"}),
        ({"starting_offsets": {}, "ending_offsets": "latest"}, {"3", "7"}),
        ({"starting_offsets": "latest"}, set()),
        ({"ending_offsets": "earliest"}, set()),
        ({"starting_timestamp": enqueued + timedelta(hours=1)}, set()),
        ({"ending_timestamp": enqueued + timedelta(hours=1)}, {"3", "7"}),
    ]
    for part, wanted in parts:
        found = kafkabus_spark.read(spark, untended, "short", state="unsettled", **part).collect()
        assert {row["message_id"] for row in found} == wanted, part
    by_id = {row["message_id"]: row for row in rows}
    assert by_id["7"]["application_properties"] == {"n": "7"}
    assert by_id["7"]["sequence_number"] == messages[7].sequence_number
    assert by_id["7"]["enqueued_time_utc"].astimezone(timezone.utc) == messages[7].enqueued_time_utc


def test_a_job_that_comes_after_unsettled_records_were_deleted_fails(
    spark: SparkSession, untended: str, short: ServiceBusReceiver, tend: Callable[[EntityPath], None]
) -> None:
    """They may be kept apart by then, where ``read`` did not look: without the error they would be missing."""
    before = {state: kafkabus_spark.read(spark, untended, "short", state=state) for state in ("unsettled", "all")}
    messages = take(short, 60)
    short.defer_message(messages[3])
    short.complete_messages(messages[:3] + messages[4:])
    for _ in range(2):
        tend(EntityPath("short"))
    for state, frame in before.items():
        with pytest.raises(Py4JJavaError, match="data may have been lost"):
            frame.collect()
        assert kafkabus_spark.read(spark, untended, "short", state=state).count() == 1


def test_without_a_checkpoint_nothing_is_settled(spark: SparkSession, untended: str) -> None:
    """The column's metadata say as of when the states are."""
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
    ):
        administration.create_queue("new")
        administration.create_topic("several")
        client.get_queue_sender("new").send_messages(ServiceBusMessage("one"))
        messages = kafkabus_spark.read(spark, untended, "new", state="all")
        (row,) = messages.collect()
        assert (row["settled"], row["state"], row["checkpoint_time"]) == (False, "active", None)
        assert messages.schema["settled"].metadata == {}
    with pytest.raises(ValueError, match=r"'several' is a topic.*give subscription="):
        kafkabus_spark.read(spark, untended, "several", state="all")
    with pytest.raises(ValueError, match=r"state 'done': choose from \['unsettled', 'settled', 'all'\]"):
        kafkabus_spark.read(spark, untended, "new", state="done")
