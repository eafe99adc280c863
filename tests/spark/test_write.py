"""Spark writes the messages that the SDK would send, and refuses those that it would refuse."""

from __future__ import annotations

import math
import random
import re
import uuid
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from kafkabus.embedded import RunningNamespace
from kafkabus.management import EntityStatus, ServiceBusAdministrationClient, SqlRuleFilter
from kafkabus_mapping import headers as h
from kafkabus_mapping.formats import LATEST
from kafkabus_mapping.keys import effective_key, partition_of
from kafkabus_mapping.names import EntityPath, topic_name
from kafkabus_mapping.properties import decode_properties
from kafkabus_spark import writer
from kafkabus_spark.descriptions import read_descriptions
from kafkabus_spark.encoding import DOUBT, PROBLEM, SINK, EntityRules, check_columns, encode_messages
from kafkabus_spark.kafka import location_of
from tests.queues import new_queue
from tests.spark.kafka import StoredRecord, stored
from tests.spark.marks import SPARK
from tests.spark.records import TEXTS

pytestmark = SPARK

MESSAGES = 2000
PROPERTIES = {
    "text": "string",
    "flag": "boolean",
    "small": "smallint",
    "count": "bigint",
    "ratio": "double",
    "blob": "binary",
    "at": "timestamp",
    "lasting": "interval day to second",
}
"""Names of application properties, a quotation mark for one, and their types."""
SCHEMA = (
    "message_id string, body binary, session_id string, partition_key string, correlation_id string, subject string, "
    "content_type string, to string, reply_to string, reply_to_session_id string, time_to_live interval day to second, "
    "scheduled_enqueue_time_utc timestamp, application_properties struct<"
    + ", ".join(f"{name}: {kind}" for name, kind in PROPERTIES.items())
    + ">"
)
PATIENCE = 240.0


def generate(seed: int, count: int) -> list[dict[str, Any]]:
    """Return arguments of messages; equal seeds give equal ones."""
    rng = random.Random(seed)
    return [_message(rng, number) for number in range(count)]


def _message(rng: random.Random, number: int) -> dict[str, Any]:
    def text() -> str | None:
        return rng.choice((None, *TEXTS))

    session = text()
    properties = {
        "text": text(),
        "flag": rng.choice((None, True, False)),
        "small": rng.choice((None, rng.randrange(-(2**15), 2**15))),
        "count": rng.choice((None, rng.randrange(-(2**63), 2**63), rng.randrange(100), 2**53, -(2**53) - 1)),
        "ratio": rng.choice((None, rng.random() * 10 ** rng.randrange(-300, 300), -0.0, math.nan, math.inf, -math.inf)),
        "blob": rng.choice((None, b"", rng.randbytes(100))),
        "at": rng.choice((None, _moment(rng), datetime(1900, 1, 1, 0, 0, 0, 1, timezone.utc))),
        "lasting": rng.choice((None, timedelta(microseconds=rng.randrange(-(10**15), 10**15)))),
    }
    return {
        "message_id": f"{number}",
        "body": rng.choice((None, b"", rng.randbytes(20), "ümlaut ☃".encode())),
        "session_id": session,
        "partition_key": rng.choice((text(), f"key {number}")) if session is None else rng.choice((None, session)),
        "correlation_id": text(),
        "subject": text(),
        "content_type": rng.choice((None, *filter(str.isascii, TEXTS))),
        "to": text(),
        "reply_to": text(),
        "reply_to_session_id": text(),
        "time_to_live": rng.choice((None, timedelta(0), timedelta(days=1, microseconds=rng.randrange(10**12)))),
        "scheduled_enqueue_time_utc": rng.choice((None, _moment(rng))),
        "application_properties": {name: value for name, value in properties.items() if value is not None},
    }


def _moment(rng: random.Random) -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, rng.randrange(10**6), timezone.utc) + timedelta(days=rng.randrange(100))


def frame_of(spark: SparkSession, messages: list[dict[str, Any]]) -> DataFrame:
    """Return messages as a frame with all columns."""
    rows = [
        {**one, "application_properties": {name: one["application_properties"].get(name) for name in PROPERTIES}}
        for one in messages
    ]
    return spark.createDataFrame(rows, SCHEMA)


