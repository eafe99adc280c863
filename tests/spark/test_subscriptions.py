"""Spark reads the messages that a subscription's receivers get."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from pyspark.sql import SparkSession

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)
from tests.spark.marks import SPARK

pytestmark = SPARK

TOPIC = "spark-topic"


PATIENCE = 120.0


def received(client: ServiceBusClient, subscription: str, count: int) -> list[str]:
    """Receive so many messages of a subscription, see that no more come, and return their bodies, sorted."""
    bodies: list[str] = []
    with client.get_subscription_receiver(TOPIC, subscription) as receiver:
        while len(bodies) < count:
            messages = receiver.receive_messages(500, max_wait_time=PATIENCE)
            assert messages, bodies
            receiver.complete_messages(messages)
            bodies += [str(message) for message in messages]
        assert receiver.receive_messages(1, max_wait_time=0.5) == []
    return sorted(bodies)


def test_spark_reads_what_a_subscription_gets(runtime: RunningNamespace, spark: SparkSession) -> None:
    """Each rule counts from its offset on, a scheduled message from its time. Earlier messages never count.

    A message that was addressed to the subscription counts, too.
    """
    with (
        ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
    ):
        sender = client.get_topic_sender(TOPIC)

        def send(begin: int, count: int) -> None:
            sender.send_messages(
                [
                    ServiceBusMessage(
                        f"{n}",
                        subject=f"s{n % 3}",
                        partition_key=f"k{n % 7}",
                        application_properties={"n": n, "Color": ("red", "blue")[n % 2]},
                    )
                    for n in range(begin, begin + count)
                ]
            )

        administration.create_topic(TOPIC, enable_partitioning=True)
        send(0, 50)
        for name in ("all", "one", "none"):
            administration.create_subscription(TOPIC, name)
        administration.create_rule(TOPIC, "none", "none", filter=FalseRuleFilter())
        administration.delete_rule(TOPIC, "none", "$Default")
        send(50, 50)
        red = CorrelationRuleFilter(label="s1", properties={"color": "red"})
        administration.create_rule(TOPIC, "one", "red", filter=red)
        administration.delete_rule(TOPIC, "one", "$Default")
        send(100, 50)
        administration.create_rule(TOPIC, "one", "large", filter=SqlRuleFilter("n >= @n", parameters={"@n": 190}))
        send(150, 50)
        due = datetime.now(timezone.utc) + timedelta(seconds=1)
        sender.schedule_messages(
            [ServiceBusMessage("later", subject="s1", application_properties={"color": "red"})], due
        )
        sender._address_to(f"{TOPIC}/Subscriptions/none")
        sender.send_messages(ServiceBusMessage("none's"))
        counts = {"all": 151, "one": 50 + 9 + 16 + 1, "none": 1}
        expected = {name: received(client, name, count) for name, count in counts.items()}
        assert expected["none"] == ["none's"]
        for name, bodies in expected.items():
            frame = kafkabus_spark.read(spark, runtime.connection_string, TOPIC, subscription=name)
            assert sorted(bytes(row["body"]).decode() for row in frame.select("body").collect()) == bodies
        with pytest.raises(kafkabus_spark.EntityNotFoundError, match="has no subscription"):
            kafkabus_spark.read(spark, runtime.connection_string, TOPIC, subscription="missing")
        administration.create_rule(TOPIC, "one", "act", action=SqlRuleAction("SET n = 1"))
        with pytest.raises(ValueError, match="rule 'act' has an action"):
            kafkabus_spark.read(spark, runtime.connection_string, TOPIC, subscription="one")
        administration.delete_topic(TOPIC)
