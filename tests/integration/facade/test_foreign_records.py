"""Records of plain producers that no SDK would write: none of them blocks the messages behind it."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.cli.connection import receiver_of
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter
from kafkabus_mapping.names import EntityPath
from tests.contract.receiving import receive_all
from tests.kafka_log import KAFKA_LOG
from tests.queues import new_queue
from tests.upkeep import tend

PROPERTIES = "sb-application-properties"
ODD = [
    ("sb-time-to-live", b"9" * 5000),
    ("sb-scheduled-enqueue-time", b"9" * 5000),
    ("sb-scheduled-enqueue-time", b"9" * 300),
    ("sb-enqueued-sequence-number", b"9" * 4300),
    ("sb-hops", b"9" * 4300),
    *((PROPERTIES, json.dumps({"x": {tag: 5}}).encode()) for tag in ("uuid", "bytes", "datetime", "timedelta")),
    (PROPERTIES, b'{"x":{"int":null}}'),
    (PROPERTIES, b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    (PROPERTIES, b'{"x":"\\ud800"}'),
    (PROPERTIES, b'{"x":{"datetime":"0001-01-01T00:00:00+23:59"}}'),
    ("sb-amqp", b"[" * 100_000),
    ("sb-session-id", b"\xff"),
]


def test_no_record_blocks_anybody(untended: str, runtime: RunningNamespace) -> None:
    """They block no receiver, no upkeep, and no subscription with filters and actions; it may dead-letter some."""
    settings = parse_settings(untended)
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
    ):
        administration.create_topic("topic")
        administration.create_queue("queue")
        for name, filter_ in (("all", None), ("some", SqlRuleFilter("x IS NULL OR x <> 'y'"))):
            administration.create_subscription("topic", name)
            if filter_ is not None:
                administration.delete_rule("topic", name, "$Default")
                action = SqlRuleAction("SET seen = 'yes'")
                administration.create_rule("topic", name, "rule", filter=filter_, action=action)
        producer = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)
        for entity in ("topic", "queue"):
            for number, header in enumerate(ODD):
                producer.produce(f"{settings.namespace}.{entity}", str(number), partition=0, headers=[header])
        assert producer.flush(30) == 0
        client.get_topic_sender("topic").send_messages(ServiceBusMessage("last"))
        client.get_queue_sender("queue").send_messages(ServiceBusMessage("last"))
        tend(untended, "queue", "topic", "topic/Subscriptions/all", "topic/Subscriptions/some")
        for source in ("queue", "topic/Subscriptions/all", "topic/Subscriptions/some"):
            # The action makes one of them too large, and the filter cannot compare another one.
            messages = receive_all(receiver_of(client, source), len(ODD) - 1)
            messages += receive_all(receiver_of(client, source, sub_queue="deadletter"), len(ODD) + 1 - len(messages))
            assert sorted(map(str, messages)) == sorted(["last", *(str(number) for number in range(len(ODD)))])
            assert all(repr(message) and message.raw_amqp_message is not None for message in messages)


@pytest.mark.parametrize(
    ("body", "header", "key"),
    [(1_999_500, 10, 0), (1_000, 1_998_500, 0), (50_000_000, 10, 0), (1_000, 10, 1_998_500)],
    ids=["nearly all that Kafka takes", "a large header", "small once it is compressed", "a large key"],
)
def test_a_dead_letter_is_cut_to_what_kafka_takes(
    untended: str, runtime: RunningNamespace, body: int, header: int, key: int
) -> None:
    """The dead letter says so. No transfer hangs, and the ledger's checkpoint can be written."""
    settings = parse_settings(untended)
    queue = new_queue(untended, enable_partitioning=False)
    options = {"compression.type": "gzip", "message.max.bytes": 60_000_000} if body > 2_000_000 else {}
    producer = Producer(
        {"bootstrap.servers": runtime.bootstrap_servers, "message.max.bytes": 2_000_000, **options}, logger=KAFKA_LOG
    )
    producer.produce(f"{settings.namespace}.{queue}", b"0" * body, b"k" * key or None, headers={"large": b"1" * header})
    assert producer.flush(30) == 0
    context = ClientContext(settings)
    try:
        with ServiceBusClient.from_connection_string(untended) as client:
            receiver = client.get_queue_receiver(queue)
            (message,) = receiver.receive_messages(max_wait_time=20)
            receiver.dead_letter_message(message, "large", "as it was found")
            (dead,) = receive_all(client.get_queue_receiver(queue, sub_queue="deadletter"), 1)
            assert dead.dead_letter_reason == "large"
            said = dead.dead_letter_error_description or ""
            assert said.startswith("as it was found (cut to what Kafka takes, without ")
            cut = "the header 'large'" if header > body else "its key" if key else f"of the {body:,} bytes of its body"
            assert cut in said
            assert (len(b"".join(dead.body)) == body) == (header > body or key > body)
        (state,) = context.ledger_client.states(context.catalog.entity(EntityPath(queue)).ledgers)
        assert state is not None
        assert (state.in_flight, state.moving) == (0, 0)
    finally:
        context.close()


def test_names_of_headers_count_with_their_bytes(untended: str, runtime: RunningNamespace) -> None:
    """A character takes up to four: the copy would be larger than Kafka takes."""
    settings = parse_settings(untended)
    queue = new_queue(untended, enable_partitioning=False)
    producer = Producer(
        {"bootstrap.servers": runtime.bootstrap_servers, "message.max.bytes": 2_000_000}, logger=KAFKA_LOG
    )
    producer.produce(f"{settings.namespace}.{queue}", b"0" * 1_903_850, headers={"\U0001f4e6" * 24_000: b"1"})
    assert producer.flush(30) == 0
    with ServiceBusClient.from_connection_string(untended) as client:
        receiver = client.get_queue_receiver(queue)
        (message,) = receiver.receive_messages(max_wait_time=20)
        receiver.dead_letter_message(message, "large")
        (dead,) = receive_all(client.get_queue_receiver(queue, sub_queue="deadletter"), 1)
        assert "cut to what Kafka takes" in (dead.dead_letter_error_description or "")