def sent_by_the_sdk(arguments: dict[str, Any], partitions: int, *, detects_duplicates: bool = False) -> StoredRecord:
    """Return the record that the SDK sends; its partition is None if any will do."""
    message = ServiceBusMessage(**arguments)
    envelope, value, headers, _ = message._to_outgoing()
    key = effective_key(
        session_id=envelope.session_id,
        partition_key=envelope.partition_key,
        message_id=envelope.message_id,
        detects_duplicates=detects_duplicates,
    )
    partition = None if key is None else partition_of(key, partitions)
    return StoredRecord(partition, None if key is None else key.encode(), value, headers)


def comparable(record: StoredRecord) -> Any:
    """Return a record so that equal ones are equal: JSON may be written in several ways, and NaN equals nothing."""
    headers = [
        (name, repr(decode_properties(value)) if name == h.APPLICATION_PROPERTIES and value is not None else value)
        for name, value in record.headers
    ]
    return record.key, record.value, headers


def receive_all(connection: str, queue: str, count: int) -> dict[str, ServiceBusReceivedMessage]:
    """Receive and complete so many messages; return them by their ids."""
    found: dict[str, ServiceBusReceivedMessage] = {}
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_receiver(queue) as receiver:
        while len(found) < count:
            messages = receiver.receive_messages(1000, max_wait_time=PATIENCE)
            assert messages, f"{len(found)} of {count} messages came"
            found.update((one.message_id, one) for one in messages)
            receiver.complete_messages(messages)
    return found


def test_spark_writes_what_the_sdk_would_send(runtime: RunningNamespace, spark: SparkSession) -> None:
    """All records are equal, header by header, in their partitions; and the SDK receives the messages.

    It takes some seconds: a session's first job, and 2,000 messages.
    """
    queue = new_queue(runtime.connection_string, enable_partitioning=True)
    messages = generate(20130101, MESSAGES)
    kafkabus_spark.write(frame_of(spark, messages), runtime.connection_string, queue)

    records = stored(runtime.bootstrap_servers, topic_name("tests", EntityPath(queue)), 16)
    by_id = {dict(record.headers)[h.MESSAGE_ID]: record for record in records}
    assert len(records) == len(by_id) == MESSAGES
    for arguments in messages:
        expected, record = sent_by_the_sdk(arguments, 16), by_id[arguments["message_id"].encode()]
        assert comparable(record) == comparable(expected)
        assert expected.partition in {record.partition, None}
    assert len({record.partition for record in records}) == 16

    received = receive_all(runtime.connection_string, queue, MESSAGES)
    for arguments in messages:
        one, sent = received[arguments["message_id"]], ServiceBusMessage(**arguments)
        names = ("session_id", "partition_key", "correlation_id", "subject", "content_type", "to", "reply_to")
        assert [getattr(one, name) for name in names] == [getattr(sent, name) for name in names]
        assert (one._body, one.reply_to_session_id) == (arguments["body"], sent.reply_to_session_id)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("map('a', 'ü\"[]', '', cast(null as string))", {"a": 'ü"[]', "": None}),
        ("map('a', 9007199254740993L, 'b', cast(null as bigint))", {"a": 9007199254740993, "b": None}),
        ("map('a', timestamp_ntz'1960-01-02 03:04:05.6')", {"a": datetime(1960, 1, 2, 3, 4, 5, 600_000, timezone.utc)}),
        ("map('a', parse_json('1.5'), 'b', parse_json('[1]'))", None),
        (
            "map('a', parse_json('1.5'), 'b', parse_json('\"x\"'), 'c', parse_json('null'))",
            {"a": 1.5, "b": "x", "c": None},
        ),
        ("map('a', interval '-1' hour)", {"a": timedelta(hours=-1)}),
        ("cast(map() as map<string,int>)", {}),
        ("named_struct('a', cast(0.1 as float), 'b', null)", {"a": 0.1}),
        ("named_struct('a', 12.50, 'b', cast(null as decimal(34,2)))", {"a": Decimal("12.50")}),
        ("map('a', -0.000000000000000001, 'b', 3.0)", {"a": Decimal("-1E-18"), "b": Decimal(3)}),
        ("cast(null as struct<a: int>)", {}),
    ],
)
def test_properties_keep_their_types(
    runtime: RunningNamespace, spark: SparkSession, column: str, expected: dict[str, Any] | None
) -> None:
    """Properties come as a map or as a struct; a struct's nulls are left out."""
    queue = new_queue(runtime.connection_string)
    messages = spark.range(1).selectExpr("'x' AS body", f"{column} AS application_properties")
    if expected is None:
        with pytest.raises(
            kafkabus_spark.MessageRuleError, match=r"body 'x': application properties \{.*: this is no JSON"
        ):
            kafkabus_spark.write(messages, runtime.connection_string, queue)
        return
    kafkabus_spark.write(messages, runtime.connection_string, queue)
    (record,) = stored(runtime.bootstrap_servers, topic_name("tests", EntityPath(queue)), 1)
    written = dict(record.headers).get(h.APPLICATION_PROPERTIES, b"{}")
    assert decode_properties(written or b"") == expected


