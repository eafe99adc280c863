"""Access to Kafka through the Java client that is part of Spark's connector."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError

from kafkabus_mapping.codec import to_milliseconds
from kafkabus_mapping.connection import KafkaLocation, parse_kafka_location
from kafkabus_mapping.names import EntityPath, topic_name
from kafkabus_mapping.secret import reveal_text
from kafkabus_spark.errors import ConnectorMissingError, EntityNotFoundError, NamespaceUnreachableError
from kafkabus_spark.session import connector_package

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

PATIENCE_MS: Final = 15_000
"""How long Kafka may take to answer a request before a job starts, in milliseconds."""

HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"
"""The type of a record's headers."""
KAFKA_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    f"headers {HEADERS_TYPE}"
)
"""The schema of Spark's Kafka source, headers included."""

FETCHING: Final = {"fetch.max.wait.ms": "10", "max.poll.records": "5000"}
"""Fetch options of Kafka's client for Spark, which fetches only records that it knows to exist.

After each poll Spark asks, on the same connection, for the begin and the end of the log. At the end of the log this request
waits behind the fetch that the client has begun by then: with Kafka's default of 500 ms, half a second in every task. Spark
then seeks, which discards the records that were fetched but not polled: with Kafka's default of 500 records, half of each
megabyte of small messages.
"""


@dataclass(frozen=True, slots=True)
class SparkLocation(KafkaLocation):
    """The Kafka cluster that holds a namespace's topics, as Spark reaches it.

    Attributes:
        java_options: Options of Kafka's Java client, which count before those of the connection string.
    """

    java_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def location_of(
    connection: str, environment: Mapping[str, str] | None, java_options: Mapping[str, str] | None = None
) -> SparkLocation:
    """Return the namespace that a connection string names, and the Kafka cluster that holds it.

    Raises:
        ValueError: The string is malformed, or one of the options is not for connections.
    """
    found = parse_kafka_location(connection, os.environ if environment is None else environment, read_text)
    own = {name.removeprefix("kafka."): value for name, value in (java_options or {}).items()}
    reserved = [name for name in own if name in _RESERVED]
    if reserved:
        raise ValueError(f"kafka_options: {reserved[0]!r} is not the caller's choice; {_RESERVED[reserved[0]]}")
    return SparkLocation(**{part.name: getattr(found, part.name) for part in fields(found)}, java_options=own)


_RESERVED: Final = {
    "bootstrap.servers": "the connection string names the brokers",
    "isolation.level": "only committed records are messages",
    "acks": "messages are durable when they are sent",
    "enable.idempotence": "messages are stored once, and in order",
    "key.serializer": "Spark sets it",
    "value.serializer": "Spark sets it",
    "key.deserializer": "Spark sets it",
    "value.deserializer": "Spark sets it",
    "group.id": "Spark chooses it",
    "auto.offset.reset": "starting_offsets decides where a job begins",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint",
}
"""Options that a caller cannot set, and why."""
_SAME_IN_JAVA: Final = ("security.protocol", "sasl.mechanism", "ssl.key.password")
"""The options that have the same name in librdkafka and in Kafka's Java client."""
_AS_LIBRDKAFKA: Final = str.maketrans("-_", "+/")
_OLDER_READERS: Final = "spark.sql.sources.useV1SourceList"
_LOADING: Final = threading.Lock()
"""Held while the session's setting differs, so that each call restores what the user has set."""
_NO_RECORD: Final = -1
"""The offset that Kafka gives if no record is as late as a moment."""
_UNKNOWN_TOPIC: Final = "UnknownTopicOrPartitionException"


def java_options(location: SparkLocation) -> dict[str, str]:
    """Return the options of Kafka's Java client for a namespace: brokers, TLS and SASL.

    Raises:
        ValueError: The SASL mechanism is OAUTHBEARER, and its options in Java are missing; or a file of a certificate cannot
            be read.
    """
    given = {option: reveal_text(value) for option, value in location.kafka_options.items()}
    mechanism = given.get("sasl.mechanism", "PLAIN")
    if mechanism == "OAUTHBEARER" and "sasl.jaas.config" not in location.java_options:
        raise ValueError(
            "KafkaSaslMechanism='OAUTHBEARER': Kafka's Java client needs further options for it; give kafka_options= with "
            "'sasl.jaas.config', 'sasl.login.callback.handler.class' and 'sasl.oauthbearer.token.endpoint.url'"
        )
    options = {"bootstrap.servers": location.bootstrap_servers}
    options |= {option: given[option] for option in _SAME_IN_JAVA if option in given}
    if "ssl.ca.location" in given:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"]}
    if "ssl.certificate.location" in given:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text_of(given["ssl.certificate.location"]),
            "ssl.keystore.key": _text_of(given.get("ssl.key.location", given["ssl.certificate.location"])),
        }
    if "sasl.username" in given:
        options["sasl.jaas.config"] = _jaas(mechanism, given["sasl.username"], given.get("sasl.password", ""))
    return options | dict(location.java_options)


