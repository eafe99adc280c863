"""The descriptions of a namespace and its entities, as Kafka stores them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from kafkabus_mapping.entities import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    read_description,
)
from kafkabus_mapping.formats import unreadable
from kafkabus_mapping.names import compacted_topic_name, split_subscription
from kafkabus_mapping.namespaces import NamespaceDescription
from kafkabus_spark.compacted import latest
from kafkabus_spark.errors import EntityNotFoundError, UnsupportedFormatError
from kafkabus_spark.kafka import SparkLocation, Version, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT_AGE: Final = 60.0
"""For how long, in seconds, the format of a namespace counts as known; to look it up takes a request to Kafka, or a job."""

_NAMESPACE: Final = "$namespace"
_checked: dict[tuple[str, str], float] = {}


def check_format(spark: SparkSession, location: SparkLocation) -> None:
    """Check that this version reads the format in which a namespace is stored.

    Args:
        spark: A session that can read Kafka.
        location: The namespace, and the Kafka cluster that holds it.

    Raises:
        UnsupportedFormatError: It does not.
        NamespaceUnreachableError: Kafka does not answer.
    """
    place = location.bootstrap_servers, location.namespace
    if time.monotonic() - _checked.get(place, float("-inf")) < FORMAT_AGE:
        return
    # The topics of a namespace without entities may be a plain producer's.
    stored = _load_stored(spark, location, _NAMESPACE)
    if stored is not None:
        reason = unreadable(location.namespace, stored.get(_NAMESPACE))
        if reason is not None:
            raise UnsupportedFormatError(reason)
    _checked[place] = time.monotonic()


def described_subscription(spark: SparkSession, location: SparkLocation, name: str) -> SubscriptionDescription:
    """Return the description of a subscription.

    Args:
        spark: A session that can read Kafka.
        location: The namespace, and the Kafka cluster that holds it.
        name: The name of the subscription, with that of its topic.

    Raises:
        EntityNotFoundError: There is no such subscription.
        NamespaceUnreachableError: Kafka does not answer.
    """
    found = read_descriptions(spark, location, name)[0]
    if isinstance(found, SubscriptionDescription):
        return found
    raise _not_found_error(location, name)


def read_descriptions(
    spark: SparkSession, location: SparkLocation, name: str
) -> tuple[QueueDescription | TopicDescription | SubscriptionDescription, NamespaceDescription]:
    """Return the descriptions of an entity and of its namespace.

    Args:
        spark: A session that can read Kafka.
        location: The namespace, and the Kafka cluster that holds it.
        name: The name of the queue, topic or subscription.

    Raises:
        EntityNotFoundError: There is no such entity.
        NamespaceUnreachableError: Kafka does not answer.
    """
    key = name.lower()
    stored = _load_stored(spark, location, key, _NAMESPACE)
    if stored is None or key not in stored:
        raise _not_found_error(location, name)
    found = read_description(stored[key])
    if _NAMESPACE in stored:
        return found, NamespaceDescription.model_validate_json(stored[_NAMESPACE])
    return found, NamespaceDescription(created_at=found.created_at, updated_at=found.created_at)


def _not_found_error(location: SparkLocation, name: str) -> EntityNotFoundError:
    kind = "queue or topic" if split_subscription(name) is None else "subscription"
    create = "create_queue" if split_subscription(name) is None else "create_subscription"
    return EntityNotFoundError(
        f"namespace {location.namespace!r} at {location.bootstrap_servers} has no {kind} {name!r}: check the names, or create "
        f"it with ServiceBusAdministrationClient.{create}"
    )


def _load_stored(spark: SparkSession, location: SparkLocation, *keys: str) -> dict[str, str] | None:
    """Return the descriptions that are stored under keys, without those that do not exist; None if the namespace is new.

    To read them takes a job of Spark's, which is saved if none was written since.
    """
    topic, place = _topic(location), (location.bootstrap_servers, location.namespace)
    version = version_of(spark, location, topic)
    if version is None:
        return None
    known = _known.get(place)
    if known is None or known.version != version:
        known = _known[place] = _Known(version, {})
    missing = [key for key in keys if key not in known.texts]
    if missing:
        found = latest(spark, location, topic, F.col("key").isin(*missing))
        known.texts.update({key: found[key][0] if key in found else None for key in missing})
    return {key: text for key in keys if (text := known.texts[key]) is not None}


@dataclass(frozen=True)
class _Known:
    """The descriptions of a namespace that were read.

    Attributes:
        version: The version of their topic before they were read.
        texts: The descriptions by their keys; None for a key that has none.
    """

    version: Version
    texts: dict[str, str | None]


_known: dict[tuple[str, str], _Known] = {}
"""By the address of Kafka and the name of the namespace."""


def _topic(location: SparkLocation) -> str:
    return compacted_topic_name(location.namespace, "descriptions")
