"""Blocking administration of topics: creating, describing and deleting them, and the offsets of their logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_result,
    stop_after_delay,
    wait_exponential,
)

from kafkabus._core.exceptions import ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.settings import Settings
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_options import LOGGER, common_options, offset_reader_options
from kafkabus._kafka.closed import CLOSED
from kafkabus._kafka.errors import NO_RIGHTS, FirstContact, no_rights, refused_options
from kafkabus._ledger.operations import Tail
from kafkabus._runtime import instruments

ENTITY_TOPIC: Mapping[str, str] = {
    # The broker's clock is EnqueuedTimeUtc.
    "message.timestamp.type": "LogAppendTime",
    # Records are deleted only by delete_records, below the offsets that every ledger has settled.
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "2000000",
}
CLOCK_TOPIC: Mapping[str, str] = {
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": "3600000",
}
COMPACTED_TOPIC: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": "2000000",
}
MARKER_TOPIC: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": "2000000",
}
"""Of markers of transactions, which are needed until the ledgers that they name are written down; that is done all the time."""
DELAY_TOPIC: Mapping[str, str] = {**MARKER_TOPIC, "retention.ms": "691200000"}
"""Of delays of messages, which are over after seven days at the most, and a day beside."""


DEFAULTS_MARK = "kafkabus.topic.defaults"
"""A setting of the brokers that kafkabus itself runs: they give topics without settings those of an entity's topic.

If a broker starts, Kafka takes a time for each topic with settings that grows with the number of topics: 10,000 of them took
a minute and a half.
"""
_BROKERS_SETTINGS: Mapping[str, str] = {
    "message.timestamp.type": "log.message.timestamp.type",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "max.message.bytes": "message.max.bytes",
    "min.insync.replicas": "min.insync.replicas",
}
"""Settings of brokers by the settings of topics whose defaults they are."""

LOGS_AT_ONCE = 200
"""For how many logs one request asks: Kafka's client takes time that grows with the square of that."""
APPEARS_WITHIN = 5.0
"""How long brokers may not know a topic that exists, because it is new, in seconds."""
ASKED_FOR = 3.0
"""How long to wait for a broker's answer before closing its connection and asking another one, in seconds."""
ONE_BY_ONE_FOR = 30.0
"""How long, in seconds, logs are asked for one by one, once they could not be asked for together."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster knows it.

    Attributes:
        name: Its name.
        topic_id: The id that the broker gave the topic; it changes if the topic is deleted and created again.
        partitions: The number of its partitions.
        unavailable: Partitions without a leader or with too few replicas in sync, which take no records now.
    """

    name: str
    topic_id: str
    partitions: int
    unavailable: tuple[int, ...]


