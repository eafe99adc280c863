"""Messages from Spark to a queue or topic, in batch and as a stream, through Spark's own Kafka sink."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kafkabus_mapping.entities import EntityStatus
from kafkabus_mapping.formats import FIRST, needs_latest
from kafkabus_mapping.names import EntityPath, topic_name
from kafkabus_spark.descriptions import FORMAT_AGE, check_format, read_descriptions
from kafkabus_spark.encoding import (
    DOUBT,
    NAME,
    PROBLEM,
    SESSION_ID,
    SINK,
    EntityRules,
    check_columns,
    encode_messages,
    has_decimals,
)
from kafkabus_spark.errors import EntityDisabledError, EntityNotFoundError, MessageRuleError, UnsupportedFormatError
from kafkabus_spark.kafka import SparkLocation, check_connector, connector_options, location_of
from kafkabus_spark.reader import entity_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PRODUCING: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "5",
    "batch.size": "262144",
    "max.request.size": "2000000",
    "send.buffer.bytes": "-1",
}
"""Options of Kafka's producer in Spark: durable, with room for the largest message, and quick.

A producer has 32 MB for the batches of all partitions. With -1 the system chooses the size of a connection's buffer, which is
128 KB else, less than a request. docs/performance.md has what these save.
"""
NAMED: Final = 5
"""How many messages an error names."""

Reject = Callable[["DataFrame"], None]
"""A function that stores messages that break a rule; ``problem`` is their last column."""


def write(
    messages: DataFrame,
    connection: str,
    entity: str,
    *,
    rejected: Reject | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Send the rows of a frame as messages, as the SDK would send them; when this returns they are durable.

    All rows are checked before any is sent, so Spark computes the frame more than once: persist it if that is expensive. A job
    that fails has sent some of the messages, and a task that Spark repeats sends its messages again; if the entity detects
    duplicates and ``message_id`` comes from the data, they are stored once all the same.

    =============================== ============================== ===================================================
    Column                          Type                           Meaning
    =============================== ============================== ===================================================
    ``body``                        binary or string               Required; null is a message without a body
    ``message_id``                  string                         Up to 128 characters; 32 random hexadecimal digits if
                                                                   it is null or empty, or without the column
    ``session_id``                  string                         Up to 128 characters
    ``partition_key``               string                         Up to 128 characters; equals ``session_id`` if both
                                                                   are set
    ``correlation_id``,             string                         As they are; ``reply_to_session_id`` has up to 128
    ``subject``, ``content_type``,                                 characters
    ``to``, ``reply_to``,
    ``reply_to_session_id``
    ``body_type``                   string                         ``sequence`` or ``value`` for a body of JSON
    ``data_sections``               array<int>                     Lengths of the body's data sections, if there are
                                                                   several; others than those of the body have no effect
    ``time_to_live``                interval day to second, or     Null or 0: the entity's default
                                    whole seconds
    ``scheduled_enqueue_time_utc``  timestamp                      When the message becomes receivable; at once if it is
                                                                   null or has passed. One without a time zone is in UTC
    ``application_properties``      map<string, …>, or struct      Text, booleans, numbers (decimals of up to 34 digits),
                                                                   binary, timestamps, intervals and variants; a struct's
                                                                   nulls are left out
    ``application_properties_json`` string                         The properties as JSON, as ``read`` returns it. Beside a
                                                                   map of texts it gives the types of those that are
                                                                   unchanged
    ``headers``                     array<struct>                  As ``read`` returns it; AMQP's annotations are taken
                                                                   from it
    =============================== ============================== ===================================================

    Messages with a key go to their key's partition; Kafka's producer chooses one for the others. The other columns of
    ``read``, such as ``sequence_number``, may be there and are not written.

    Args:
        messages: The messages, one in each row.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        rejected: A function that gets the rows that break a rule, as a frame with the additional column ``problem``, before
            the others are sent. Default: then nothing is sent, and an error names them.
        kafka_options: Options of Kafka's Java client for Spark, such as those of OAUTHBEARER, which count before those of the
            connection string.
        environment: ``KAFKABUS_…`` variables for parts that the string leaves out; default those of the process.

    Raises:
        MessageRuleError: Rows break a rule; nothing was sent.
        ValueError: A column is unknown or has a wrong type; or the connection string, or a name, is malformed.
        EntityNotFoundError: There is no such queue or topic.
        EntityDisabledError: It takes no messages.
        UnsupportedFormatError: The namespace is stored in a format that this version does not write.
        NamespaceUnreachableError: Kafka does not answer.
        ConnectorMissingError: The session has no Kafka connector.
    """
    location = location_of(connection, environment, kafka_options)
    path = entity_path(location, entity, None)
    _send(messages, location, path, _rules(messages.sparkSession, location, path, messages), rejected)


