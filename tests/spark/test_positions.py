"""Jobs start and stop at offsets, times and messages."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus_mapping.numbers import sequence_number
from kafkabus_spark.kafka import java_options, location_of
from kafkabus_spark.positions import position
from tests.queues import new_queue
from tests.spark.marks import SPARK

pytestmark = SPARK

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, timezone.utc)


@pytest.mark.parametrize(
    ("side", "given", "options"),
    [
        ("starting", {}, {}),
        ("ending", {"offsets": "latest"}, {"endingOffsets": "latest"}),
        ("starting", {"offsets": {1: 7}}, {"startingOffsets": '{"t": {"0": -2, "1": 7, "2": -2}}'}),
        ("ending", {"offsets": {}}, {"endingOffsets": '{"t": {"0": -1, "1": -1, "2": -1}}'}),
        (
            "starting",
            {"timestamp": MOMENT},
            {"startingTimestamp": "1767323045678", "startingOffsetsByTimestampStrategy": "latest"},
        ),
        ("ending", {"timestamp": MOMENT.replace(tzinfo=None)}, {"endingTimestamp": "1767323045678"}),
        (
            "starting",
            {"sequence_numbers": sequence_number(2, 9)},
            {"startingOffsets": '{"t": {"0": -2, "1": -2, "2": 9}}'},
        ),
        (
            "ending",
            {"sequence_numbers": [sequence_number(2, 9), sequence_number(0, 0)]},
            {"endingOffsets": '{"t": {"0": 1, "1": -1, "2": 10}}'},
        ),
    ],
)
def test_a_position_is_an_option_of_sparks_kafka_source(
    side: Any, given: dict[str, Any], options: dict[str, str]
) -> None:
    """Partitions that are not named are read from their beginning, or to their end."""
    nothing: dict[str, Any] = {"offsets": None, "timestamp": None, "sequence_numbers": None}
    assert position(side, "t", 3, **nothing | given) == options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"offsets": "earliest", "timestamp": MOMENT}, "starting_offsets and starting_timestamp contradict each other"),
        ({"offsets": {3: 1}}, "there is no partition 3; the entity has 3"),
        ({"offsets": "newest"}, "starting_offsets 'newest' is neither 'earliest', 'latest' nor JSON like"),
        ({"offsets": '{"other": {"0": 1}}'}, """nor JSON like {"t": {"0": 17}}"""),
        ({"offsets": {1: -5}}, r"offsets \{1: -5\} are negative"),
        ({"sequence_numbers": [5, 6]}, "two messages of partition 0, one of them 6"),
        ({"sequence_numbers": 0}, "0"),
    ],
)
def test_a_wrong_position_is_named(given: dict[str, Any], message: str) -> None:
    """The error says what is wrong."""
    nothing: dict[str, Any] = {"offsets": None, "timestamp": None, "sequence_numbers": None}
    with pytest.raises(ValueError, match=message):
        position("starting", "t", 3, **nothing | given)


def test_a_part_of_the_log_is_read(runtime: RunningNamespace, spark: SparkSession) -> None:
    """Offsets, times and sequence numbers name the same messages."""
    connection = runtime.connection_string
    queue = new_queue(connection)
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_sender(queue) as sender:
        for number in range(5):
            sender.send_messages(ServiceBusMessage(f"{number}"))

    def read(**places: Any) -> list[str]:
        rows = kafkabus_spark.read(spark, connection, queue, **places).orderBy("offset").collect()
        return [bytes(row["body"]).decode() for row in rows]

    rows = kafkabus_spark.read(spark, connection, queue).orderBy("offset").collect()
    first, last = (rows[number]["enqueued_time_utc"].astimezone(timezone.utc) for number in (1, 4))
    assert first < last
    of_the_time = [
        str(n) for n, row in enumerate(rows) if first <= row["enqueued_time_utc"].astimezone(timezone.utc) < last
    ]
    assert read(starting_timestamp=first, ending_timestamp=last) == of_the_time
    assert read(starting_timestamp=last + timedelta(hours=1)) == []
    assert read(starting_offsets={0: 1}, ending_offsets={0: 4}) == ["1", "2", "3"]
    numbers = [row["sequence_number"] for row in rows]
    assert read(starting_sequence_numbers=numbers[1], ending_sequence_numbers=[numbers[3]]) == ["1", "2", "3"]


def test_options_of_kafkas_client_count_before_those_of_the_connection_string() -> None:
    """With them, a client may use what librdkafka has no options for; what must hold for all cannot be set."""
    connection = (
        "Endpoint=sb://t/;KafkaBootstrapServers=x:1;KafkaSecurityProtocol=SASL_SSL;KafkaSaslMechanism=OAUTHBEARER"
    )
    with pytest.raises(ValueError, match=r"give kafka_options= with 'sasl\.jaas\.config'"):
        java_options(location_of(connection, {}))
    own = {"sasl.jaas.config": "secret", "kafka.ssl.endpoint.identification.algorithm": ""}
    location = location_of(connection, {}, own)
    assert java_options(location) == {
        "bootstrap.servers": "x:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert "secret" not in repr(location)
    with pytest.raises(ValueError, match=r"'acks' is not the caller's choice; messages are durable"):
        location_of(connection, {}, {"acks": "0"})
