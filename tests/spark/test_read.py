"""Spark reads messages that the facade sent, and errors come before a job starts."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_spark.kafka import java_options, location_of
from tests.kafka_log import KAFKA_LOG
from tests.spark.marks import SPARK

pytestmark = SPARK

QUEUE = "Read.Here"


@pytest.fixture(scope="module")
def connection(runtime: RunningNamespace) -> str:
    """A namespace whose queue holds a completed message, a waiting one and a dead-lettered one."""
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        administration.create_queue(QUEUE, enable_partitioning=True)
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage("done", message_id="1", partition_key="k"))
            sender.send_messages(ServiceBusMessage("bad", message_id="2", partition_key="k", time_to_live=3600))
            sender.send_messages(ServiceBusMessage("waits", message_id="3", partition_key="k"))
        with client.get_queue_receiver(QUEUE) as receiver:
            done, bad = receiver.receive_messages(2, max_wait_time=30)
            receiver.complete_message(done)
            receiver.dead_letter_message(bad, reason="Bad", error_description="very")
    return runtime.connection_string


def test_settled_messages_are_read_too(spark: SparkSession, connection: str) -> None:
    """A completed message is still there for Spark, with the facade's number and time."""
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_receiver(QUEUE) as receiver:
        (waiting,) = receiver.receive_messages(1, max_wait_time=30)
        receiver.abandon_message(waiting)

    rows = kafkabus_spark.read(spark, connection, QUEUE).orderBy("sequence_number").collect()

    assert [(row["message_id"], bytes(row["body"])) for row in rows] == [("1", b"done"), ("2", b"bad"), ("3", b"waits")]
    assert rows[2]["sequence_number"] == waiting.sequence_number
    # A collected timestamp is naive, in the machine's zone.
    assert rows[2]["enqueued_time_utc"].astimezone(timezone.utc) == waiting.enqueued_time_utc


def test_a_dead_letter_queue_says_why(spark: SparkSession, connection: str) -> None:
    """The dead-letter queue has reason, description and source, and the number that the message had."""
    (original,) = kafkabus_spark.read(spark, connection, QUEUE).where("message_id = '2'").collect()
    (row,) = kafkabus_spark.read(spark, connection, QUEUE, sub_queue="deadletter").collect()

    assert (row["dead_letter_reason"], row["dead_letter_error_description"]) == ("Bad", "very")
    assert row["dead_letter_source"].lower() == QUEUE.lower()
    assert row["enqueued_sequence_number"] == original["sequence_number"]
    assert row["expires_at_utc"] is None


def test_a_dead_letter_has_its_original_beside_it(spark: SparkSession, connection: str) -> None:
    """The original has its own number, time and body."""
    (original,) = kafkabus_spark.read(spark, connection, QUEUE).where("message_id = '2'").collect()
    (row,) = kafkabus_spark.dead_letters(spark, connection, QUEUE).collect()
    assert (row["message_id"], row["dead_letter_reason"], row["original"]) == ("2", "Bad", original)


