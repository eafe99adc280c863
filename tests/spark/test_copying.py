"""Messages are sent once more, from Spark: a time range, and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, SubQueue
from tests.contract.receiving import take
from tests.queues import new_queue
from tests.spark.marks import SPARK

pytestmark = SPARK

PATIENCE = 240.0


def receive(connection: str, queue: str, count: int) -> dict[str, ServiceBusReceivedMessage]:
    """Receive messages and complete them; return them by their ids."""
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_receiver(queue) as receiver:
        messages = take(receiver, count)
        receiver.complete_messages(messages)
        return {one.message_id or "": one for one in messages}


def test_a_time_range_is_sent_to_another_entity(runtime: RunningNamespace, spark: SparkSession) -> None:
    """Messages keep what they were sent with; one that is scheduled for later is not due."""
    connection = runtime.connection_string
    source, target = new_queue(connection, enable_partitioning=True), new_queue(connection, enable_partitioning=True)
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_sender(source) as sender:
        sender.send_messages([ServiceBusMessage("old", message_id="old")])
        receive(connection, source, 1)
        (old,) = kafkabus_spark.read(spark, connection, source).collect()
        message = ServiceBusMessage("a", message_id="a", partition_key="k", application_properties={"n": 5})
        sender.send_messages([message, ServiceBusMessage("b", message_id="b")])
        sender.schedule_messages([ServiceBusMessage("later", message_id="later")], later)
    start = old["enqueued_time_utc"].astimezone(timezone.utc) + timedelta(milliseconds=1)
    count = kafkabus_spark.replay(
        spark,
        connection,
        source,
        target,
        starting_timestamp=start,
        where=F.col("message_id") != "b",
        transform=lambda messages: messages.withColumn("subject", F.lit("again")),
    )
    assert count == 1
    again = receive(connection, target, 1)["a"]
    assert (str(again), again.partition_key, again.subject) == ("a", "k", "again")
    assert again.application_properties == {b"n": 5}


@pytest.fixture
def dead(runtime: RunningNamespace) -> str:
    """The name of a queue with three dead letters."""
    connection = runtime.connection_string
    queue = new_queue(connection, enable_partitioning=True, requires_duplicate_detection=True)
    with ServiceBusClient.from_connection_string(connection) as client:
        client.get_queue_sender(queue).send_messages([ServiceBusMessage(name, message_id=name) for name in "abc"])
        with client.get_queue_receiver(queue) as receiver:
            for one in take(receiver, 3):
                receiver.dead_letter_message(one, reason="Bad")
    return queue


def test_dead_letters_are_sent_again_and_settled(
    runtime: RunningNamespace, spark: SparkSession, dead: str, tmp_path: Path
) -> None:
    """A function mends them, and leaves some out, which stay; the next query finds nothing more to send."""
    connection = runtime.connection_string
    target = new_queue(connection)

    def mend(messages: DataFrame) -> DataFrame:
        return messages.where(F.col("message_id") != "c").withColumn("body", F.concat(F.lit("better "), F.col("body")))

    def run(settle: Callable[[Sequence[int]], None]) -> int:
        query = kafkabus_spark.resubmit(
            spark,
            connection,
            dead,
            checkpoint_location=str(tmp_path),
            target=target,
            transform=mend,
            settle=settle,
        )
        assert query.awaitTermination(int(PATIENCE))
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    with ServiceBusClient.from_connection_string(connection) as client:
        letters = client.get_queue_receiver(dead, sub_queue=SubQueue.DEAD_LETTER)

        def settle(numbers: Sequence[int]) -> None:
            messages = {one.sequence_number: one for one in take(letters, 3)}
            letters.complete_messages([messages.pop(number) for number in numbers])
            for one in messages.values():
                letters.abandon_message(one)

        assert run(settle) == 3
        assert {name: str(one) for name, one in receive(connection, target, 2).items()} == {
            "a": "better a",
            "b": "better b",
        }
        left = client.get_queue_receiver(dead, sub_queue=SubQueue.DEAD_LETTER).peek_messages(5)
        assert [one.message_id for one in left] == ["c"]
        assert run(settle) == 0


def test_dead_letters_that_break_a_rule_are_not_settled(
    runtime: RunningNamespace, spark: SparkSession, dead: str, tmp_path: Path
) -> None:
    """They go aside, and count as sent neither here nor in a replay. Each of the four jobs takes a second."""
    connection = runtime.connection_string
    target = new_queue(connection, requires_session=True)
    aside, settled = list[str](), list[int]()

    def with_session(messages: DataFrame) -> DataFrame:
        return messages.withColumn("session_id", F.when(F.col("message_id") != "c", F.lit("s")))

    def keep(broken: DataFrame) -> None:
        aside.extend(row["message_id"] for row in broken.collect())

    letters = kafkabus_spark.read(spark, connection, dead, sub_queue="deadletter")
    numbers = {row["message_id"]: row["sequence_number"] for row in letters.collect()}
    query = kafkabus_spark.resubmit(
        spark,
        connection,
        dead,
        checkpoint_location=str(tmp_path),
        target=target,
        transform=with_session,
        settle=settled.extend,
        rejected=keep,
    )
    assert query.awaitTermination(int(PATIENCE))
    assert (aside, sorted(settled)) == (["c"], sorted([numbers["a"], numbers["b"]]))
    sent = kafkabus_spark.replay(
        spark, connection, dead, target, sub_queue="deadletter", transform=with_session, rejected=keep
    )
    assert (aside, sent) == (["c", "c"], 2)


def test_settling_needs_the_numbers(runtime: RunningNamespace, spark: SparkSession, dead: str, tmp_path: Path) -> None:
    """Without them the query ends before anything is sent."""
    connection, target = runtime.connection_string, new_queue(runtime.connection_string)
    query = kafkabus_spark.resubmit(
        spark,
        connection,
        dead,
        checkpoint_location=str(tmp_path),
        target=target,
        transform=lambda messages: messages.drop("sequence_number"),
        settle=lambda _: None,
    )
    with pytest.raises(
        StreamingQueryException,
        match=r"transform dropped the column 'sequence_number', which settle needs; nothing was sent",
    ):
        query.awaitTermination(int(PATIENCE))
    assert kafkabus_spark.read(spark, connection, target).count() == 0


def test_what_became_of_messages_adds_up(
    spark: SparkSession, untended: str, tend: Callable[[EntityPath], None]
) -> None:
    """Each message is counted once: by the log and the checkpoints, and as the administration counts."""
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
    ):
        administration.create_queue("orders", enable_partitioning=True)
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        sender.send_messages([ServiceBusMessage(f"{number}", message_id=f"{number}") for number in range(9)])
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(timezone.utc) + timedelta(hours=1))
        messages = take(receiver, 9)
        receiver.complete_messages(messages[:4])
        for one in messages[4:6]:
            receiver.dead_letter_message(one, reason="Bad")
        receiver.defer_message(messages[6])
        tend(EntityPath("orders"))
        rows = kafkabus_spark.reconcile(spark, untended, "orders").collect()
        totals = {name: sum(row[name] for row in rows) for name in rows[0].asDict() if name != "partition_id"}
        assert totals == {
            "messages": 10,
            "completed": 4,
            "dead_lettered": 2,
            "active": 2,
            "deferred": 1,
            "scheduled": 1,
        }
        counts = administration.get_queue_runtime_properties("orders")
        assert (counts.dead_letter_message_count, counts.scheduled_message_count) == (2, 1)