def test_what_was_read_is_written_with_its_types(runtime: RunningNamespace, spark: SparkSession) -> None:
    """A transformation that changes one property leaves the others, AMQP's annotations and the kinds of bodies as they were.

    Columns with the state of a message are not written.
    """
    source, target = (new_queue(runtime.connection_string) for _ in range(2))
    properties = {
        **_message(random.Random(7), 0)["application_properties"],
        "id": uuid.UUID(int=5),
        "none": None,
        "n": 5,
    }
    properties["amount"] = Decimal("12.50")
    sequence = AmqpAnnotatedMessage(
        sequence_body=[[1, "two"]], header=AmqpMessageHeader(priority=7), application_properties=properties
    )
    sections = AmqpAnnotatedMessage(data_body=[b"aa", b"", b"b"], properties=AmqpMessageProperties(message_id="s"))
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        client.get_queue_sender(source).send_messages([sequence, ServiceBusMessage("plain", message_id="p"), sections])
    read = kafkabus_spark.read(spark, runtime.connection_string, source, state="all")
    cents = kafkabus_spark.decimal_property("amount", 2)
    shown = {
        row["message_id"]: row for row in read.select("message_id", "data_sections", cents.alias("cents")).collect()
    }
    assert {name: row["data_sections"] for name, row in shown.items() if row["data_sections"]} == {"s": [2, 0, 1]}
    assert [row["cents"] for row in shown.values() if row["cents"] is not None] == [Decimal("12.50")]
    changed = F.map_concat(
        F.map_filter("application_properties", lambda name, _: ~name.isin("n", "none")),
        F.create_map(F.lit("n"), F.lit("6"), F.lit("new"), F.lit("5")),
    )
    kafkabus_spark.write(read.withColumn("application_properties", changed), runtime.connection_string, target)
    sent, again = (receive_all(runtime.connection_string, queue, 3) for queue in (source, target))
    assert list(again["s"].body) == [b"aa", b"", b"b"]
    assert again.keys() == sent.keys()
    for message_id, one in again.items():
        wanted = sent[message_id].application_properties or {}
        wanted = {name: value for name, value in wanted.items() if name != b"none"} | {b"n": b"6", b"new": b"5"}
        assert repr(sorted((one.application_properties or {}).items())) == repr(sorted(wanted.items()))
        assert (one.body_type, one._body) == (sent[message_id].body_type, sent[message_id]._body)
    assert {one.raw_amqp_message.header.priority for one in again.values() if one.raw_amqp_message.header} == {7, None}
    check_columns(kafkabus_spark.dead_letters(spark, runtime.connection_string, source).schema)


