"""Messages that are sent once more: those of a time range, and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from kafkabus_mapping.names import SubQueue
from kafkabus_spark.reader import read, read_stream
from kafkabus_spark.reconciliation import is_scheduled_copy
from kafkabus_spark.writer import write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kafkabus_spark.writer import Reject

AVAILABLE_NOW: Final[Mapping[str, str | bool]] = {"availableNow": True}
"""The trigger with which a query ends once it has read what is there."""

_NUMBER: Final = "sequence_number"

Transform = Callable[["DataFrame"], "DataFrame"]
"""A function that changes messages, or leaves some out."""
Settle = Callable[[Sequence[int]], None]
"""A function that settles dead letters, by their sequence numbers in the dead-letter queue."""


def replay(
    spark: SparkSession,
    connection: str,
    entity: str,
    target: str,
    *,
    subscription: str | None = None,
    sub_queue: SubQueue | str | None = None,
    starting_timestamp: datetime | None = None,
    ending_timestamp: datetime | None = None,
    where: Column | None = None,
    transform: Transform | None = None,
    rejected: Reject | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Send the messages of a time range to another entity, as they were sent first; return how many these are.

    They keep their ids, keys, sessions and properties, and get new sequence numbers; their times to live begin again. A
    message that was scheduled is sent if its time came in the range. Until then Spark holds the messages, on disk if memory
    is short.

    Args:
        spark: A session with the Kafka connector.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue or topic to read.
        target: The name of the queue or topic to write. If it detects duplicates, it drops ids that it got within its window.
        subscription: As for ``read``.
        sub_queue: As for ``read``.
        starting_timestamp: Messages that were enqueued at this time or later; a time without a zone is in UTC.
        ending_timestamp: Messages that were enqueued before this time.
        where: A condition over the columns of ``read``; default all messages.
        transform: A function that changes the messages, as a frame with the columns of ``read``, into those to send.
        rejected: As for ``write``.
        kafka_options: As for ``read``.
        environment: As for ``read``.

    Raises:
        ValueError: See ``read`` and ``write``.
        SparkError: See ``read`` and ``write``; if messages break a rule of the target, nothing was sent.
    """
    messages = read(
        spark,
        connection,
        entity,
        subscription=subscription,
        sub_queue=sub_queue,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        kafka_options=kafka_options,
        environment=environment,
    ).where(~is_scheduled_copy())
    if where is not None:
        messages = messages.where(where)
    if transform is not None:
        messages = transform(messages)
    messages.persist()
    try:
        aside: list[int] = []
        write(
            messages,
            connection,
            target,
            rejected=_and_then(rejected, lambda broken: aside.append(broken.count())),
            kafka_options=kafka_options,
            environment=environment,
        )
        return messages.count() - sum(aside)
    finally:
        messages.unpersist()


def resubmit(
    spark: SparkSession,
    connection: str,
    entity: str,
    *,
    checkpoint_location: str,
    subscription: str | None = None,
    target: str | None = None,
    transform: Transform | None = None,
    settle: Settle | None = None,
    rejected: Reject | None = None,
    trigger: Mapping[str, str | bool] = AVAILABLE_NOW,
    max_messages_per_trigger: int | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Send dead letters to their entity again, each once by the checkpoint; return the running query.

    Spark settles no message. Without ``settle`` the dead letters stay in the dead-letter queue, and the next query with the
    same checkpoint goes on behind them. A query that ends in the middle of a micro-batch sends it again; an entity that detects
    duplicates drops what it got before, because the messages keep their ids.

    Args:
        spark: A session with the Kafka connector.
        connection: The namespace's connection string; it need not name Redis.
        entity: The name of the queue, or of the subscription's topic.
        checkpoint_location: The folder in which the query keeps what it has sent.
        subscription: The name of a subscription of the topic.
        target: The name of the queue or topic to send to; default ``entity``, from which a topic's message reaches all
            subscriptions.
        transform: A function that mends messages: it gets a frame with the columns of ``read``, and returns those to send.
            Rows that it leaves out stay in the dead-letter queue.
        settle: A function that gets the sequence numbers of the dead letters of a micro-batch that were sent; the column
            ``sequence_number`` must still be there after ``transform``.
        rejected: As for ``write_stream``.
        trigger: As for ``write_stream``; default until all dead letters are sent that are there.
        max_messages_per_trigger: The maximum number of messages in a micro-batch; default no limit.
        kafka_options: As for ``read``.
        environment: As for ``read``.

    Raises:
        ValueError: See ``read``.
        SparkError: See ``read``; those of ``write`` end the query.
    """
    dead = read_stream(
        spark,
        connection,
        entity,
        subscription=subscription,
        sub_queue=SubQueue.DEAD_LETTER,
        max_messages_per_trigger=max_messages_per_trigger,
        checkpoint_location=checkpoint_location,
        kafka_options=kafka_options,
        environment=environment,
    )

    def send(batch: DataFrame, _number: int) -> None:
        messages = batch if transform is None else transform(batch)
        if settle is not None and _NUMBER not in messages.columns:
            raise ValueError(f"transform dropped the column {_NUMBER!r}, which settle needs; nothing was sent: keep it")
        messages.persist()
        try:
            aside: set[int] = set()
            noted = _and_then(rejected, lambda broken: aside.update(_numbers(broken)))
            write(
                messages,
                connection,
                target or entity,
                rejected=rejected if settle is None else noted,
                kafka_options=kafka_options,
                environment=environment,
            )
            if settle is not None:
                settle(sorted(_numbers(messages) - aside))
        finally:
            messages.unpersist()

    query = dead.writeStream.foreachBatch(send).option("checkpointLocation", checkpoint_location)
    return query.trigger(**trigger).start()  # type: ignore[arg-type]  # pyspark has one signature for each trigger


def _and_then(rejected: Reject | None, note: Reject) -> Reject | None:
    """Return a function that gives rows that break a rule to another one as well; None if there is no place for them."""
    if rejected is None:
        return None

    def both(broken: DataFrame) -> None:
        rejected(broken)
        note(broken)

    return both


def _numbers(messages: DataFrame) -> set[int]:
    return {row[_NUMBER] for row in messages.select(_NUMBER).collect()}