class Topics:
    """A cluster's topics.

    Args:
        settings: Settings with Kafka's address.
        timeout: The longest time for one call, in seconds.

    Raises:
        ServiceBusAuthenticationError: The provider of tokens failed.
        ServiceBusError: Kafka's client refuses an option, or a file that one names.
    """

    def __init__(self, settings: Settings, *, timeout: float = 30.0) -> None:
        self._settings = settings
        self._servers = settings.bootstrap_servers
        self._replicas = settings.replication_factor
        self._timeout = timeout
        # A stopped broker's connection stays open, and may be the only one, until a request has waited for so long.
        options = common_options(settings) | _IMPATIENT
        try:
            self._client = AdminClient(options, logger=LOGGER)
        except KafkaException as error:
            raise refused_options(self._servers, options, error) from error
        self._contact = FirstContact(settings, self._client)
        self._guard = threading.Lock()
        self._consumers: dict[IsolationLevel, Consumer] = {}
        self._together_at = 0.0
        self._defaults: Mapping[str, str] | None = None

    @property
    def _admin(self) -> AdminClient:
        """Kafka's client, which has reached a broker."""
        self._contact.make()
        return self._client

    @property
    def has_contact(self) -> bool:
        """Whether a broker was reached."""
        return self._contact.made

    @property
    def asks_together(self) -> bool:
        """Whether ``ends_of`` asks for all logs together; it does not for a while after that failed."""
        return time.monotonic() >= self._together_at

    def reach(self) -> None:
        """Reach a broker, unless one was reached before; if none can be reached, raise within some 7 seconds.

        Raises:
            ServiceBusAuthenticationError: Kafka refuses the credentials.
            ServiceBusCommunicationError: No broker can be reached.
        """
        self._contact.make()

    def close(self) -> None:
        """End Kafka's clients."""
        self._client = self._contact = CLOSED
        for consumer in self._consumers.values():
            consumer.close()

    def brokers(self) -> int:
        """Return how many brokers the cluster has, at least one.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or says that no broker serves at present.
        """

        def ask() -> int | None:
            # Kafka leaves out a broker that was not heard of for a while, as on a stalled machine, even if it is the only one.
            return len(self._admin.list_topics("__nothing", timeout=ASKED_FOR).brokers) or None

        try:
            count: int | None = self._again(_SILENCE)(ask)
        except KafkaException as error:
            raise self.translate(error, "ask for the cluster's brokers") from error
        if count is None:
            raise ServiceBusCommunicationError(
                f"no broker of Kafka {self._servers} serves (tried for {self._timeout:.0f} s)"
            )
        return count

    def create_entity(self, name: str, partitions: int) -> bool:
        """Create an entity's topic with the number of replicas in the settings; see ``create``."""
        return self.create(name, partitions, ENTITY_TOPIC, self._replicas)

    def configure_entity(self, name: str) -> None:
        """Configure an existing topic as an entity's topic.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
            ServiceBusError: Kafka refuses.
        """
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in ENTITY_TOPIC.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        try:
            self._admin.incremental_alter_configs([resource], request_timeout=self._timeout)[resource].result()
        except KafkaException as error:
            raise self.translate(error, f"configure topic {name!r}") from error

    def create(self, name: str, partitions: int, config: Mapping[str, str], replicas: int | None = None) -> bool:
        """Create a topic; return False if it existed already.

        Args:
            name: The topic's name.
            partitions: The number of partitions.
            config: The topic's settings.
            replicas: The number of replicas of each partition; by default three, or the number of brokers if that is less.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
            ServiceBusError: Kafka refuses.
        """
        replicas = replicas or min(3, self.brokers())
        wanted, known = (
            {**config, "min.insync.replicas": str(_needed_replicas(replicas))},
            self._brokers_defaults(),
        )
        settings = {key: value for key, value in wanted.items() if known.get(key) != value}
        topic = NewTopic(name, partitions, replicas, config=settings)

        def ask() -> Future[None]:
            return self._admin.create_topics([topic], operation_timeout=self._timeout, request_timeout=self._timeout)[
                name
            ]

        return self._have_done(ask, f"create topic {name!r}", KafkaError.TOPIC_ALREADY_EXISTS)

    def _brokers_defaults(self) -> Mapping[str, str]:
        """Return the settings of topics that override no default; none, unless kafkabus itself runs these brokers."""
        if self._defaults is not None:
            return self._defaults
        try:
            brokers = self._admin.list_topics("__nothing", timeout=ASKED_FOR).brokers
            asked = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
            answers = self._admin.describe_configs(asked, request_timeout=ASKED_FOR) if asked else {}
            told = [future.result() for future in answers.values()]
        except KafkaException as error:
            if _code(error) in NO_RIGHTS:
                self._defaults = {}
            # Else a broker does not answer now; with all its settings, a topic is right in any case.
            return {}
        if told:
            self._defaults = {
                setting: value
                for setting, own in _BROKERS_SETTINGS.items()
                if (value := told[0][own].value) is not None
                and all(DEFAULTS_MARK in settings and settings[own].value == value for settings in told)
            }
        return self._defaults or {}

    def delete(self, name: str) -> bool:
        """Delete a topic, and return when it is gone; return False if there was none.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
            ServiceBusError: Kafka refuses.
        """
        before = self.describe(name)

        def ask() -> Future[None]:
            return self._admin.delete_topics([name], operation_timeout=self._timeout, request_timeout=self._timeout)[
                name
            ]

        if not self._have_done(ask, f"delete topic {name!r}", KafkaError.UNKNOWN_TOPIC_OR_PART):
            return False
        # A broker hears of it after the controller, and would describe the old topic when the next one of that name is created.
        Retrying(
            retry=retry_if_result(
                lambda known: known is not None and before is not None and known.topic_id == before.topic_id
            ),
            stop=stop_after_delay(APPEARS_WITHIN),
            wait=wait_exponential(multiplier=0.01, max=0.5),
            retry_error_callback=_outcome,
        )(self.describe, name)
        return True

    def describe(self, name: str, timeout: float | None = None) -> Topic | None:
        """Return the description of a topic, or None if it does not exist.

        Args:
            name: The topic's name.
            timeout: The longest time for this call, in seconds; default that of all calls.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
            ServiceBusError: Kafka refuses.
        """
        return self.describe_all([name], timeout).get(name)

    def describe_all(self, names: Sequence[str], timeout: float | None = None) -> dict[str, Topic]:
        """Return the descriptions of those of several topics that exist; see ``describe``."""
        asked_for = min(ASKED_FOR, timeout or self._timeout)

        def ask() -> dict[str, Topic]:
            asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=asked_for)
            found = {name: _to_topic(name, answer) for name, answer in asked.items()}
            return {name: topic for name, topic in found.items() if topic is not None}

        try:
            return self._again(_SILENCE, names[0], timeout)(ask)
        except KafkaException as error:
            raise self.translate(error, f"describe topic {', '.join(map(repr, names))}") from error

    def wait_for(self, name: str) -> Topic:
        """Return a topic that was just created, once the brokers know it and each partition's leader serves it.

        Raises:
            ServiceBusCommunicationError: The brokers did not serve the topic within the timeout.
        """
        described = self._again(_PASSING)(self.describe, name)
        if described is None:
            raise ServiceBusCommunicationError(
                f"Kafka {self._servers} created topic {name!r} but does not serve it after {self._timeout:.0f} s"
            )
        self.ends(name, range(described.partitions))
        return described

    def starts(self, name: str, partitions: Iterable[int], timeout: float | None = None) -> dict[int, int]:
        """Return the first offset of each partition's log.

        Args:
            name: The topic's name.
            partitions: The partitions' numbers.
            timeout: The longest time for this call, in seconds; default that of all calls.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or a partition has no leader.
        """
        return self._offsets(name, partitions, OffsetSpec.earliest(), timeout)

    def ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the committed end of each partition's log: later committed records have at least this offset.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or a partition has no leader.
        """
        return self._offsets(name, partitions, OffsetSpec.latest())

    def stored_ends(self, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the end of each partition's log, records of open transactions included.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or a partition has no leader.
        """
        found = self._ask(name, partitions, OffsetSpec.latest(), isolation=IsolationLevel.READ_UNCOMMITTED)
        return {partition: place.offset for partition, place in found.items()}

    def tails(self, name: str, partitions: Iterable[int], timeout: float) -> dict[int, Tail]:
        """Return the committed end of each partition's log, and its leader's epoch.

        Args:
            name: The topic's name.
            partitions: The partitions' numbers.
            timeout: The longest time for this call, in seconds.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or a partition has no leader.
        """
        found = self._ask(name, partitions, OffsetSpec.latest(), timeout)
        return {partition: Tail(place.offset, place.leader_epoch) for partition, place in found.items()}

    def offsets_at(self, name: str, partitions: Iterable[int], moment_ms: int) -> dict[int, int]:
        """Return each partition's first offset whose record is not older than a moment, ms since 1970; else the log's end.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or a partition has no leader.
        """
        return {partition: offset for partition, (offset, _) in self.first_after(name, partitions, moment_ms).items()}

    def first_after(self, name: str, partitions: Iterable[int], moment_ms: int) -> dict[int, tuple[int, int | None]]:
        """Return each partition's first offset whose record is not older than a moment, and when that was stored.

        Args:
            name: The topic's name.
            partitions: The partitions' numbers.
            moment_ms: The moment, ms since 1970.

        Returns:
            By partition, the offset, and the record's time, ms since 1970; the log's end and None if there is no such record.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or a partition has no leader.
        """
        partitions = list(partitions)
        ends = self.ends(name, partitions)
        # A negative time would name an end of the log.
        found = self._ask(name, partitions, OffsetSpec.for_timestamp(max(0, moment_ms)))
        return {
            partition: (place.offset, place.timestamp) if place.offset >= 0 else (ends[partition], None)
            for partition, place in found.items()
        }

    def names(self) -> set[str]:
        """Return the names of all topics that the cluster shows this user.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        try:
            with _observe_request():
                return set(self._admin.list_topics(timeout=self._timeout).topics)
        except KafkaException as error:
            raise self.translate(error, "list the topics") from error

    def ends_of(self, topics: Mapping[str, int], *, stored: bool = False) -> dict[str, dict[int, int]]:
        """Return the ends of the logs of several topics, asked for in few requests.

        Args:
            topics: Numbers of partitions by names.
            stored: Whether records of open transactions count, too.

        Returns:
            Ends by topics and partitions; without the partitions that no broker answers for now.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        return self._offsets_of(
            topics, OFFSET_END, IsolationLevel.READ_UNCOMMITTED if stored else IsolationLevel.READ_COMMITTED
        )

    def ends_of_empty(self, topics: Mapping[str, int]) -> dict[str, dict[int, int]]:
        """Return the ends of the logs of those topics whose logs hold no record; see ``ends_of``."""
        ends = {name: its for name, its in self.ends_of(topics).items() if len(its) == topics[name]}
        used = {name: topics[name] for name, its in ends.items() if any(its.values())}
        starts = self._offsets_of(used, OFFSET_BEGINNING, IsolationLevel.READ_COMMITTED)
        return {name: its for name, its in ends.items() if name not in used or starts.get(name) == its}

    def _offsets_of(
        self, topics: Mapping[str, int], where: int, isolation: IsolationLevel
    ) -> dict[str, dict[int, int]]:
        if not topics:
            return {}
        if self.asks_together:
            try:
                return self._offsets_together(topics, where, isolation)
            except KafkaException:
                # One log whose leader does not answer is enough.
                self._together_at = time.monotonic() + ONE_BY_ONE_FOR
        spec = OffsetSpec.latest() if where == OFFSET_END else OffsetSpec.earliest()
        return self._offsets_one_by_one(topics, spec, isolation)

    def _offsets_together(
        self, topics: Mapping[str, int], where: int, isolation: IsolationLevel
    ) -> dict[str, dict[int, int]]:
        """Return offsets of logs by a consumer: a tenth of the work of an admin client, which makes a future for each log.

        Raises:
            KafkaException: A log's leader is not known, or did not answer.
        """
        self._contact.make()
        with self._guard:
            consumer = self._consumers.get(isolation)
            if consumer is None:
                options = (
                    offset_reader_options(self._settings) | _IMPATIENT | {"isolation.level": isolation.name.lower()}
                )
                consumer = self._consumers[isolation] = Consumer(options, logger=LOGGER)
        logs = [TopicPartition(*log, where) for log in _logs_of(topics)]
        offsets: dict[str, dict[int, int]] = {name: {} for name in topics}
        with _observe_request():
            for first in range(0, len(logs), LOGS_AT_ONCE):
                for found in consumer.offsets_for_times(logs[first : first + LOGS_AT_ONCE], ASKED_FOR):
                    if found.error is None and found.offset >= 0:
                        offsets[found.topic][found.partition] = found.offset
        return offsets

    def _offsets_one_by_one(
        self, topics: Mapping[str, int], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[str, dict[int, int]]:
        logs, asked = (
            [TopicPartition(*log) for log in _logs_of(topics)],
            dict[TopicPartition, Future[ListOffsetsResultInfo]](),
        )
        try:
            for first in range(0, len(logs), LOGS_AT_ONCE):
                wanted = dict.fromkeys(logs[first : first + LOGS_AT_ONCE], spec)
                asked |= self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=ASKED_FOR)
        except KafkaException as error:
            raise self.translate(error, "ask for the offsets of logs") from error
        offsets: dict[str, dict[int, int]] = {name: {} for name in topics}
        with _observe_request():
            for where, future in asked.items():
                if future.exception() is None and (offset := future.result().offset) != OFFSET_INVALID:
                    offsets[where.topic][where.partition] = offset
        return offsets

    def newest(self, name: str, partitions: Iterable[int]) -> int | None:
        """Return when the newest record was stored, ms since 1970, or None if there is no record.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or a partition has no leader.
        """
        newest = self._ask(name, partitions, OffsetSpec.max_timestamp())
        return max((record.timestamp for record in newest.values() if record.timestamp >= 0), default=None)

    def delete_records(self, name: str, upto: Mapping[int, int]) -> None:
        """Delete each partition's records below an offset.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
            ServiceBusError: Kafka refuses.
        """
        wanted = [TopicPartition(name, partition, offset) for partition, offset in upto.items()]
        if not wanted:
            return
        try:
            deleted = self._admin.delete_records(wanted, operation_timeout=self._timeout, request_timeout=self._timeout)
            for future in deleted.values():
                future.result()
        except KafkaException as error:
            raise self.translate(error, f"delete records of topic {name!r}") from error

    def _offsets(
        self, name: str, partitions: Iterable[int], spec: OffsetSpec, timeout: float | None = None
    ) -> dict[int, int]:
        return {partition: found.offset for partition, found in self._ask(name, partitions, spec, timeout).items()}

    def _ask(
        self,
        name: str,
        partitions: Iterable[int],
        spec: OffsetSpec,
        timeout: float | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, ListOffsetsResultInfo]:
        """Return the answer of each partition's leader to a request for an offset."""
        wanted = {TopicPartition(name, partition): spec for partition in partitions}
        asked_for = min(ASKED_FOR, timeout or self._timeout)

        def ask() -> dict[int, ListOffsetsResultInfo]:
            futures = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=asked_for)
            found = {where.partition: future.result() for where, future in futures.items()}
            if any(place.offset == OFFSET_INVALID for place in found.values()):
                # If a broker did not answer in time, Kafka's client returns this for its partitions, without an error.
                raise KafkaException(KafkaError(error_codes.TIMED_OUT))
            return found

        try:
            with _observe_request():
                return self._again(_PASSING | _SILENCE, name, timeout)(ask) if wanted else {}
        except KafkaException as error:
            raise self.translate(error, f"ask for the offsets of topic {name!r}") from error

    def _have_done(self, ask: Callable[[], Future[None]], action: str, already: int) -> bool:
        """Send a request to the controller, and repeat it if there is no answer.

        Args:
            ask: Sends the request.
            action: The action that the request is for, in words for errors.
            already: The error code with which Kafka answers that the action was done before.

        Returns:
            Whether this call did the action.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
            ServiceBusError: Kafka refuses.
        """
        asked: list[Future[None]] = []

        def attempt() -> bool:
            asked.append(ask())
            asked[-1].result()
            return True

        try:
            done: bool = self._again(_SILENCE)(attempt)
        except KafkaException as error:
            if _code(error) != already:
                raise self.translate(error, action) from error
            # The broker may have done the action although it did not answer in time.
            return len(asked) > 1
        return done

    def _again(self, codes: Set[int], name: str | None = None, timeout: float | None = None) -> Retrying:
        """Return a policy that retries after no result, and after an error with one of these codes.

        Args:
            codes: Kafka's error codes.
            name: A topic whose metadata to refresh before each retry. Kafka's client caches the leaders and the broker that it
                asks for metadata, even if one of these answers that it is not responsible, or does not answer.
            timeout: How long to retry, in seconds; by default as long as a call may take. If the cluster has not known a topic
                for some seconds, the topic is considered deleted.
        """
        unknown_since: float | None = None

        def refresh(_state: RetryCallState) -> None:
            nonlocal unknown_since
            if name is not None:
                with suppress(KafkaException):
                    listed = self._admin.list_topics(name, timeout=min(ASKED_FOR, timeout or self._timeout))
                    error = listed.topics[name].error
                    unknown = error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                    unknown_since = (unknown_since or time.monotonic()) if unknown else None

        def is_expired(state: RetryCallState) -> bool:
            is_gone = unknown_since is not None and time.monotonic() > unknown_since + APPEARS_WITHIN
            return is_gone or stop_after_delay(timeout or self._timeout)(state)

        return Retrying(
            before_sleep=refresh,
            retry=retry_if_result(lambda result: result is None) | retry_if_exception(_match_codes(codes)),
            stop=is_expired,
            wait=wait_exponential(multiplier=0.01, max=0.5),
            retry_error_callback=_outcome,
        )

    def translate(self, error: KafkaException, action: str) -> ServiceBusError:
        """Return the SDK's error for one of Kafka's.

        Args:
            error: Kafka's error.
            action: The action that failed, as in "create topic 'shop.orders'".
        """
        cause = error.args[0]
        reason = cause.str() if isinstance(cause, KafkaError) else str(error)
        if isinstance(cause, KafkaError) and cause.code() in NO_RIGHTS:
            return no_rights(self._servers, action, cause)
        message = f"could not {action} at Kafka {self._servers}: {reason}"
        if isinstance(cause, KafkaError) and cause.code() in _UNREACHABLE:
            return ServiceBusCommunicationError(f"{message} (tried for {self._timeout:.0f} s)", error=error)
        return ServiceBusError(message, error=error)