def write_stream(
    messages: DataFrame,
    connection: str,
    entity: str,
    *,
    checkpoint_location: str,
    trigger: Mapping[str, str | bool] | None = None,
    query_name: str | None = None,
    rejected: Reject | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Send the rows of a stream as messages, one micro-batch after the other; return the running query.

    Each micro-batch is persisted, checked, and sent as ``write`` does it: the query fails if rows break a rule, unless there is
    ``rejected``. A query that was stopped in the middle of a micro-batch sends it again from its checkpoint.

    Args:
        messages: The messages, as for ``write``.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        checkpoint_location: The folder in which the query keeps what it has sent.
        trigger: Arguments of Spark's ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``; default one micro-batch
            as soon as the last one is done.
        query_name: The query's name.
        rejected: As for ``write``, called for each micro-batch that has such rows or not.
        kafka_options: Options of Kafka's Java client for Spark, such as those of OAUTHBEARER, which count before those of the
            connection string.
        environment: ``KAFKABUS_…`` variables for parts that the string leaves out; default those of the process.

    Raises:
        ValueError: See ``write``; these errors come before the query starts.
        SparkError: See ``write``.
    """
    location = location_of(connection, environment, kafka_options)
    batches = _Batches(messages, location, entity_path(location, entity, None), rejected)
    query = messages.writeStream.foreachBatch(batches.send).option("checkpointLocation", checkpoint_location)
    if query_name is not None:
        query = query.queryName(query_name)
    if trigger is not None:
        query = query.trigger(**trigger)  # type: ignore[arg-type]  # pyspark has one signature for each trigger
    return query.start()


class _Batches:
    """Sends the micro-batches of a stream; it looks up again what the entity demands once that is ``FORMAT_AGE`` old."""

    def __init__(self, messages: DataFrame, location: SparkLocation, path: EntityPath, rejected: Reject | None) -> None:
        self._location = location
        self._path = path
        self._rejected = rejected
        self._look_up(messages)

    def send(self, messages: DataFrame, _number: int) -> None:
        """Send a micro-batch, which is computed once although it is used twice."""
        if time.monotonic() - self._looked_up_at > FORMAT_AGE:
            self._look_up(messages)
        messages.persist()
        try:
            _send(messages, self._location, self._path, self._rules, self._rejected)
        finally:
            messages.unpersist()

    def _look_up(self, messages: DataFrame) -> None:
        self._rules = _rules(messages.sparkSession, self._location, self._path, messages)
        self._looked_up_at = time.monotonic()


def _send(
    messages: DataFrame, location: SparkLocation, path: EntityPath, rules: EntityRules, rejected: Reject | None
) -> None:
    steps = encode_messages(messages, rules)
    broken = F.col(PROBLEM).isNotNull()
    if rejected is None:
        # Spark leaves out the steps that this job does not need, and in an aggregation it computes repeated parts once.
        ((in_doubt,),) = steps.agg(F.bool_or(DOUBT)).collect()
        if in_doubt:
            _refuse(steps.where(broken).select(NAME, PROBLEM), rules.name)
    else:
        rejected(steps.where(broken).select(*messages.columns, PROBLEM))
        steps = steps.where(~broken)
    # Rows that another computation of the frame gives may break rules that the checked ones did not.
    value = F.when(broken, F.raise_error(F.concat_ws(": ", NAME, PROBLEM))).otherwise(F.col(SINK["value"]))
    records = {name: F.col(own) for name, own in SINK.items()} | {"value": value.cast("binary")}
    (
        steps.select(*(column.alias(name) for name, column in records.items()))
        .write.format("kafka")
        .options(**connector_options(location, PRODUCING))
        .option("topic", topic_name(location.namespace, path))
        .option("includeHeaders", "true")
        .save()
    )


def _refuse(broken: DataFrame, entity: str) -> None:
    """Raise an error that names rows, if there are any.

    Raises:
        MessageRuleError: There are some.
    """
    # Unlike take, which looks at one partition after the other, count is one job over all of them.
    count = broken.count()
    if not count:
        return
    first = broken.take(NAMED)
    named = "; ".join(f"{row[NAME]}: {row[PROBLEM]}" for row in first)
    raise MessageRuleError(
        f"{count} {'row breaks' if count == 1 else 'rows break'} a rule of {entity!r}, and nothing was sent: {named}"
        + (f"; and {count - len(first)} more" if count > len(first) else "")
        + ". Correct them, or give rejected= a function that stores them"
    )


def _rules(spark: SparkSession, location: SparkLocation, path: EntityPath, messages: DataFrame) -> EntityRules:
    """Return what an entity demands of its messages; check its status, and the columns of the messages.

    Raises:
        EntityNotFoundError: There is no such queue or topic.
        EntityDisabledError: It takes no messages.
        UnsupportedFormatError: A column is of a type that the namespace's format cannot store.
        ValueError: A column is unknown or missing, or has a wrong type.
    """
    check_columns(messages.schema)
    check_connector(spark)
    check_format(spark, location)
    entity, namespace = read_descriptions(spark, location, path.name)
    if entity.retiring_at is not None:
        raise EntityNotFoundError(
            f"{entity.kind} {entity.name!r} is being deleted: it was not used for its auto_delete_on_idle, "
            f"{entity.auto_delete_on_idle}; create it again"
        )
    if entity.status in {EntityStatus.DISABLED, EntityStatus.SEND_DISABLED, EntityStatus.DELETING}:
        raise EntityDisabledError(
            f"{entity.kind} {entity.name!r} has status {entity.status.value} and takes no messages; nothing was sent. Change "
            f"its status with ServiceBusAdministrationClient.update_{entity.kind}"
        )
    if entity.requires_session and SESSION_ID not in {name.lower() for name in messages.columns}:
        raise ValueError(f"no column {SESSION_ID!r}: {entity.name!r} requires sessions, so each message needs one")
    if namespace.written_format == FIRST and has_decimals(messages.schema):
        raise UnsupportedFormatError(needs_latest("a decimal among the application properties", location.namespace))
    return EntityRules(
        entity.name,
        entity.partitions,
        entity.requires_session,
        entity.requires_duplicate_detection,
        namespace.max_message_bytes,
        namespace.written_format,
    )
