"""Questions to a Kafka cluster, and trials of its user's rights, for ``kafkabus doctor``; nothing of an entity is changed."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from typing_extensions import override

from kafkabus._core.exceptions import ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.record import as_bytes, size_of
from kafkabus._core.settings import Settings
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_options import (
    LOGGER,
    PASSING,
    Options,
    common_options,
    producer_options,
    prompt_consumer_options,
    transactional_options,
)
from kafkabus._kafka.errors import NO_RIGHTS, FirstContact, no_rights
from kafkabus._kafka.topic_admin import ENTITY_TOPIC, LOGS_AT_ONCE, Topics
from kafkabus_mapping.names import compacted_topic_name

T = TypeVar("T")

TOPICS_AT_ONCE = 500
"""How many topics one request describes."""
PROBES = 16
"""At how many places of a log the size of its records is sampled."""
_QUIET: Options = {"log_level": 0}
"""The findings say what Kafka's client would log."""
_FETCH_VERSION = re.compile(r"ApiKey Fetch \(1\) Versions \d+\.\.(\d+)")
_REPORTED_WITHIN = 1.0
"""How long Kafka's client may take to report the versions of a broker that it reached, in seconds."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address that a broker advertises to clients.

    Attributes:
        number: The broker's id.
        host: Its host.
        port: Its port.
    """

    number: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """A partition as the cluster knows it.

    Attributes:
        number: The partition's number.
        has_leader: Whether a broker leads it.
        replicas: How many replicas it has.
        in_sync: How many of them are in sync.
    """

    number: int
    has_leader: bool
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the cluster knows it.

    Attributes:
        name: Its name.
        topic_id: Its id.
        partitions: Its partitions.
        operations: The names of the operations that the user may do with it, as in ``AclOperation``.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionReplicas, ...]
    operations: frozenset[str]


@dataclass(frozen=True, slots=True)
class Tick:
    """A reading of a broker's clock.

    Attributes:
        before_ms: The client's clock before it asked, ms since 1970.
        broker_ms: The broker's clock when it answered, ms since 1970.
        after_ms: The client's clock when the answer was there, ms since 1970.
    """

    before_ms: float
    broker_ms: float
    after_ms: float

    @property
    def ahead_ms(self) -> tuple[float, float]:
        """By how many ms the broker's clock is ahead of the client's, and by how many ms that may be wrong."""
        return self.broker_ms - (self.before_ms + self.after_ms) / 2, (self.after_ms - self.before_ms) / 2


GONE_OR_HIDDEN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED})
"""Kafka's answers about topics that do not exist, or that the user may not describe."""