BROKEN = {
    "keys": (
        "'a' AS session_id, 'b' AS partition_key",
        "partition_key 'b' differs from session_id 'a': .*set both alike",
    ),
    "id": ("repeat('x', 129) AS message_id", "message_id has 129 characters: the longest is 128"),
    "reply": ("repeat('x', 130) AS reply_to_session_id", "reply_to_session_id has 130 characters"),
    "bytes": ("CAST(x'ff' AS string) AS subject", "subject is no text: its bytes are not UTF-8"),
    "past": ("INTERVAL '-1' SECOND AS time_to_live", "time_to_live is -1000 ms: give a positive duration"),
    "long": ("9223372036854775807L AS time_to_live", "time_to_live is longer than"),
    "year": ("timestamp_seconds(-99999999999L) AS scheduled_enqueue_time_utc", "not in the years 1 to 9999"),
    "kind": ("'data' AS body_type", "body_type 'data': choose 'sequence' or 'value'"),
    "json": ("'value' AS body_type", "body_type 'value' and a body that is not JSON"),
    "list": ("'[1]' AS application_properties_json", r"application properties \[1\]: this is no JSON object"),
    "octets": (
        "CAST(x'7B226E223A22FF227D' AS string) AS application_properties_json",
        r"application properties .*: this is no JSON object",
    ),
    "words": (
        "map('a', 'b', 'c', CAST(x'ff' AS string)) AS application_properties",
        "application_properties has a text whose bytes are not UTF-8: give it as binary",
    ),
    "ascii": ("'größe' AS content_type", "content_type is 'größe': AMQP carries it in ASCII only"),
    "duration": (
        "map('a', INTERVAL '10675200 00:00:00' DAY TO SECOND) AS application_properties",
        "application_properties has a duration of 922337280000000000 us: the longest of AMQP has 922337203685477580",
    ),
    "size": ("repeat('ü', 140000) AS subject", "it has 2800.. bytes, properties included: .* takes messages of 262144"),
}
"""Columns that break a rule, and what is said of them."""


def test_rows_that_break_a_rule_go_aside_with_what_is_wrong(runtime: RunningNamespace, spark: SparkSession) -> None:
    """The others are sent."""
    queue = new_queue(runtime.connection_string)
    aside: list[tuple[str, str]] = []

    def keep(rejected: DataFrame) -> None:
        assert set(rejected.columns) == {*messages.columns, "problem"}
        aside.extend(
            (bytes(row["body"]).decode(), row["problem"]) for row in rejected.select("body", "problem").collect()
        )

    # A column has one type in a frame: a time to live is an interval or a number, properties are texts or intervals. JSON is of
    # account if there is no map.
    apart = {name: columns for name, (columns, _) in BROKEN.items() if name in {"long", "words"}}
    durations = {name: columns for name, (columns, _) in BROKEN.items() if name == "duration"}
    rest = {name: columns for name, (columns, _) in BROKEN.items() if name not in {*apart, *durations}}
    for several in (rest, apart, durations):
        messages = spark.sql("SELECT CAST('good' AS binary) AS body")
        for name, columns in several.items():
            broken = spark.sql(f"SELECT CAST('{name}' AS binary) AS body, {columns}")
            messages = messages.unionByName(broken, allowMissingColumns=True)
        kafkabus_spark.write(messages, runtime.connection_string, queue, rejected=keep)
    assert sorted(name for name, _ in aside) == sorted(BROKEN)
    for name, problem in aside:
        assert re.search(BROKEN[name][1], problem), problem
    records = stored(runtime.bootstrap_servers, topic_name("tests", EntityPath(queue)), 1)
    assert [record.value for record in records] == [b"good"] * 3


def test_rows_that_break_a_rule_are_named_and_nothing_is_sent(runtime: RunningNamespace, spark: SparkSession) -> None:
    """The error counts them, and names the first ones by their ids, else by the beginning of their bodies."""
    queue = new_queue(runtime.connection_string, requires_session=True)
    good = spark.sql("SELECT 'good' AS body, 's' AS session_id, 'g' AS message_id")
    bad = spark.sql(
        "SELECT concat('bad ', id) AS body, CAST(NULL AS string) AS session_id, "
        "if(id > 0, concat('m', id), NULL) AS message_id FROM range(7)"
    )
    with pytest.raises(kafkabus_spark.MessageRuleError) as caught:
        kafkabus_spark.write(good.union(bad), runtime.connection_string, queue)
    text = str(caught.value)
    assert text.startswith(f"7 rows break a rule of '{queue}', and nothing was sent: ")
    assert f"no session_id, and '{queue}' requires sessions: set one" in text
    assert "; and 2 more. Correct them, or give rejected=" in text
    with pytest.raises(kafkabus_spark.MessageRuleError, match=r"1 row breaks.*: body 'bad 0': no session_id"):
        kafkabus_spark.write(bad.limit(1), runtime.connection_string, queue)
    assert stored(runtime.bootstrap_servers, topic_name("tests", EntityPath(queue)), 1) == []


