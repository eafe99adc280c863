"""Access to Kafka through the Java client that is part of Spark's connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from kafkabus_mapping.connection import KafkaLocation
from kafkabus_mapping.names import EntityPath, split_subscription, topic_name
from kafkabus_mapping.secret import revealed
from kafkabus_spark.errors import ConnectorMissingError, EntityNotFoundError, NamespaceUnreachableError
from kafkabus_spark.session import connector_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_MS: Final = 15_000
"""How long Kafka may take to answer a request before a job starts, in milliseconds."""

KAFKA_SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
"""The schema of Spark's Kafka source, headers included."""

_UNKNOWN_TOPIC: Final = "UnknownTopicOrPartitionException"


def java_options(location: KafkaLocation) -> dict[str, str]:
    """Return the options of Kafka's Java client for a namespace: brokers, TLS and SASL."""
    given = {option: revealed(value) for option, value in location.kafka_options.items()}
    options = {"bootstrap.servers": location.bootstrap_servers}
    authority = given.pop("ssl.ca.location", None)
    if authority is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    if user is not None:
        options["sasl.jaas.config"] = _jaas(given.get("sasl.mechanism", "PLAIN"), user, password or "")
    return options | given


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


def topic_partitions(spark: SparkSession, location: KafkaLocation, path: EntityPath) -> int:
    """Return how many partitions an entity's topic has; 0 through Spark Connect, which gives no access to the Java client.

    Raises:
        EntityNotFoundError: The topic does not exist.
        NamespaceUnreachableError: Kafka does not answer.
    """
    jvm = _jvm(spark)
    if jvm is None:
        return 0
    topic = topic_name(location.namespace, path)
    settings = jvm.java.util.HashMap()
    limits = {"default.api.timeout.ms": str(PATIENCE_MS), "request.timeout.ms": str(PATIENCE_MS)}
    for name, value in (java_options(location) | limits).items():
        settings.put(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        try:
            asked = admin.describeTopics(jvm.java.util.Collections.singletonList(topic))
            return int(asked.allTopicNames().get().get(topic).partitions().size())
        finally:
            admin.close()
    except Py4JJavaError as error:
        raise _translated(error, location, path, topic) from error


def look_up(spark: SparkSession, location: KafkaLocation, path: EntityPath) -> tuple[int, bool]:
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
        names = split_subscription(path.name)
        return topic_partitions(spark, location, EntityPath(names[0] if names else path.name)), False


def _translated(error: Py4JJavaError, location: KafkaLocation, path: EntityPath, topic: str) -> Exception:
    cause = str(error.java_exception)
    if _UNKNOWN_TOPIC in cause:
        return EntityNotFoundError(
            f"namespace {location.namespace!r} has no queue {str(path)!r}: Kafka at {location.bootstrap_servers} has no "
            f"topic {topic!r}. Check the name and the namespace, or create the queue with "
            f"ServiceBusAdministrationClient.create_queue({path.name!r})"
        )
    return NamespaceUnreachableError(
        f"Kafka at {location.bootstrap_servers} does not answer for namespace {location.namespace!r}: {cause}. Check "
        "KafkaBootstrapServers and the TLS and SASL parts of the connection string"
    )


def _jvm(spark: SparkSession) -> Any:
    return getattr(spark, "_jvm", None)


def _jaas(mechanism: str, user: str, password: str) -> str:
    package = "org.apache.kafka.common.security"
    module = (
        f"{package}.scram.ScramLoginModule" if mechanism.startswith("SCRAM") else f"{package}.plain.PlainLoginModule"
    )
    return f"{module} required username={_quoted(user)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
