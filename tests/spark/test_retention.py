"""Streams that fall behind: a warning comes before messages are deleted that they have not read."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._kafka.topic_admin import Topics
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_spark import EntityNotFoundError, EntityRecreatedError, retention
from kafkabus_spark.retention import Unread
from tests.queues import new_queue
from tests.spark.marks import SPARK

pytestmark = SPARK

PATIENCE = 240.0


def send(connection: str, queue: str, count: int) -> None:
    """Send so many messages."""
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("x")] * count)


def run(spark: SparkSession, connection: str, queue: str, folder: Path) -> None:
    """Read all that is there, in a stream."""
    stream = kafkabus_spark.read_stream(spark, connection, queue, fail_on_data_loss=False)
    query = (
        stream.writeStream.format("noop").option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(240)


def test_a_stream_that_was_stopped_is_told_what_it_may_lose(
    runtime: RunningNamespace, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages that it has not read are fresh, then endangered, then lost. It takes seconds: Spark's streams start slowly."""
    connection, checkpoint = runtime.connection_string, str(tmp_path)
    queue = new_queue(connection)

    def check() -> list[Unread]:
        return kafkabus_spark.check_retention(spark, connection, queue, checkpoint_location=checkpoint)

    with pytest.raises(ValueError, match=r"checkpoint_location '.*' holds no micro-batch that was done"):
        check()
    send(connection, queue, 3)
    run(spark, connection, queue, tmp_path)
    send(connection, queue, 5)
    assert check() == [Unread(0, 3, lost=0, endangered=0, left=5)]
    assert caplog.messages == []
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        properties = administration.get_queue(queue)
        properties.settled_retention = timedelta(0)
        administration.update_queue(properties)
    assert check() == [Unread(0, 3, lost=0, endangered=5, left=5)]
    assert f"messages_endangered entity={queue} count=5 settled_retention=0:00:00" in caplog.text
    Topics(parse_settings(connection)).delete_records(f"tests.{queue}", {0: 5})
    assert check() == [Unread(0, 3, lost=2, endangered=3, left=3)]
    assert f"messages_lost entity={queue} count=2" in caplog.text
    with pytest.raises(ValueError, match="is of a stream that does not read"):
        kafkabus_spark.check_retention(spark, connection, new_queue(connection), checkpoint_location=checkpoint)


def test_a_stream_does_not_go_on_in_an_entity_that_was_made_anew(
    runtime: RunningNamespace, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would skip 100 of 150 messages. The same checkpoint is not refused before, and another one not afterwards.

    It takes seconds: Spark's streams start slowly.
    """
    connection, first, second = runtime.connection_string, tmp_path / "first", tmp_path / "second"
    queue = new_queue(connection)
    send(connection, queue, 100)
    assert read_on(spark, connection, queue, first) == 100
    send(connection, queue, 1)
    assert read_on(spark, connection, queue, first) == 1
    listener = kafkabus_spark.RetentionListener(spark, connection, queue)
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        administration.delete_queue(queue)
        with pytest.raises(EntityNotFoundError):
            read_on(spark, connection, queue, first)
        administration.create_queue(queue)
    send(connection, queue, 150)
    recreated = r"is of topic tests\..* before it was deleted and created again .* Name another folder"
    with pytest.raises(EntityRecreatedError, match=recreated):
        read_on(spark, connection, queue, first)
    with pytest.raises(EntityRecreatedError, match=recreated):
        kafkabus_spark.check_retention(spark, connection, queue, checkpoint_location=str(first))
    with pytest.raises(EntityRecreatedError, match=recreated):
        kafkabus_spark.capture(spark, connection, queue, str(tmp_path / "table"), checkpoint_location=str(first))
    assert read_on(spark, connection, queue, second) == 150
    spark.streams.addListener(listener)
    try:
        assert read_on(spark, connection, queue, second) == 0
        deadline = time.monotonic() + PATIENCE
        while "entity_recreated" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)


def read_on(spark: SparkSession, connection: str, queue: str, folder: Path) -> int:
    """Read what a stream with this checkpoint has not read yet; return how many messages that are."""
    counts: list[int] = []
    stream = kafkabus_spark.read_stream(spark, connection, queue, checkpoint_location=str(folder))
    query = (
        stream.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    return sum(counts)


def test_a_stream_that_runs_is_told_as_well(
    runtime: RunningNamespace,
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A listener looks once in a while."""
    connection = runtime.connection_string
    queue = new_queue(connection, settled_retention=timedelta(0))
    send(connection, queue, 4)
    monkeypatch.setattr(retention, "CHECKED_EVERY", 0.0)
    listener = kafkabus_spark.RetentionListener(spark, connection, queue)
    spark.streams.addListener(listener)
    try:
        stream = kafkabus_spark.read_stream(spark, connection, queue, max_messages_per_trigger=1)
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        with caplog.at_level(logging.WARNING, "kafkabus_spark"):
            assert query.awaitTermination(240)
            # Spark calls its listeners in a separate thread.
            deadline = time.monotonic() + PATIENCE
            while f"messages_endangered entity={queue} count=3" not in caplog.text:
                assert time.monotonic() < deadline, caplog.text
                time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
