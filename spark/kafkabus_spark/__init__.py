"""Read and write kafkabus entities with Spark, using only its own Kafka source and sink, and Catalyst expressions."""

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "kafkabus_spark needs pyspark, and it is not installed: pip install 'kafkabus[spark]'", name="pyspark"
    )

from kafkabus_spark.dead_letters import dead_letters
from kafkabus_spark.errors import (
    ConnectorMissingError,
    EntityDisabledError,
    EntityNotFoundError,
    JavaNotFoundError,
    MessageRuleError,
    NamespaceFormatError,
    NamespaceUnreachableError,
    SparkError,
)
from kafkabus_spark.reader import partition_count, read, read_stream
from kafkabus_spark.reports import partition_report
from kafkabus_spark.retention import RetentionListener, Unread, check_retention
from kafkabus_spark.session import connector_package, session, stop
from kafkabus_spark.writer import write, write_stream

__all__ = [
    "ConnectorMissingError",
    "EntityDisabledError",
    "EntityNotFoundError",
    "JavaNotFoundError",
    "MessageRuleError",
    "NamespaceFormatError",
    "NamespaceUnreachableError",
    "RetentionListener",
    "SparkError",
    "Unread",
    "check_retention",
    "connector_package",
    "dead_letters",
    "partition_count",
    "partition_report",
    "read",
    "read_stream",
    "session",
    "stop",
    "write",
    "write_stream",
]
