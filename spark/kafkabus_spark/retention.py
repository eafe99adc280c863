"""How long the messages that a stream has not read yet stay in Kafka: settled ones stay for ``settled_retention``."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming.listener import StreamingQueryListener
from typing_extensions import override

from kafkabus_mapping.names import EntityPath, SubQueue, topic_name
from kafkabus_spark.descriptions import read_descriptions
from kafkabus_spark.hadoop import Hadoop
from kafkabus_spark.kafka import SparkLocation, location_of, log_places, topic_id
from kafkabus_spark.reader import entity_path
from kafkabus_spark.stream_checkpoints import check_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

LOGGER: Final = logging.getLogger("kafkabus_spark")
SOON: Final = 0.2
"""Messages are endangered if less than this part of ``settled_retention`` is left of their time."""
CHECKED_EVERY: Final = 60.0
"""How often, in seconds, a listener looks at the logs."""


@dataclass(frozen=True)
class Unread:
    """How much a stream has not read yet of one partition.

    Attributes:
        partition: The partition.
        next_offset: The offset at which the stream goes on.
        lost: How many records were deleted before the stream read them.
        endangered: How many records it has not read that may soon be deleted if their messages are settled.
        left: How many records it has not read, those included.
    """

    partition: int
    next_offset: int
    lost: int
    endangered: int
    left: int


def check_retention(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    checkpoint_location: str,
    subscription: str | None = None,
    sub_queue: SubQueue | str | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Unread]:
    """Return how much a stream, running or stopped, has not read yet; log a warning if some of it is lost or endangered.

    Settled messages are deleted once they are older than the entity's ``settled_retention``, a day by default. A stream that
    goes on after that fails, or skips them if it was begun with ``fail_on_data_loss=False``. Messages that are not settled
    stay.

    Args:
        spark: A session with the Kafka connector.
        connection: The namespace's connection string.
        entity: The name of the queue or topic.
        checkpoint_location: The folder of the stream's checkpoint.
        subscription: The subscription that the stream reads, if any.
        sub_queue: ``"deadletter"`` for the dead-letter queue.
        kafka_options: As for ``read``.
        environment: As for ``read``.

    Raises:
        ValueError: The folder holds no checkpoint of a stream that reads this entity; or the connection string, or a name, is
            malformed.
        EntityRecreatedError: The checkpoint is of an earlier entity of this name, if ``read_stream`` noted that.
        SparkError: See ``read``.
    """
    location = location_of(connection, environment, kafka_options)
    log = _Log.open(spark, location, entity_path(location, entity, sub_queue, subscription))
    check_topic(Hadoop(spark, checkpoint_location), log.topic, log.topic_id)
    return log.look(spark, _stored_offsets(spark, checkpoint_location, log.topic))


class RetentionListener(StreamingQueryListener):
    """Logs a warning when messages that a stream of this session has not read yet are lost or endangered.

    It also logs an error, once, when the entity was deleted and created again: the stream then reads other messages.

    ``spark.streams.addListener(RetentionListener(spark, connection, "orders"))`` makes Spark call it. It looks at the logs once
    a minute. The arguments are those of ``check_retention``.
    """

    def __init__(
        self,
        spark: SparkSession,
        connection: str,
        entity: str,
        *,
        subscription: str | None = None,
        sub_queue: SubQueue | str | None = None,
        kafka_options: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        location = location_of(connection, environment, kafka_options)
        self._spark = spark
        self._log = _Log.open(spark, location, entity_path(location, entity, sub_queue, subscription))
        self._checked_at: dict[str, float] = {}
        self._is_recreated = False

    @override
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Look whether the entity is the one that it was; nothing is known yet of what the query has read."""
        self._look_at_topic()

    def _look_at_topic(self) -> None:
        present = topic_id(self._spark, self._log.location, self._log.topic)
        if present != self._log.topic_id and not self._is_recreated:
            self._is_recreated = True
            LOGGER.error(
                "entity_recreated entity=%s present=%s: it was deleted since this listener was made; begin its streams again, "
                "with other checkpoints",
                *(self._log.path, bool(present)),
            )

    @override
    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Look at the logs, if the last look was a while ago."""
        query, now = str(event.progress.id), time.monotonic()
        if now - self._checked_at.get(query, float("-inf")) < CHECKED_EVERY:
            return
        self._checked_at[query] = now
        self._look_at_topic()
        for source in event.progress.sources:
            offsets = _offsets_in(source.endOffset, self._log.topic)
            if offsets:
                self._log.look(self._spark, offsets)

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query."""
        self._checked_at.pop(str(event.id), None)


@dataclass(frozen=True)
class _Log:
    """A log, and for how long its settled messages stay there."""

    location: SparkLocation
    path: EntityPath
    topic: str
    topic_id: str
    retention: timedelta

    @classmethod
    def open(cls, spark: SparkSession, location: SparkLocation, path: EntityPath) -> _Log:
        retention = read_descriptions(spark, location, path.name)[0].settled_retention
        topic = topic_name(location.namespace, path.log)
        return cls(location, path, topic, topic_id(spark, location, topic), retention)

    def look(self, spark: SparkSession, offsets: Mapping[int, int]) -> list[Unread]:
        """Return how much has not been read from these offsets on; log a warning for what may not be read any more."""
        moment = datetime.now(timezone.utc) - self.retention * (1 - SOON)
        places = log_places(spark, self.location, self.topic, moment)
        found = [
            Unread(
                partition,
                following,
                lost=max(0, place.start - following),
                endangered=max(0, place.young - max(following, place.start)),
                left=max(0, place.end - max(following, place.start)),
            )
            for partition, place in enumerate(places)
            if (following := offsets.get(partition)) is not None
        ]
        lost, endangered = sum(gap.lost for gap in found), sum(gap.endangered for gap in found)
        if lost:
            LOGGER.warning(
                "messages_lost entity=%s count=%d: they were deleted before the stream read them", self.path, lost
            )
        if endangered:
            LOGGER.warning(
                "messages_endangered entity=%s count=%d settled_retention=%s: the stream has not read them, and less than a "
                "fifth of that time is left; run it, or give the entity a longer settled_retention",
                *(self.path, endangered, self.retention),
            )
        return found


def _stored_offsets(spark: SparkSession, folder: str, topic: str) -> dict[int, int]:
    """Return the offsets at which a stream goes on, from its checkpoint.

    Raises:
        ValueError: There is none.
    """
    jvm: Any = spark._jvm
    context: Any = spark._jsc
    try:
        path = jvm.org.apache.hadoop.fs.Path(f"{folder}/commits")
        files = path.getFileSystem(context.hadoopConfiguration()).listStatus(path)
        done = [int(name) for name in (status.getPath().getName() for status in files) if name.isdigit()]
    except Py4JJavaError:
        done = []
    if not done:
        raise ValueError(f"checkpoint_location {folder!r} holds no micro-batch that was done: name the stream's folder")
    lines = [row["value"] for row in spark.read.text(f"{folder}/offsets/{max(done)}").collect()]
    for line in lines:
        offsets = _offsets_in(line, topic)
        if offsets:
            return offsets
    raise ValueError(f"checkpoint_location {folder!r} is of a stream that does not read {topic!r}")


def _offsets_in(text: str, topic: str) -> dict[int, int]:
    """Return the offsets of a topic in the text that a source of Spark's writes; empty if the source is none of Kafka's."""
    try:
        found = json.loads(text)
        return {int(partition): int(offset) for partition, offset in found[topic].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