def test_rows_that_break_a_rule_only_when_they_are_sent_fail_the_job(
    runtime: RunningNamespace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that has other rows each time may pass the check."""
    queue = new_queue(runtime.connection_string)

    def pass_all(_broken: DataFrame, _entity: str) -> None:
        """Find no row that breaks a rule."""

    monkeypatch.setattr(writer, "_refuse", pass_all)
    messages = spark.sql("SELECT 'x' AS body, repeat('x', 129) AS message_id")
    with pytest.raises(PySparkException, match=r"message_id 'x+': message_id has 129 characters"):
        kafkabus_spark.write(messages, runtime.connection_string, queue)
    assert stored(runtime.bootstrap_servers, topic_name("tests", EntityPath(queue)), 1) == []


def test_each_row_that_breaks_a_rule_is_in_doubt(spark: SparkSession) -> None:
    """Others are not, unless their properties are texts that JSON might write at greater length."""
    rules = EntityRules("orders", 4, False, False, max_message_bytes=1000, written_format=LATEST)
    frames = [spark.sql(f"SELECT 'x' AS body, {columns}") for columns, _ in BROKEN.values()]
    octets = "CAST(x'ff' AS string)"
    frames += [
        spark.sql(f"SELECT 'x' AS body, {properties} AS application_properties")
        for properties in (f"map({octets}, 'a')", f"map({octets}, 1)", f"named_struct('a', 1, 'b', {octets})")
    ]
    texts = "array(NULL, '', 'ab', 'ü€😀', '\"', '\\u0001', 'a\\u0008\\u000c\\n')"
    large = f"SELECT repeat('x', CAST(pow(2, id % 10) AS int)) AS body, map(repeat(coalesce({texts}[id % 7], '?'), 9), "
    frames += [spark.sql(f"{large} repeat({texts}[(id + 3) % 7], id)) AS application_properties FROM range(500)")]
    rows = [row for frame in frames for row in encode_messages(frame, rules).select(DOUBT, PROBLEM).collect()]
    assert all(row[PROBLEM] for row in rows[: len(frames) - 1])
    broken = [row for row in rows if row[PROBLEM]]
    assert len(broken) > len(frames) + 50
    assert all(row[DOUBT] for row in broken)
    assert sum(bool(row[DOUBT]) for row in rows) < 2 * len(broken)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("1 AS body", "column 'body' is int: use binary or text"),
        ("'x' AS subject", "no column 'body'"),
        ("'x' AS body, 'y' AS Label", "column 'Label' is none that a message has.*application_properties"),
        ("'x' AS body, 'y' AS sesion_id", r"\(is 'session_id' meant\?\)"),
        ("'x' AS body, 1 AS message_id", r"'message_id' is int: use text, as cast\('string'\)"),
        ("'x' AS body, date'2026-01-01' AS scheduled_enqueue_time_utc", "is date: use a timestamp"),
        ("'x' AS body, 1.5D AS time_to_live", "is double: use an interval day to second, or whole seconds"),
        ("'x' AS body, map(1, 'x') AS application_properties", "keys of type int: use text"),
        ("'x' AS body, array(1) AS application_properties", "is array<int>: use a map of texts to values, or a struct"),
        (
            "'x' AS body, named_struct('a', date'2026-01-01') AS application_properties",
            r"application_properties.a is date: an application property is text, ",
        ),
        (
            "'x' AS body, map('a', cast(1.5 AS decimal(38,2))) AS application_properties",
            r"is decimal\(38,2\): AMQP's decimals have 34 digits; cast it to decimal\(34,2\), or to text",
        ),
        ("'x' AS body, '1,2' AS data_sections", "'data_sections' is string: use lengths in bytes"),
    ],
)
def test_a_column_that_no_message_has_is_named(spark: SparkSession, columns: str, message: str) -> None:
    """Nothing is asked of Kafka before."""
    with pytest.raises(ValueError, match=message):
        check_columns(spark.sql(f"SELECT {columns}").schema)


def test_an_entity_that_takes_no_messages_is_named(runtime: RunningNamespace, spark: SparkSession) -> None:
    """It is disabled, needs a session id that no row has, is a subscription, or does not exist."""
    connection, messages = runtime.connection_string, spark.sql("SELECT 'x' AS body")
    off, strict = new_queue(connection), new_queue(connection, requires_session=True)
    kafkabus_spark.write(messages, connection, off)
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        properties = administration.get_queue(off)
        properties.status = EntityStatus.SEND_DISABLED
        administration.update_queue(properties)
    with pytest.raises(kafkabus_spark.EntityDisabledError, match=f"queue '{off}' has status SendDisabled"):
        kafkabus_spark.write(messages, connection, off)
    with pytest.raises(ValueError, match=f"no column 'session_id': '{strict}' requires sessions"):
        kafkabus_spark.write(messages, connection, strict)
    with pytest.raises(ValueError, match="'t/Subscriptions/s': '/Subscriptions/' separates"):
        kafkabus_spark.write(messages, connection, "t/Subscriptions/s")
    with pytest.raises(kafkabus_spark.EntityNotFoundError, match=r"no queue or topic 'nowhere'.*create_queue"):
        kafkabus_spark.write(messages, connection, "nowhere")


def test_descriptions_are_read_again_if_one_was_written(untended: str, spark: SparkSession) -> None:
    """Else a write looks up what it needs without a job of Spark's."""
    location = location_of(untended, None)

    def max_size(group: str) -> tuple[int, int]:
        """Return a property of the queue, and how many jobs it took to look it up."""
        spark.sparkContext.setJobGroup(group, group)
        found, _ = read_descriptions(spark, location, "orders")
        return found.max_size_in_megabytes, len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))

    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        properties = administration.create_queue("orders", max_size_in_megabytes=1024)
        try:
            assert [max_size("first"), max_size("again")] == [(1024, 1), (1024, 0)]
            properties.max_size_in_megabytes = 2048
            administration.update_queue(properties)
            assert [max_size("changed"), max_size("and again")] == [(2048, 1), (2048, 0)]
        finally:
            spark.sparkContext.setJobGroup("", "")


