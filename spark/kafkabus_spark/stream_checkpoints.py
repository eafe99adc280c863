"""Which topic a stream's checkpoint is of: Spark's own offsets name it, and a topic that is created again has the same name."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from kafkabus_spark.errors import EntityRecreatedError
from kafkabus_spark.hadoop import Hadoop
from kafkabus_spark.kafka import SparkLocation, topic_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGER: Final = logging.getLogger("kafkabus_spark")
OFFSETS: Final = "offsets"
"""Spark's folder of the offsets of a stream that has begun; before, a note says nothing."""
NOTE: Final = "kafkabus-{topic}.json"
"""The file, in the folder of a checkpoint, that holds the id of a topic that its stream reads."""


def note_topic(spark: SparkSession, location: SparkLocation, topic: str, folder: str) -> None:
    """Note which topic a stream with this checkpoint reads, if that is not noted yet, or check that it is the same.

    A stream that began before this was noted, or through Spark Connect, is not checked.

    Args:
        spark: The session.
        location: The Kafka cluster.
        topic: The name of the topic.
        folder: The folder of the checkpoint.

    Raises:
        EntityRecreatedError: The checkpoint is of an earlier topic of this name.
    """
    if getattr(spark, "_jvm", None) is None:
        LOGGER.warning("checkpoint_unchecked folder=%s: Spark Connect gives no access to its files", folder)
        return
    files, present = Hadoop(spark, folder), topic_id(spark, location, topic)
    if files.exists(NOTE.format(topic=topic)) and files.exists(OFFSETS):
        check_topic(files, topic, present)
    elif present:
        files.write(NOTE.format(topic=topic), json.dumps({"topic_id": present}))


def check_topic(files: Hadoop, topic: str, present: str) -> None:
    """Check that a checkpoint, if that is noted, is of a topic.

    Args:
        files: The files of the checkpoint.
        topic: The name of the topic.
        present: The id of the topic that has that name now; empty if there is none.

    Raises:
        EntityRecreatedError: It is of an earlier one.
    """
    note = NOTE.format(topic=topic)
    if not files.exists(note):
        return
    noted: str = json.loads(files.read(note))["topic_id"]
    if noted == present:
        return
    since = f"created again (id {noted}, now {present})" if present else "not created again"
    raise EntityRecreatedError(
        f"checkpoint_location {files.folder!r} is of topic {topic} before it was deleted and {since}: a stream that goes on "
        "there would skip messages, as its offsets are of others. Name another folder; delete this one if nothing needs it"
    )
