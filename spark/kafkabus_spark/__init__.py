"""Read and write kafkabus entities with Spark, using only its own Kafka source and sink, and Catalyst expressions."""

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "kafkabus_spark needs pyspark, and it is not installed: pip install 'kafkabus[spark]'", name="pyspark"
    )

import pyspark

if int(pyspark.__version__.partition(".")[0]) < 4:
    raise ImportError(
        "kafkabus_spark needs Spark 4.0 or later, whose functions its columns are made of, and pyspark "
        f"{pyspark.__version__} is installed: pip install 'kafkabus[spark]', or take a cluster with Spark 4",
        name="pyspark",
    )

from kafkabus_spark.columns import decimal_property
from kafkabus_spark.copying import replay, resubmit
from kafkabus_spark.dead_letters import dead_letters
from kafkabus_spark.errors import (
    ConnectorMissingError,
    EntityDisabledError,
    EntityNotFoundError,
    EntityRecreatedError,
    JavaNotFoundError,
    MessageRuleError,
    NamespaceUnreachableError,
    SparkError,
    UnsupportedFormatError,
)
from kafkabus_spark.reader import partition_count, read, read_stream
from kafkabus_spark.reconciliation import reconcile
from kafkabus_spark.reports import dead_letter_report, partition_history, partition_report, session_history
from kafkabus_spark.retention import RetentionListener, Unread, check_retention
from kafkabus_spark.session import connector_package, session, stop
from kafkabus_spark.tables import Compaction, TableFormat, capture, captured, compact, delta_settings
from kafkabus_spark.writer import write, write_stream

__all__ = [
    "Compaction",
    "ConnectorMissingError",
    "EntityDisabledError",
    "EntityNotFoundError",
    "EntityRecreatedError",
    "JavaNotFoundError",
    "MessageRuleError",
    "NamespaceUnreachableError",
    "RetentionListener",
    "SparkError",
    "TableFormat",
    "Unread",
    "UnsupportedFormatError",
    "capture",
    "captured",
    "check_retention",
    "compact",
    "connector_package",
    "dead_letter_report",
    "dead_letters",
    "decimal_property",
    "delta_settings",
    "partition_count",
    "partition_history",
    "partition_report",
    "read",
    "read_stream",
    "reconcile",
    "replay",
    "resubmit",
    "session",
    "session_history",
    "stop",
    "write",
    "write_stream",
]