class _KafkaAccess:
    """The clients of a cluster that a probe uses.

    Args:
        settings: Settings with Kafka's address.
        timeout: The longest time for one call, in seconds.

    Attributes:
        settings: Settings with Kafka's address.
        timeout: The longest time for one call, in seconds.
        admin: Kafka's administration client.
        topics: The namespace's topics.
    """

    def __init__(self, settings: Settings, timeout: float) -> None:
        self.settings = settings
        self.timeout = timeout
        self.admin = AdminClient(common_options(settings) | _QUIET, logger=LOGGER)
        self.topics = Topics(settings, timeout=timeout)

    def read(self, name: str, partition: int, start: int) -> Iterator[Any]:
        """Yield the committed records of a log from an offset to its end."""
        consumer = Consumer(prompt_consumer_options(self.settings) | _QUIET, logger=LOGGER)
        try:
            consumer.assign([TopicPartition(name, partition, start)])
            deadline = time.monotonic() + self.timeout
            while (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(left)
                error = None if message is None else message.error()
                if message is not None and error is None:
                    yield message
                elif error is not None and error.code() == error_codes.PARTITION_EOF:
                    return
                elif error is not None and error.code() in NO_RIGHTS:
                    raise no_rights(self.settings.bootstrap_servers, f"read topic {name!r}", error)
                elif error is not None and error.code() not in PASSING:
                    raise ServiceBusError(f"reading {name}/{partition} failed: {error.str()}")
            raise ServiceBusCommunicationError(
                f"Kafka {self.settings.bootstrap_servers} did not answer in time: {name}/{partition} was not read to its "
                f"end within {self.timeout:g} s"
            )
        finally:
            consumer.close()

    @contextmanager
    def explain_errors(self, action: str, *, but_for: frozenset[int] | set[int] = frozenset()) -> Generator[list[int]]:
        """Raise the SDK's errors for Kafka's; note the codes of those that are expected."""
        passed: list[int] = []
        try:
            yield passed
        except KafkaException as error:
            cause = error.args[0]
            if not isinstance(cause, KafkaError) or cause.code() not in but_for:
                raise self.topics.translate(error, action) from error
            passed.append(cause.code())


class KafkaTrials:
    """Tries what the user may do: only with what is the probe's own, or without doing it.

    Args:
        access: The clients of the cluster.
        clock: This machine's clock, seconds since 1970.
    """

    def __init__(self, access: _KafkaAccess, clock: Callable[[], float]) -> None:
        self._access = access
        self._clock = clock

    def try_deletion(self, name: str) -> None:
        """Try to delete a topic that does not exist: Kafka checks the right first.

        Raises:
            ServiceBusError: Kafka refuses, or does not answer.
        """
        with self._access.explain_errors(f"delete topic {name!r}", but_for={KafkaError.UNKNOWN_TOPIC_OR_PART}):
            self._access.admin.delete_topics(
                [name], operation_timeout=self._access.timeout, request_timeout=self._access.timeout
            )[name].result()

    def try_creation(self, name: str, partitions: int, replicas: int) -> None:
        """Have Kafka check whether a topic could be created, without creating it.

        Raises:
            ServiceBusError: Kafka refuses, or does not answer.
        """
        topic = NewTopic(name, partitions, replicas, config=dict(ENTITY_TOPIC))
        with self._access.explain_errors(f"create topic {name!r}"):
            self._access.admin.create_topics(
                [topic],
                operation_timeout=self._access.timeout,
                request_timeout=self._access.timeout,
                validate_only=True,
            )[name].result()

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with an entity's settings, and return when its leaders serve it.

        Raises:
            ServiceBusError: Kafka refuses, or does not answer.
        """
        self._access.topics.create_entity(name, partitions)
        self._access.topics.wait_for(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; see ``Topics.delete``."""
        self._access.topics.delete(name)

    def write(self, name: str, partitions: int) -> list[Tick]:
        """Store an empty record in each partition of a topic with ``LogAppendTime``; return what the clocks showed.

        Raises:
            ServiceBusAuthorizationError: The user may not write.
            ServiceBusCommunicationError: Kafka did not store all records in time.
        """
        producer = Producer(
            producer_options(self._access.settings, message_timeout=self._access.timeout) | _QUIET, logger=LOGGER
        )
        ticks: list[Tick] = []
        for partition in range(partitions):
            # The second record finds a connection.
            self._store(producer, name, partition)
            before = self._clock()
            stamp = self._store(producer, name, partition)
            if stamp is not None:
                ticks.append(Tick(before * 1000, stamp, self._clock() * 1000))
        return ticks

    def _store(self, producer: Producer, name: str, partition: int) -> int | None:
        """Store an empty record; return the broker's time, ms since 1970, if it is reported."""
        errors: list[KafkaError] = []
        stamps: list[int | None] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                kind, stamp = message.timestamp()
                stamps.append(stamp if kind == TIMESTAMP_LOG_APPEND_TIME else None)

        producer.produce(name, b"", None, partition, report)
        producer.flush(self._access.timeout)
        if errors:
            raise self._access.topics.translate(KafkaException(errors[0]), f"write to topic {name!r}")
        if not stamps:
            raise ServiceBusCommunicationError(
                f"Kafka {self._access.settings.bootstrap_servers} did not store a record in {name} within "
                f"{self._access.timeout:g} s"
            )
        return stamps[0]

    def read(self, name: str) -> None:
        """Read a record of a topic, as receivers do.

        Raises:
            ServiceBusAuthorizationError: The user may not read.
            ServiceBusCommunicationError: No record came in time.
        """
        next(self._access.read(name, 0, OFFSET_BEGINNING), None)

    def delete_records(self, name: str) -> None:
        """Delete no records of a topic, as upkeep deletes those that are settled.

        Raises:
            ServiceBusError: Kafka refuses, or does not answer.
        """
        self._access.topics.delete_records(name, {0: 0})

    def try_configuration(self, name: str) -> None:
        """Have Kafka check whether the settings of a topic may be changed, without changing them.

        Raises:
            ServiceBusError: Kafka refuses, or does not answer.
        """
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in ENTITY_TOPIC.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        with self._access.explain_errors(f"configure topic {name!r}"):
            self._access.admin.incremental_alter_configs(
                [resource], request_timeout=self._access.timeout, validate_only=True
            )[resource].result()

    def try_transaction(self, transactional_id: str) -> None:
        """Begin a transaction, and abort it.

        Raises:
            ServiceBusError: Kafka refuses, or does not answer.
        """
        options = transactional_options(
            self._access.settings, transactional_id, timeout=self._access.timeout, message_timeout=self._access.timeout
        )
        producer = Producer(options | _QUIET, logger=LOGGER)
        with self._access.explain_errors(f"store transaction {transactional_id!r}"):
            producer.init_transactions(self._access.timeout)
            producer.begin_transaction()
            producer.abort_transaction(self._access.timeout)


class KafkaProbe:
    """One look at a cluster.

    Args:
        settings: Settings with Kafka's address.
        timeout: The longest time for one call, in seconds.
        clock: This machine's clock, seconds since 1970.

    Attributes:
        trials: Tries what the user may do.
    """

    def __init__(self, settings: Settings, *, timeout: float, clock: Callable[[], float] = time.time) -> None:
        self._access = _KafkaAccess(settings, timeout)
        self.trials = KafkaTrials(self._access, clock)

    def reach(self) -> None:
        """Have a broker accept the client.

        Raises:
            ServiceBusAuthenticationError: All brokers refuse the credentials.
            ServiceBusCommunicationError: No broker answers.
        """
        FirstContact(self._access.settings, self._access.admin, within=self._access.timeout).make()

    def fetch_version(self) -> int | None:
        """Return the latest version of Kafka's request to fetch that a broker knows; None if the client does not report it."""
        heard = _Versions()
        options: Options = {"debug": "feature", "log_level": 7}
        _VERSIONS.addHandler(heard)
        try:
            admin = AdminClient(common_options(self._access.settings) | options, logger=_VERSIONS)
            with self._access.explain_errors("ask a broker for its version"):
                admin.list_topics("__nothing", timeout=self._access.timeout)
            deadline = time.monotonic() + _REPORTED_WITHIN
            while not heard.found and time.monotonic() < deadline:
                admin.poll(0.01)
            return max(heard.found, default=None)
        finally:
            _VERSIONS.removeHandler(heard)

    def brokers(self) -> list[BrokerAddress]:
        """Return the brokers of the cluster, by number.

        Raises:
            ServiceBusError: Kafka does not answer, or refuses.
        """
        with self._access.explain_errors("describe the cluster"):
            nodes = self._access.admin.describe_cluster(request_timeout=self._access.timeout).result().nodes
        return sorted(
            (BrokerAddress(node.id, node.host, node.port) for node in nodes), key=lambda broker: broker.number
        )

    @property
    def descriptions_topic(self) -> str:
        """The name of the topic that holds the descriptions of the namespace's entities."""
        return compacted_topic_name(self._access.settings.namespace, "descriptions")

    @property
    def checkpoints_topic(self) -> str:
        """The name of the topic that holds the checkpoints of the namespace's ledgers."""
        return compacted_topic_name(self._access.settings.namespace, "checkpoints")

    def names(self) -> set[str]:
        """Return the names of the namespace's topics that Kafka shows to the user.

        Raises:
            ServiceBusError: Kafka does not answer, or refuses.
        """
        beginning = compacted_topic_name(self._access.settings.namespace, "")
        return {name for name in self._access.topics.names() if name.startswith(beginning)}

    def describe(self, names: Sequence[str]) -> tuple[dict[str, TopicState], set[str]]:
        """Return the states of those of several topics that exist, and the names of those that the user may not describe.

        Raises:
            ServiceBusError: Kafka does not answer, or refuses.
        """
        states: dict[str, TopicState] = {}
        refused: set[str] = set()
        for part in _parts(names, TOPICS_AT_ONCE):
            asked = self._access.admin.describe_topics(
                TopicCollection(list(part)), include_authorized_operations=True, request_timeout=self._access.timeout
            )
            for name, answer in asked.items():
                with self._access.explain_errors(f"describe topic {name!r}", but_for=GONE_OR_HIDDEN) as passed:
                    described = answer.result()
                    states[name] = TopicState(
                        name,
                        str(described.topic_id),
                        tuple(
                            PartitionReplicas(
                                partition.id,
                                partition.leader is not None and partition.leader.id >= 0,
                                len(partition.replicas),
                                len(partition.isr),
                            )
                            for partition in described.partitions
                        ),
                        frozenset(operation.name for operation in described.authorized_operations or ()),
                    )
                refused |= {name for code in passed if code in NO_RIGHTS}
        return states, refused

    def settings_of(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics by their names.

        Raises:
            ServiceBusAuthorizationError: The user may not read the settings.
            ServiceBusError: Kafka does not answer, or refuses.
        """
        found: dict[str, dict[str, str]] = {}
        for part in _parts(names, TOPICS_AT_ONCE):
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in part]
            asked = self._access.admin.describe_configs(resources, request_timeout=self._access.timeout)
            for resource, answer in asked.items():
                gone = {KafkaError.UNKNOWN_TOPIC_OR_PART}
                with self._access.explain_errors(f"read the settings of topic {resource.name!r}", but_for=gone):
                    entries = answer.result()
                    found[resource.name] = {name: entry.value or "" for name, entry in entries.items()}
        return found

    def ends(self, topics: Mapping[str, int], *, stored: bool = False) -> dict[str, dict[int, int]]:
        """Return the ends of logs; see ``Topics.ends_of``."""
        return self._access.topics.ends_of(topics, stored=stored)

    def starts(self, name: str, partitions: int) -> dict[int, int]:
        """Return the first offset of each log of a topic; see ``Topics.starts``."""
        return self._access.topics.starts(name, range(partitions), self._access.timeout)

    def find_first_since(self, logs: Sequence[tuple[str, int]], moment_ms: int) -> dict[tuple[str, int], int | None]:
        """Return the offset of the first record of each log, open transactions included, that is not older than a moment.

        Args:
            logs: Topics and partitions.
            moment_ms: The moment, ms since 1970.

        Returns:
            The offsets; None for logs without such a record.

        Raises:
            ServiceBusError: Kafka does not answer, or refuses.
        """
        found: dict[tuple[str, int], int | None] = {}
        for part in _parts(logs, LOGS_AT_ONCE):
            spec = OffsetSpec.for_timestamp(moment_ms)
            with self._access.explain_errors("look for records by their time"):
                asked = self._access.admin.list_offsets(
                    {TopicPartition(*log): spec for log in part},
                    isolation_level=IsolationLevel.READ_UNCOMMITTED,
                    request_timeout=self._access.timeout,
                )
                for where, answer in asked.items():
                    offset = answer.result().offset
                    found[where.topic, where.partition] = offset if offset >= 0 else None
        return found

    def latest(self, name: str, wanted: Callable[[str], bool]) -> dict[str, tuple[str, int]]:
        """Return the latest value of each key of a topic of one partition, and when it was written, ms since 1970.

        Args:
            name: The topic's name.
            wanted: Whether to keep a key.

        Raises:
            ServiceBusAuthorizationError: The user may not read the topic.
            ServiceBusCommunicationError: Kafka does not answer in time.
        """
        values: dict[str, tuple[str, int]] = {}
        for message in self._access.read(name, 0, OFFSET_BEGINNING):
            key, value = (as_bytes(message.key()) or b"").decode(), as_bytes(message.value())
            if not wanted(key):
                continue
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value.decode(), message.timestamp()[1]
        return values

    def mean_size(self, name: str, partition: int, first: int, end: int) -> float:
        """Return the mean size of records of a log, in bytes, by a few of them; 0 if there are none.

        Args:
            name: The topic's name.
            partition: The log's partition.
            first: The offset of the first record that counts.
            end: The offset behind the last one.

        Raises:
            ServiceBusError: See ``latest``.
        """
        sizes: list[int] = []
        for probe in range(PROBES):
            message = next(self._access.read(name, partition, first + (end - first) * probe // PROBES), None)
            if message is not None:
                sizes.append(size_of(message))
        return sum(sizes) / len(sizes) if sizes else 0.0


class _Versions(logging.Handler):
    """Finds the versions of the request to fetch in the lines that Kafka's client logs about a broker."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.found += [int(version) for version in _FETCH_VERSION.findall(record.getMessage())]


_VERSIONS = logging.getLogger("kafkabus.kafka.versions")
_VERSIONS.setLevel(logging.DEBUG)
# Its lines are read here, and by no user.
_VERSIONS.propagate = False


def _parts(all_: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    return (all_[first : first + count] for first in range(0, len(all_), count))
