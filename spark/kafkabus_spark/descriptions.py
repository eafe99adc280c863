"""The descriptions of a namespace and its entities, as Kafka stores them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kafkabus_mapping.connection import KafkaLocation
from kafkabus_mapping.entities import SubscriptionDescription, read_description
from kafkabus_mapping.formats import unreadable
from kafkabus_mapping.names import compacted_topic_name
from kafkabus_spark.errors import EntityNotFoundError, NamespaceFormatError
from kafkabus_spark.kafka import has_topic, java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT_AGE: Final = 60.0
"""For how long, in seconds, the format of a namespace counts as known; to look it up takes a job of Spark's."""

_NAMESPACE: Final = "$namespace"
_checked: dict[tuple[str, str], float] = {}


def check_format(spark: SparkSession, location: KafkaLocation) -> None:
    """Check that this version reads the format in which a namespace is stored.

    Args:
        spark: A session that can read Kafka.
        location: The namespace, and the Kafka cluster that holds it.

    Raises:
        NamespaceFormatError: It does not.
        NamespaceUnreachableError: Kafka does not answer.
    """
    place = location.bootstrap_servers, location.namespace
    if time.monotonic() - _checked.get(place, float("-inf")) < FORMAT_AGE:
        return
    # The topics of a namespace without entities may be a plain producer's.
    if has_topic(spark, location, _topic(location)):
        reason = unreadable(location.namespace, _stored(spark, location, _NAMESPACE))
        if reason is not None:
            raise NamespaceFormatError(reason)
    _checked[place] = time.monotonic()


def described_subscription(spark: SparkSession, location: KafkaLocation, name: str) -> SubscriptionDescription:
    """Return the description of a subscription.

    Args:
        spark: A session that can read Kafka.
        location: The namespace, and the Kafka cluster that holds it.
        name: The name of the subscription, with that of its topic.

    Raises:
        EntityNotFoundError: The subscription does not exist.
    """
    text = _stored(spark, location, name.lower())
    found = None if text is None else read_description(text)
    if not isinstance(found, SubscriptionDescription):
        raise EntityNotFoundError(
            f"namespace {location.namespace!r} has no subscription {name!r}: check the names, or create it with "
            "ServiceBusAdministrationClient.create_subscription"
        )
    return found


def _stored(spark: SparkSession, location: KafkaLocation, key: str) -> str | None:
    """Return the last description that is stored under a key; None if there is none, or it was deleted."""
    options = {f"kafka.{name}": value for name, value in java_options(location).items()}
    described = (
        spark.read.format("kafka")
        .options(**options)
        .option("subscribe", _topic(location))
        .load()
        .where(F.col("key") == F.lit(key.encode()))
        .orderBy(F.desc("offset"))
        .select("value")
        .head()
    )
    return None if described is None or described["value"] is None else bytes(described["value"]).decode()


def _topic(location: KafkaLocation) -> str:
    return compacted_topic_name(location.namespace, "descriptions")