def _logs_of(topics: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return topics and partitions; ``topics`` are numbers of partitions by names."""
    return [(name, partition) for name, count in topics.items() for partition in range(count)]


def _needed_replicas(replicas: int) -> int:
    """Return how many replicas must be in sync to store records, so that acknowledged records survive a broker's loss."""
    return 2 if replicas > 2 else 1


_UNREACHABLE = {
    error_codes.TRANSPORT,
    error_codes.ALL_BROKERS_DOWN,
    error_codes.TIMED_OUT,
    error_codes.TIMED_OUT_QUEUE,
    error_codes.DESTROY_BROKER,
    error_codes.RESOLVE,
    KafkaError.LEADER_NOT_AVAILABLE,
    error_codes.NOENT,  # No leader is known.
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
}


_IMPATIENT = {"socket.timeout.ms": round(1000 * ASKED_FOR)}
_SILENCE = {
    error_codes.TIMED_OUT,
    error_codes.TIMED_OUT_QUEUE,  # The request waited behind others that the broker did not answer.
    KafkaError.REQUEST_TIMED_OUT,
    error_codes.TRANSPORT,
    error_codes.DESTROY_BROKER,  # The client learned that the broker it asked is another one, or none any more.
}
"""Error codes of a broker after which another one may answer."""
_PASSING = {
    KafkaError.LEADER_NOT_AVAILABLE,
    error_codes.NOENT,  # No leader is known.
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
}
"""Error codes while not all brokers know a new topic or a new leader."""


@contextmanager
def _observe_request() -> Generator[None, None, None]:
    """Report the duration and the error of a request to the process's observer, if there is one."""
    observer = instruments.observer
    if observer is None:
        yield
        return
    began, failure = time.monotonic(), None
    try:
        yield
    except KafkaException as error:
        failure = error
        raise
    finally:
        observer.on_kafka_request(time.monotonic() - began, failure)


def _to_topic(name: str, answer: Future[Any]) -> Topic | None:
    """Return the topic that a broker describes, or None if there is none."""
    try:
        described = answer.result()
    except KafkaException as error:
        if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    unavailable = tuple(
        partition.id
        for partition in described.partitions
        if partition.leader is None
        or partition.leader.id < 0
        or len(partition.isr) < _needed_replicas(len(partition.replicas))
    )
    return Topic(name, str(described.topic_id), len(described.partitions), unavailable)


def _match_codes(codes: Set[int]) -> Callable[[BaseException], bool]:
    """Return a function that returns whether an error is one of Kafka's with one of these codes."""
    return lambda error: isinstance(error, KafkaException) and _code(error) in codes


def _outcome(state: RetryCallState) -> Any:
    """Return the last attempt's result or raise its error, in place of tenacity's own error."""
    return None if state.outcome is None else state.outcome.result()


def _code(error: KafkaException) -> int | None:
    cause = error.args[0]
    return cause.code() if isinstance(cause, KafkaError) else None