def test_decimals_are_refused_in_a_namespace_of_the_first_format(untended: str, spark: SparkSession) -> None:
    """Before anything is sent; lengths of data sections have no effect there."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue("orders")
    context = ClientContext(parse_settings(untended))
    try:
        known = context.descriptions.namespace()
        assert known is not None
        context.descriptions.put_namespace(known.model_copy(update={"format": 1, "format_by": ""}))
    finally:
        context.close()
    priced = spark.sql("SELECT 'x' AS body, map('a', 1.5) AS application_properties")
    with pytest.raises(
        kafkabus_spark.UnsupportedFormatError, match=r"^a decimal among .* run 'kafkabus namespace upgrade'$"
    ):
        kafkabus_spark.write(priced, untended, "orders")
    kafkabus_spark.write(spark.sql("SELECT 'ab' AS body, array(1, 1) AS data_sections"), untended, "orders")
    (message,) = receive_all(untended, "orders", 1).values()
    assert (list(message.body), message.application_properties) == ([b"ab"], {})


def test_a_message_that_is_written_twice_is_a_duplicate(runtime: RunningNamespace, spark: SparkSession) -> None:
    """The message id is the key where duplicates are detected, so that a job may be repeated."""
    queue = new_queue(runtime.connection_string, enable_partitioning=True, requires_duplicate_detection=True)
    messages = spark.sql("SELECT CAST(id AS string) AS message_id, CAST(id AS string) AS body FROM range(50)")
    for _ in range(2):
        kafkabus_spark.write(messages, runtime.connection_string, queue)
    records = stored(runtime.bootstrap_servers, topic_name("tests", EntityPath(queue)), 16)
    assert len(records) == 100
    for record in records:
        assert record.value is not None
        expected = sent_by_the_sdk(
            {"body": record.value, "message_id": record.value.decode()}, 16, detects_duplicates=True
        )
        assert (record.partition, record.key) == (expected.partition, expected.key)
    assert len(receive_all(runtime.connection_string, queue, 50)) == 50
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        left = administration.get_queue_runtime_properties(queue)
    assert left.active_message_count == 0


def test_an_id_that_is_made_up_does_not_go_to_another_message(spark: SparkSession, tmp_path: Path) -> None:
    """A task that is repeated may get its rows in another order; an entity that detects duplicates would drop some of them."""
    file = tmp_path / "bodies.txt"
    rules = EntityRules("orders", 16, False, True, 262_144, LATEST)

    def ids(*bodies: str) -> dict[str, str]:
        file.write_text("\n".join(bodies))
        return {bytes(row["value"]).decode(): bytes(row["key"]).decode() for row in records.collect()}

    file.write_text("a\nb\nc")
    messages = spark.read.text(str(file)).select(F.col("value").alias("body"))
    records = encode_messages(messages, rules).select(
        F.col(SINK["key"]).alias("key"), F.col(SINK["value"]).alias("value")
    )
    first, again = ids("a", "b", "c"), ids("b", "c", "a")
    assert len({*first.values(), *again.values()}) == 6
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in first.values())
    assert first == ids("a", "b", "c")
    other = encode_messages(messages, rules).select(F.col(SINK["key"])).collect()
    assert not {bytes(row[0]).decode() for row in other} & {*first.values()}


def test_a_stream_writes_each_message_once(runtime: RunningNamespace, spark: SparkSession, tmp_path: Path) -> None:
    """A query that was stopped goes on behind the last micro-batch; what breaks a rule goes aside."""
    connection, aside = runtime.connection_string, tmp_path / "aside"
    source, target = new_queue(connection), new_queue(connection)
    messages = kafkabus_spark.read_stream(spark, connection, source, max_messages_per_trigger=2)
    session = F.when(F.col("message_id") == "1", F.repeat(F.lit("x"), F.lit(200)))
    for begin in (0, 3):
        with ServiceBusClient.from_connection_string(connection) as client:
            bodies = [ServiceBusMessage(f"{number}", message_id=f"{number}") for number in range(begin, begin + 3)]
            client.get_queue_sender(source).send_messages(bodies)
        query = kafkabus_spark.write_stream(
            messages.withColumn("reply_to_session_id", session),
            connection,
            target,
            checkpoint_location=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
            query_name="copied",
            rejected=lambda rejected: rejected.write.mode("append").parquet(str(aside)),
        )
        assert query.name == "copied"
        assert query.awaitTermination(240)
    assert sorted(receive_all(connection, target, 5)) == ["0", "2", "3", "4", "5"]
    assert [row["message_id"] for row in spark.read.parquet(str(aside)).collect()] == ["1"]
    with pytest.raises(kafkabus_spark.EntityNotFoundError, match="'nowhere'"):
        kafkabus_spark.write_stream(messages, connection, "nowhere", checkpoint_location=str(tmp_path / "other"))


def test_a_message_to_a_topic_reaches_its_subscriptions(runtime: RunningNamespace, spark: SparkSession) -> None:
    """Rules of subscriptions see properties with their types; a scheduled message comes at its time."""
    connection, topic = runtime.connection_string, f"t-{uuid.uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        administration.create_topic(topic)
        administration.create_subscription(topic, "hot")
        administration.create_rule(topic, "hot", "hot", filter=SqlRuleFilter("share > 0.5 AND name LIKE 'a%'"))
        administration.delete_rule(topic, "hot", "$Default")
        try:
            kafkabus_spark.write(
                spark.sql(
                    "SELECT concat(id, '') AS body, named_struct('share', id / 4, 'name', 'ab') AS application_properties, "
                    "if(id = 4, now() + INTERVAL 1 SECOND, NULL) AS scheduled_enqueue_time_utc FROM range(5)"
                ),
                connection,
                topic,
            )
            with ServiceBusClient.from_connection_string(connection) as client:
                receiver = client.get_subscription_receiver(topic, "hot")
                bodies: list[str] = []
                while len(bodies) < 2:
                    messages = receiver.receive_messages(10, max_wait_time=PATIENCE)
                    assert messages, bodies
                    bodies += map(str, messages)
            assert bodies == ["3", "4"]
        finally:
            administration.delete_topic(topic)