def connector_options(location: SparkLocation, defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options of Spark's Kafka source or sink for a namespace.

    Args:
        location: The namespace, and the Kafka cluster that holds it.
        defaults: Options of Kafka's Java client, which those of the location override.
    """
    return {f"kafka.{name}": value for name, value in ({**(defaults or {})} | java_options(location)).items()}


def load_records(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the records of Kafka that options of Spark's Kafka source name, as the newer of its two readers gives them.

    By default a batch is read by the older one (``spark.sql.sources.useV1SourceList``), which turns each record into a Java
    object and back: that takes a third of the processor time. A stream is read by the newer one anyway.
    """
    with _LOADING:
        listed = spark.conf.get(_OLDER_READERS) or ""
        spark.conf.set(_OLDER_READERS, ",".join(name for name in listed.split(",") if name.strip().lower() != "kafka"))
        try:
            return spark.read.format("kafka").options(**options).load()
        finally:
            spark.conf.set(_OLDER_READERS, listed)


def check_connector(spark: SparkSession) -> None:
    """Check that a session can read Kafka.

    Raises:
        ConnectorMissingError: The session was started without the connector.
    """
    jvm = _jvm(spark)
    if jvm is None:
        return
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider")
    except Py4JJavaError as error:
        raise ConnectorMissingError(
            "this Spark session cannot read Kafka: build it with kafkabus_spark.session(), or start Spark with "
            f"--packages {connector_package()}"
        ) from error


def topic_partitions(spark: SparkSession, location: SparkLocation, path: EntityPath) -> int:
    """Return how many partitions an entity's topic has; 0 through Spark Connect, which gives no access to the Java client.

    Raises:
        EntityNotFoundError: The topic does not exist.
        NamespaceUnreachableError: Kafka does not answer.
    """
    topic = topic_name(location.namespace, path)
    count = _ask(spark, location, topic, lambda asked: int(asked.described.partitions().size()), connect=0)
    if count is None:
        raise EntityNotFoundError(
            f"namespace {location.namespace!r} has no queue {str(path)!r}: Kafka at {location.bootstrap_servers} has no "
            f"topic {topic!r}. Check the name and the namespace, or create the queue with "
            f"ServiceBusAdministrationClient.create_queue({path.name!r})"
        )
    return count


def has_topic(spark: SparkSession, location: SparkLocation, topic: str) -> bool:
    """Return whether a topic exists; True through Spark Connect, which gives no access to the Java client.

    Raises:
        NamespaceUnreachableError: Kafka does not answer.
    """
    return _ask(spark, location, topic, lambda _: True, connect=True) is not None


def topic_id(spark: SparkSession, location: SparkLocation, topic: str) -> str:
    """Return the id of a topic, as descriptions have it; an empty one if there is no such topic.

    Raises:
        NamespaceUnreachableError: Kafka does not answer.
    """
    found = _ask(spark, location, topic, lambda asked: asked.topic_id, connect="")
    # Java writes ids in the alphabet for URLs, librdkafka in the other one.
    return (found or "").translate(_AS_LIBRDKAFKA)


class Version(NamedTuple):
    """The state of a topic of one partition; another one after each change.

    Attributes:
        topic_id: The topic's id.
        end: The offset behind its last record.
    """

    topic_id: str
    end: int


def version_of(spark: SparkSession, location: SparkLocation, topic: str) -> Version | None:
    """Return the version of a topic of one partition; None if there is no such topic.

    Through Spark Connect, which gives no access to the Java client, each version differs from the others.

    Raises:
        NamespaceUnreachableError: Kafka does not answer.
    """

    def look(asked: _Asked) -> Version:
        (end,) = _list_offsets(asked, lambda spec: spec.latest())
        return Version(asked.topic_id, end)

    return _ask(spark, location, topic, look, connect=Version(uuid.uuid4().hex, 0))


class LogPlaces(NamedTuple):
    """Offsets in one partition of a topic.

    Attributes:
        start: The first one.
        young: That of the first record that was stored at some moment or later, else the end.
        end: The one behind the last record.
    """

    start: int
    young: int
    end: int


def log_places(spark: SparkSession, location: SparkLocation, topic: str, moment: datetime) -> list[LogPlaces]:
    """Return offsets in each partition of a topic; none if there is no such topic.

    Raises:
        NamespaceUnreachableError: Kafka does not answer.
    """

    def look(asked: _Asked) -> list[LogPlaces]:
        starts = _list_offsets(asked, lambda spec: spec.earliest())
        young = _list_offsets(asked, lambda spec: spec.forTimestamp(to_milliseconds(moment)))
        ends = _list_offsets(asked, lambda spec: spec.latest())
        return [
            LogPlaces(start, end if offset == _NO_RECORD else offset, end)
            for start, offset, end in zip(starts, young, ends, strict=True)
        ]

    return _ask(spark, location, topic, look, connect=[]) or []


class _Asked(NamedTuple):
    """Java's objects by which a question about a topic is answered.

    Attributes:
        jvm: Java.
        admin: Kafka's administration client.
        described: Kafka's description of the topic.
    """

    jvm: Any
    admin: Any
    described: Any

    @property
    def topic_id(self) -> str:
        """The topic's id, as Java writes it."""
        return str(self.described.topicId().toString())


def _list_offsets(asked: _Asked, specify: Callable[[Any], Any]) -> list[int]:
    """Return an offset of each partition of a topic."""
    jvm, admin, described = asked
    places = [
        jvm.org.apache.kafka.common.TopicPartition(described.name(), number)
        for number in range(described.partitions().size())
    ]
    wanted = jvm.java.util.HashMap()
    for place in places:
        wanted.put(place, specify(jvm.org.apache.kafka.clients.admin.OffsetSpec))
    found = admin.listOffsets(wanted).all().get()
    return [int(found.get(place).offset()) for place in places]


def _ask(
    spark: SparkSession,
    location: SparkLocation,
    topic: str,
    question: Callable[[_Asked], T],
    *,
    connect: T,
) -> T | None:
    """Return the answer to a question about a topic; None if there is no such topic.

    Args:
        spark: A session that can read Kafka.
        location: The namespace, and the Kafka cluster that holds it.
        topic: The topic.
        question: A function that answers it.
        connect: The answer through Spark Connect, which gives no access to Java.

    Raises:
        NamespaceUnreachableError: Kafka does not answer.
    """
    jvm = _jvm(spark)
    if jvm is None:
        return connect
    settings = jvm.java.util.HashMap()
    limits = {"default.api.timeout.ms": str(PATIENCE_MS), "request.timeout.ms": str(PATIENCE_MS)}
    for name, value in (java_options(location) | limits).items():
        settings.put(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        try:
            topics = jvm.java.util.Collections.singletonList(topic)
            return question(_Asked(jvm, admin, admin.describeTopics(topics).allTopicNames().get().get(topic)))
        finally:
            admin.close()
    except Py4JJavaError as error:
        if _UNKNOWN_TOPIC in str(error.java_exception):
            return None
        cause = _root_cause(error)
        raise NamespaceUnreachableError(
            f"Kafka at {location.bootstrap_servers} does not answer for namespace {location.namespace!r}: "
            f"{cause}. {_remedy(cause)}"
        ) from error


def _root_cause(error: Py4JJavaError) -> str:
    """Return the last of the causes of a Java error, which its client wraps several times."""
    cause: Any = error.java_exception
    while (deeper := cause.getCause()) is not None:
        cause = deeper
    return str(cause.toString())


def _remedy(cause: str) -> str:
    if "PBES2" in cause:
        return (
            "Kafka's Java client cannot read the key that KafkaSslKeyLocation names, because of how its password encrypts it: "
            "give a key without a password, or a file in PKCS#12 by kafka_options= with 'ssl.keystore.type', "
            "'ssl.keystore.location' and 'ssl.keystore.password', and without KafkaSslCertificateLocation"
        )
    return "Check KafkaBootstrapServers and the TLS and SASL parts of the connection string"


def look_up(spark: SparkSession, location: SparkLocation, path: EntityPath) -> tuple[int, bool]:
    """Return how many partitions an entity has, and whether its topic exists.

    The topic of a dead-letter queue is created with its first message.

    Raises:
        EntityNotFoundError: The queue does not exist.
        NamespaceUnreachableError: Kafka does not answer.
    """
    try:
        return topic_partitions(spark, location, path), True
    except EntityNotFoundError:
        if not path.is_dead_letter:
            raise
        return topic_partitions(spark, location, EntityPath(path.name).log), False


def _jvm(spark: SparkSession) -> Any:
    return getattr(spark, "_jvm", None)


def _text_of(file: str) -> str:
    try:
        return read_text(file)
    except OSError as error:
        raise ValueError(
            f"{file!r} cannot be read ({error.strerror}): name the file of a certificate or key"
        ) from error


def read_text(file: str) -> str:
    """Return the text of a file that a connection string names."""
    return Path(file).read_text(encoding="utf-8")


def _jaas(mechanism: str, user: str, password: str) -> str:
    package = "org.apache.kafka.common.security"
    module = (
        f"{package}.scram.ScramLoginModule" if mechanism.startswith("SCRAM") else f"{package}.plain.PlainLoginModule"
    )
    return f"{module} required username={_quote(user)} password={_quote(password)};"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
