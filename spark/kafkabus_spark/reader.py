"""An entity as a DataFrame, in batch and as a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kafkabus_mapping.entities import FOREVER, SubscriptionDescription
from kafkabus_mapping.names import (
    EntityPath,
    SubQueue,
    check_entity,
    subscription_name,
    topic_name,
)
from kafkabus_spark.columns import Choice, decode_records, with_changes
from kafkabus_spark.descriptions import check_format, described_subscription, read_descriptions
from kafkabus_spark.kafka import (
    FETCHING,
    KAFKA_SCHEMA,
    SparkLocation,
    check_connector,
    connector_options,
    load_records,
    location_of,
    look_up,
)
from kafkabus_spark.positions import EARLIEST, Offsets, Side, position
from kafkabus_spark.states import CHANGES, COLUMNS, Selection, select
from kafkabus_spark.stream_checkpoints import note_topic
from kafkabus_spark.subscriptions import choice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    subscription: str | None = None,
    sub_queue: SubQueue | str | None = None,
    state: Selection | str | None = None,
    starting_offsets: Offsets | None = None,
    starting_timestamp: datetime | None = None,
    starting_sequence_numbers: int | Iterable[int] | None = None,
    ending_offsets: Offsets | None = None,
    ending_timestamp: datetime | None = None,
    ending_sequence_numbers: int | Iterable[int] | None = None,
    fail_on_data_loss: bool = True,
    min_partitions: int | None = None,
    default_time_to_live: timedelta | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the messages of an entity that Kafka still holds, including settled ones unless ``state`` says otherwise.

    Only committed messages are read (``read_committed``). Columns that a query does not use cost nothing.

    ================================= ======================== ======================================================
    Column                            Type                     Meaning
    ================================= ======================== ======================================================
    ``body``                          binary                   The body as sent
    ``message_id``                    string                   ``topic/partition/offset`` if the sender set none
    ``session_id``, ``partition_key`` string                   The partition key of a foreign record is the record's key
    ``correlation_id``, ``subject``,  string                   As sent
    ``content_type``, ``to``,
    ``reply_to``,
    ``reply_to_session_id``
    ``time_to_live``                  interval day to second   The message's own
    ``scheduled_enqueue_time_utc``    timestamp                As sent; a scheduled message is stored twice, before its
                                                               time and at it, then with ``sb-transfer-source`` in
                                                               ``headers``
    ``sequence_number``               bigint                   ``partition << 48 | (offset + 1)``
    ``partition_id``, ``offset``      int, bigint              Partition and offset of its record in Kafka
    ``enqueued_time_utc``             timestamp                The broker's clock, exact to the millisecond
    ``expires_at_utc``                timestamp                Null if it never expires, and in a dead-letter queue
    ``dead_letter_reason``,           string                   Set in a dead-letter queue and on copies from one
    ``dead_letter_error_description``
    ``dead_letter_source``
    ``enqueued_sequence_number``      bigint                   Its number in the entity where it was first enqueued
    ``body_type``                     string                   ``sequence`` or ``value`` for JSON bodies, null for bytes
    ``data_sections``                 array<int>               Lengths of the body's data sections, if there are several
    ``application_properties``        map<string,string>       Includes foreign headers; tagged values as plain text,
                                                               decimals with all digits (``decimal_property``)
    ``application_properties_json``   string                   Its header as written, valid or not
    ``headers``                       array<struct>            The record's headers, raw
    ================================= ======================== ======================================================

    With ``state`` there are three columns more, by the last checkpoints of the entity's ledgers, which upkeep writes to Kafka
    every five seconds. A message that was settled since counts as unsettled. Deferred and scheduled messages whose records are
    kept apart from their log are read, too. Properties that were changed when a message was abandoned or deferred are those of
    ``application_properties`` and ``application_properties_json``; ``headers`` has them as they were stored. The result is as
    of this call: messages that come later are not in it, and a job fails if upkeep has deleted records since then whose
    messages were not settled; call ``read`` again then.

    ================================= ======================== ======================================================
    Column                            Type                     Meaning
    ================================= ======================== ======================================================
    ``settled``                       boolean                  Whether it was completed, dead-lettered, forwarded, or is
                                                               a duplicate. The column's metadata have
                                                               ``checkpoint_time``, that of the oldest checkpoint
    ``state``                         string                   ``active``, ``deferred`` or ``scheduled``; null if settled
    ``checkpoint_time``               timestamp                When the checkpoint of its partition was written, which is
                                                               when that ledger changed; null if there is none yet
    ================================= ======================== ======================================================

    Args:
        spark: A session with the Kafka connector, as ``session`` builds.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        subscription: The name of a subscription of the topic, to read only its messages. Its rules at the time of this call
            select them; for messages sent before the rules were changed, the earlier rules do. Default all records of the
            topic's log: the messages sent, and copies for one subscription, with ``sb-addressed-to`` in ``headers``.
        sub_queue: ``"deadletter"`` for the dead-letter queue, which is empty until a message is dead-lettered.
        state: ``unsettled`` for messages that are not settled, ``settled``, or ``all`` to read both with their states; default
            all, without their states.
        starting_offsets: The first offset to read of each partition: ``earliest`` (the default), JSON as Spark's Kafka source
            takes it, or a mapping of some partitions; the others are read from their beginning.
        starting_timestamp: Read messages that were enqueued at this time or later; a time without a zone is in UTC.
        starting_sequence_numbers: The first message to read, of one or several partitions.
        ending_offsets: The offset behind the last one to read of each partition: ``latest`` (the default), JSON, or a mapping.
        ending_timestamp: Read messages that were enqueued before this time.
        ending_sequence_numbers: The last message to read, of one or several partitions.
        fail_on_data_loss: Whether a query fails if records that it should read were deleted.
        min_partitions: The minimum number of Spark tasks to read with; default one for each entity partition.
        default_time_to_live: The default of the queue or topic, for ``expires_at_utc``; default for ever. For a subscription,
            the shortest of this, its own and its topic's default applies.
        kafka_options: Options of Kafka's Java client for Spark, such as those of OAUTHBEARER, which count before those of the
            connection string.
        environment: ``KAFKABUS_…`` variables for parts that the string leaves out; default those of the process.

    Raises:
        ValueError: The connection string, or a name, is malformed; or the string is for another entity; or a rule of the
            subscription that counts for any message has an action.
        EntityNotFoundError: Kafka has no such topic, or there is no such subscription.
        UnsupportedFormatError: The namespace is stored in a format that this version does not read.
        NamespaceUnreachableError: Kafka does not answer.
        ConnectorMissingError: The session has no Kafka connector.
        SparkError: ``state`` is given, and the session is one of Spark Connect.
    """
    selection = None if state is None else Selection.parse(state)
    location = location_of(connection, environment, kafka_options)
    path = entity_path(location, entity, sub_queue, subscription)
    log = _Log.open(spark, location, path, default_time_to_live)
    options = {
        **log.options(fail_on_data_loss=fail_on_data_loss),
        **log.position("starting", starting_offsets, starting_timestamp, starting_sequence_numbers),
        **log.position("ending", ending_offsets, ending_timestamp, ending_sequence_numbers),
    }
    if min_partitions is not None:
        options["minPartitions"] = str(min_partitions)
    if selection is not None:
        description = log.subscription or read_descriptions(spark, location, path.name)[0]
        selected = select(spark, location, path, description, selection, options if log.is_there else None)
        if CHANGES not in selected.columns:
            return log.decode(selected, *COLUMNS)
        # A subscription's rules are not evaluated again.
        return with_changes(log.decode(selected, *COLUMNS, CHANGES), CHANGES)
    return log.decode(load_records(spark, options) if log.is_there else spark.createDataFrame([], KAFKA_SCHEMA))


