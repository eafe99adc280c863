"""Read kafkabus entities with Spark, using only Spark's own Kafka source and Catalyst expressions."""

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "kafkabus_spark needs pyspark, and it is not installed: pip install 'kafkabus[spark]'", name="pyspark"
    )

from kafkabus_spark.errors import (
    ConnectorMissingError,
    EntityNotFoundError,
    JavaNotFoundError,
    NamespaceFormatError,
    NamespaceUnreachableError,
    SparkReadError,
)
from kafkabus_spark.reader import partition_count, read, read_stream
from kafkabus_spark.reports import partition_report
from kafkabus_spark.session import connector_package, session, stop

__all__ = [
    "ConnectorMissingError",
    "EntityNotFoundError",
    "JavaNotFoundError",
    "NamespaceFormatError",
    "NamespaceUnreachableError",
    "SparkReadError",
    "connector_package",
    "partition_count",
    "partition_report",
    "read",
    "read_stream",
    "session",
    "stop",
]