def test_a_dead_letter_queue_is_empty_before_its_first_message(
    spark: SparkSession, connection: str, tmp_path: Path
) -> None:
    """It has its columns and partitions in batch, and a stream that runs already gets the first message."""
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        administration.create_queue("spotless", enable_partitioning=True)
    dead = kafkabus_spark.read(spark, connection, "spotless", sub_queue="deadletter")
    assert dead.count() == 0
    assert dead.columns == kafkabus_spark.read(spark, connection, "spotless").columns
    assert kafkabus_spark.partition_count(spark, connection, "spotless", sub_queue="deadletter") == 16

    stream = kafkabus_spark.read_stream(spark, connection, "spotless", sub_queue="deadletter")
    query = (
        stream.select("dead_letter_reason")
        .writeStream.format("memory")
        .queryName("stained")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    query.processAllAvailable()
    with ServiceBusClient.from_connection_string(connection) as client:
        with client.get_queue_sender("spotless") as sender:
            sender.send_messages(ServiceBusMessage("bad"))
        with client.get_queue_receiver("spotless") as receiver:
            (bad,) = receiver.receive_messages(1, max_wait_time=30)
            receiver.dead_letter_message(bad, reason="Stain")
    query.processAllAvailable()
    query.stop()
    assert [row[0] for row in spark.table("stained").collect()] == ["Stain"]


@pytest.mark.parametrize(
    ("default", "lives"),
    [(None, [None, 3_600_000, None]), (timedelta(minutes=1), [60_000] * 3), (timedelta.max, [None, 3_600_000, None])],
    ids=["for ever", "the queue's is shorter", "beyond the last year"],
)
def test_a_message_expires_by_the_shorter_time_to_live(
    spark: SparkSession, connection: str, default: timedelta | None, lives: list[int | None]
) -> None:
    """The queue's time to live bounds the message's own; past the year 9999 is never."""
    messages = kafkabus_spark.read(spark, connection, QUEUE, default_time_to_live=default).orderBy("sequence_number")
    left = F.unix_millis("expires_at_utc") - F.unix_millis("enqueued_time_utc")
    assert [row[0] for row in messages.select(left).collect()] == lives


def test_a_stream_gives_the_same_rows(spark: SparkSession, connection: str, tmp_path: Path) -> None:
    """A stream from the earliest offset, in steps of one message, ends with what a batch reads."""
    stream = kafkabus_spark.read_stream(spark, connection, QUEUE, max_messages_per_trigger=1).select(
        "message_id", "offset"
    )
    query = (
        stream.writeStream.format("memory")
        .queryName("streamed")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    assert sorted(row["message_id"] for row in spark.table("streamed").collect()) == ["1", "2", "3"]


def test_an_aborted_transaction_is_not_read(runtime: RunningNamespace, spark: SparkSession, connection: str) -> None:
    """Only committed records are messages."""
    from confluent_kafka import Producer

    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        administration.create_queue("transacted")
    producer = Producer({"bootstrap.servers": runtime.bootstrap_servers, "transactional.id": "t"}, logger=KAFKA_LOG)
    producer.init_transactions(60)
    for body, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce("tests.transacted", body)
        producer.flush(60)
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    rows = kafkabus_spark.read(spark, connection, "transacted").collect()
    assert [bytes(row["body"]) for row in rows] == [b"committed"]


def test_an_unknown_entity_is_named_before_a_job_starts(spark: SparkSession, connection: str) -> None:
    """The error names the queue, its topic and what to do."""
    with pytest.raises(kafkabus_spark.EntityNotFoundError, match=r"'nowhere'.*'tests\.nowhere'.*create_queue"):
        kafkabus_spark.read(spark, connection, "nowhere")


def test_a_silent_broker_is_named(spark: SparkSession, connection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the address and the parts to check."""
    monkeypatch.setattr("kafkabus_spark.kafka.PATIENCE_MS", 1_000)
    silent = "Endpoint=sb://tests.localhost/;KafkaBootstrapServers=127.0.0.1:1"
    with pytest.raises(kafkabus_spark.NamespaceUnreachableError, match=r"127\.0\.0\.1:1.*KafkaBootstrapServers"):
        kafkabus_spark.read(spark, silent, QUEUE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"connection": "Endpoint=sb://tests.localhost/"}, "KafkaBootstrapServers"),
        ({"connection": "Endpoint"}, "part 'Endpoint' has no value"),
        ({"connection": "Endpoint=sb://t/;KafkaBootstrapServers=x:1;EntityPath=other"}, "for 'other' alone"),
        (
            {
                "connection": f"Endpoint=sb://t/;KafkaBootstrapServers=x:1;EntityPath={QUEUE}/Subscriptions/a",
                "subscription": "b",
            },
            f"for '{QUEUE}/Subscriptions/a' alone.*'{QUEUE}/Subscriptions/b'",
        ),
        ({"entity": "no spaces"}, "entity name"),
        ({"sub_queue": "transfer"}, "deadletter"),
    ],
)
def test_a_bad_argument_is_named(spark: SparkSession, arguments: dict[str, Any], message: str) -> None:
    """Connection strings and names are checked before Kafka is asked."""
    good: dict[str, Any] = {
        "environment": {},
        "connection": "Endpoint=sb://tests.localhost/;KafkaBootstrapServers=127.0.0.1:1",
        "entity": QUEUE,
    }
    with pytest.raises(ValueError, match=message):
        kafkabus_spark.read(spark, **(good | arguments))


def test_tls_and_sasl_parts_reach_the_java_client() -> None:
    """Librdkafka's options are translated into the Java client's, quotes in passwords included."""
    location = location_of(
        "Endpoint=sb://t/;KafkaBootstrapServers=x:1;KafkaSecurityProtocol=SASL_SSL;KafkaSaslMechanism=SCRAM-SHA-512;"
        'KafkaSaslUsername=me;KafkaSaslPassword=a"b\\c;KafkaSslCaLocation=ca.pem',
        {},
    )
    assert java_options(location) == {
        "bootstrap.servers": "x:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a\\"b\\\\c";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
    }


def test_times_in_utc_do_not_depend_on_the_machines_zone(spark: SparkSession) -> None:
    """The session shows times in UTC."""
    shown = spark.sql("select cast(timestamp_millis(0) as string)").first()
    assert shown is not None
    assert shown[0] == datetime(1970, 1, 1, tzinfo=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def test_a_later_format_is_refused_before_a_job_reads_messages(
    spark: SparkSession, untended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names both versions; what was looked up a while ago is looked up again."""
    monkeypatch.setattr("kafkabus_spark.descriptions.FORMAT_AGE", 0.0)
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("orders")
    assert kafkabus_spark.read(spark, untended, "orders").count() == 0
    context = ClientContext(parse_settings(untended))
    try:
        known = context.descriptions.namespace()
        assert known is not None
        context.descriptions.put_namespace(known.model_copy(update={"format": 7, "format_by": "9.8.7"}))
    finally:
        context.close()
    for read in (kafkabus_spark.read, kafkabus_spark.read_stream):
        with pytest.raises(kafkabus_spark.UnsupportedFormatError, match=r"format 7 by kafkabus 9\.8\.7; this kafkabus"):
            read(spark, untended, "orders")