def read_stream(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    subscription: str | None = None,
    sub_queue: SubQueue | str | None = None,
    starting_offsets: Offsets | None = None,
    starting_timestamp: datetime | None = None,
    starting_sequence_numbers: int | Iterable[int] | None = None,
    fail_on_data_loss: bool = True,
    max_messages_per_trigger: int | None = None,
    checkpoint_location: str | None = None,
    default_time_to_live: timedelta | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a stream of an entity's messages: those that Kafka holds, then new ones; settled messages are included.

    Columns and errors are those of ``read``.

    Args:
        spark: A session with the Kafka connector, as ``session`` builds.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic.
        subscription: The name of a subscription of the topic, to read only its messages. Its rules at the time of this call
            select them; for messages sent before the rules were changed, the earlier rules do. Default all records of the
            topic's log: the messages sent, and copies for one subscription, with ``sb-addressed-to`` in ``headers``.
        sub_queue: ``"deadletter"`` for the dead-letter queue, which may still have no message.
        starting_offsets: The offsets at which a query without a checkpoint begins: ``earliest`` (the default), ``latest``, JSON
            as Spark's Kafka source takes it, or a mapping of some partitions; the others begin at their beginning.
        starting_timestamp: Such a query begins with messages that were enqueued at this time or later.
        starting_sequence_numbers: Such a query begins with these messages, of one or several partitions.
        fail_on_data_loss: Whether the query fails if records that it should read were deleted: settled records are trimmed
            once they are older than the queue's ``settled_retention``.
        max_messages_per_trigger: The maximum number of messages in a micro-batch; default no limit.
        checkpoint_location: The folder that the query is given as ``checkpointLocation``. The id of the Kafka topic is noted
            there, because Spark's checkpoint has the topic's name alone: if the entity was deleted and created again, a query
            would go on at the old offsets, and skip messages in silence. Default none: then nothing is compared.
        default_time_to_live: The default of the queue or topic, for ``expires_at_utc``; default for ever. For a subscription,
            the shortest of this, its own and its topic's default applies.
        kafka_options: Options of Kafka's Java client for Spark, such as those of OAUTHBEARER, which count before those of the
            connection string.
        environment: ``KAFKABUS_…`` variables for parts that the string leaves out; default those of the process.

    Raises:
        EntityRecreatedError: ``checkpoint_location`` is of a query that read an earlier entity of this name. For other errors
            see ``read``.
    """
    location = location_of(connection, environment, kafka_options)
    log = _Log.open(spark, location, entity_path(location, entity, sub_queue, subscription), default_time_to_live)
    options = {
        # For a stream, Spark's own default is the end of the log.
        "startingOffsets": EARLIEST,
        **log.options(fail_on_data_loss=fail_on_data_loss),
        **log.position("starting", starting_offsets, starting_timestamp, starting_sequence_numbers),
    }
    if checkpoint_location is not None:
        note_topic(spark, location, topic_name(location.namespace, log.path), checkpoint_location)
    if not log.is_there:
        # A pattern finds the topic once it is created.
        options["subscribePattern"] = re.escape(options.pop("subscribe"))
    if max_messages_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(max_messages_per_trigger)
    return log.decode(spark.readStream.format("kafka").options(**options).load())


def partition_count(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    sub_queue: SubQueue | str | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Return how many partitions an entity has; arguments and errors are those of ``read``."""
    location = location_of(connection, environment, kafka_options)
    partitions, _ = look_up(spark, location, entity_path(location, entity, sub_queue))
    return partitions


def entity_path(
    location: SparkLocation, entity: str, sub_queue: SubQueue | str | None, subscription: str | None = None
) -> EntityPath:
    """Return the entity that the arguments name.

    Raises:
        ValueError: A name or the sub-queue is malformed, or the connection string is for another entity.
    """
    try:
        wanted = SubQueue(sub_queue or "")
    except ValueError:
        choices = [choice.value for choice in SubQueue if choice.value]
        raise ValueError(f"sub_queue {sub_queue!r}: choose from {choices}, or None for the entity itself") from None
    name = check_entity(entity) if subscription is None else subscription_name(entity, subscription)
    if location.entity_path is not None and location.entity_path.lower() not in {entity.lower(), name.lower()}:
        raise ValueError(f"the connection string is for {location.entity_path!r} alone (EntityPath), not for {name!r}")
    return EntityPath(name, wanted)


@dataclass(frozen=True)
class _Log:
    """The log in which an entity's messages are.

    Attributes:
        location: The namespace, and the Kafka cluster that holds it.
        path: The entity that owns the log.
        partitions: The number of its partitions.
        is_there: Whether its topic exists.
        default_time_to_live: The default time to live of its messages; None means for ever.
        subscription: The description of the subscription that gets some of the messages; None if all are wanted.
        wanted: The selection of these.
    """

    location: SparkLocation
    path: EntityPath
    partitions: int
    is_there: bool
    default_time_to_live: timedelta | None
    subscription: SubscriptionDescription | None = None
    wanted: Choice | None = None

    @classmethod
    def open(
        cls, spark: SparkSession, location: SparkLocation, path: EntityPath, default_time_to_live: timedelta | None
    ) -> _Log:
        """Return the log of an entity.

        Raises:
            EntityNotFoundError: The entity does not exist.
            UnsupportedFormatError: The namespace is stored in a format that this version does not read.
            ValueError: A rule of the subscription has an action, which Spark cannot compute.
        """
        check_connector(spark)
        check_format(spark, location)
        if path.log == path:
            return cls(location, path, *look_up(spark, location, path), default_time_to_live)
        found = described_subscription(spark, location, path.name)
        lives = [life for life in (found.default_message_time_to_live, found.topic_time_to_live) if life < FOREVER]
        if default_time_to_live is not None:
            lives.append(default_time_to_live)
        wanted = choice(found)
        there = look_up(spark, location, path.log)
        return cls(location, path.log, *there, min(lives, default=None), found, wanted)

    def options(self, *, fail_on_data_loss: bool) -> dict[str, str]:
        """Return the options of Spark's Kafka source for all of the log."""
        return {
            **connector_options(self.location, {**FETCHING, "isolation.level": "read_committed"}),
            "subscribe": topic_name(self.location.namespace, self.path),
            "includeHeaders": "true",
            "failOnDataLoss": str(fail_on_data_loss).lower(),
        }

    def position(
        self,
        side: Side,
        offsets: Offsets | None,
        timestamp: datetime | None,
        sequence_numbers: int | Iterable[int] | None,
    ) -> dict[str, str]:
        """Return the options for one side of a part of the log; see ``positions.position``."""
        topic = topic_name(self.location.namespace, self.path)
        return position(side, topic, self.partitions, offsets, timestamp, sequence_numbers)

    def decode(self, source: DataFrame, *also: str) -> DataFrame:
        """Return the entity's columns over records of the log, and more columns of these."""
        return decode_records(
            source,
            default_time_to_live=self.default_time_to_live,
            expires=not self.path.is_dead_letter,
            wanted=self.wanted,
            also=also,
        )
