"""Kafka transactions: consumers read all records that a producer stores in one, or none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_fixed

from kafkabus._async.compat import Alarm, Pool, Semaphore
from kafkabus._async.kafka.producer import TOPIC_APPEARS_WITHIN, OutgoingRecord, look_again
from kafkabus._core.exceptions import OperationTimeoutError, ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.settings import Settings
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_factory import open_producer
from kafkabus._kafka.client_options import transactional_options
from kafkabus._kafka.errors import NO_RIGHTS, no_rights
from kafkabus_mapping.names import owned_name

TIMEOUT = 10.0
"""After how many seconds the broker aborts a transaction that its client did not end: readers wait behind it until then."""
SEND_TIMEOUT = 8.0
"""How long, in seconds, a transaction's records may take to be stored; then it is aborted."""
END_TIMEOUT = 30.0
"""How long, in seconds, the broker may take to acknowledge a transaction's end, or a producer's first beginning."""

PRODUCERS = 32
"""How many transactions a client commits at a time; each needs a client of Kafka's, with four threads and eight files."""
IDLE = 30.0
"""After how many seconds Kafka's clients are ended that no transaction needs; one is kept."""


class Stored(NamedTuple):
    """The place of a record of a transaction.

    Attributes:
        partition: Kafka partition.
        offset: Kafka offset.
    """

    partition: int
    offset: int


class TransactionalProducer:
    """A producer that has one transaction at a time.

    Args:
        settings: The namespace's settings.
        pool: Threads for blocking calls.
        transactional_id: The name by which Kafka knows the producer.

    Attributes:
        transactional_id: The name by which Kafka knows the producer.
    """

    def __init__(self, settings: Settings, pool: Pool, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._settings = settings
        self._pool = pool
        self._producer: Producer | None = None

    async def begin(self) -> None:
        """Begin a transaction; the first time, end the transaction that a producer of the same name left open.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        producer = self._producer or await self._take_over()
        await self._run(producer.begin_transaction)

    async def send(
        self, records: Sequence[tuple[str, OutgoingRecord]], *, waits_for_topic: bool = True
    ) -> list[Stored]:
        """Store records as part of the transaction; readers do not see them before it is committed.

        Args:
            records: The records, each with its topic.
            waits_for_topic: Whether to look for a topic, or a partition, that Kafka's client does not know.

        Returns:
            The place of each record.

        Raises:
            ServiceBusAuthorizationError: Kafka's user may not write to a topic.
            ServiceBusCommunicationError: Kafka did not store all records.
            OperationTimeoutError: Kafka did not acknowledge all records in time.
            ServiceBusError: Kafka's client refuses a record.
        """
        producer = self._begun_producer()
        found: dict[int, Stored] = {}
        failed: list[tuple[str, KafkaError]] = []

        def note(index: int) -> Callable[[KafkaError | None, Message], None]:
            def on_report(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failed.append((message.topic() or "", error))
                elif (offset := message.offset()) is not None and offset >= 0:
                    found[index] = Stored(message.partition() or 0, offset)

            return on_report

        until = time.monotonic() + (TOPIC_APPEARS_WITHIN if waits_for_topic else 0)
        for index, (topic, record) in enumerate(records):
            await self._give(producer, topic, record, note(index), until)
        await self._pool.run(producer.flush, SEND_TIMEOUT)
        if failed:
            topic, error = failed[0]
            if error.code() == error_codes.PURGE_QUEUE:
                error = await self._why_refused(producer, error)
            if error.code() in NO_RIGHTS:
                raise no_rights(self._settings.bootstrap_servers, f"write to topic {topic!r}", error)
            raise ServiceBusCommunicationError(
                f"Kafka {self._settings.bootstrap_servers} did not store a record of a transaction in {topic}: {error}",
                error=KafkaException(error),
            )
        if len(found) < len(records):
            raise OperationTimeoutError(
                f"Kafka {self._settings.bootstrap_servers} acknowledged {len(found)} of {len(records)} records of a "
                f"transaction within {SEND_TIMEOUT:g} s"
            )
        return [found[index] for index in range(len(records))]

    async def _give(
        self,
        producer: Producer,
        topic: str,
        record: OutgoingRecord,
        told: Callable[[KafkaError | None, Message], None],
        until: float,
    ) -> None:
        """Give a record to Kafka's client; retry for a while if it does not know the topic."""
        partition, key, value, headers, _ = record
        try:
            producer.produce(topic, value, key, partition, told, None, 0, headers)  # type: ignore[arg-type]  # list is invariant
        except BufferError as error:
            raise ServiceBusError(
                f"Kafka's client has no room for the records of a transaction: {error}", error=error
            ) from error
        except KafkaException as error:
            await look_again(self._pool, producer, topic, error, until)
            await self._give(producer, topic, record, told, until)

    async def _why_refused(self, producer: Producer, error: KafkaError) -> KafkaError:
        """Return why Kafka's client dropped the records of a failed transaction; it says so if another one is begun."""
        try:
            await self._pool.run(producer.begin_transaction)
        except KafkaException as refused:
            return refused.args[0] if isinstance(refused.args[0], KafkaError) else error
        return error

    async def commit(self) -> None:
        """Commit the transaction.

        Raises:
            ServiceBusError: It is unknown whether the transaction was committed; ``reset`` has that decided.
        """
        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_passing),
            stop=stop_after_delay(END_TIMEOUT),
            wait=wait_fixed(0.1),
            reraise=True,
        )
        try:
            await retrying(self._pool.run, self._begun_producer().commit_transaction, END_TIMEOUT)
        except KafkaException as error:
            raise self._refusal_error(error) from error

    async def abort(self) -> None:
        """Abort the transaction.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached; the broker aborts the transaction by itself after a while.
        """
        try:
            await self._run(self._begun_producer().abort_transaction, END_TIMEOUT)
        except ServiceBusCommunicationError:
            await self.reset()

    async def reset(self) -> None:
        """End the transaction if it is still open: commit it if its commit was begun, else abort it.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached; the broker ends the transaction by itself after a while.
        """
        self.forget()
        await self._take_over()

    def forget(self) -> None:
        """Drop the producer, whose state is unknown: Kafka's client may not go on with it, so the next use opens another."""
        self._producer = None

    async def _take_over(self) -> Producer:
        """Open a new producer of the same name, which ends the transaction that the one before left open."""
        options = transactional_options(
            self._settings, self.transactional_id, timeout=TIMEOUT, message_timeout=SEND_TIMEOUT
        )
        producer = open_producer(self._settings, options)
        await self._run(producer.init_transactions, END_TIMEOUT)
        self._producer = producer
        return producer

    def _begun_producer(self) -> Producer:
        if self._producer is None:
            raise ServiceBusError("no transaction was begun")
        return self._producer

    async def _run(self, call: Callable[..., object], *arguments: float) -> None:
        try:
            await self._pool.run(call, *arguments)
        except KafkaException as error:
            self.forget()
            raise self._refusal_error(error) from error

    def _refusal_error(self, error: KafkaException) -> ServiceBusError:
        if error.args[0].code() in NO_RIGHTS:
            return no_rights(
                self._settings.bootstrap_servers, f"store transaction {self.transactional_id!r}", error.args[0]
            )
        return ServiceBusCommunicationError(
            f"Kafka {self._settings.bootstrap_servers} did not take transaction {self.transactional_id}: {error.args[0]}",
            error=error,
        )


def _is_passing(error: BaseException) -> bool:
    """Return whether Kafka's client says that the call may be retried."""
    return isinstance(error, KafkaException) and bool(error.args[0].retriable())


class TransactionalProducers:
    """A client's transactional producers: as many as it commits transactions at a time, up to a bound; safe to share.

    Args:
        settings: The namespace's settings.
        client_id: The client's id.
    """

    def __init__(self, settings: Settings, client_id: str) -> None:
        self._settings = settings
        # While commits are slow, as in an outage, they keep threads that all other calls would wait for.
        self._pool = Pool("kafkabus-commit")
        self._client_id = client_id
        self._guard = threading.Lock()
        self._free = Semaphore(PRODUCERS)
        self._count = 0
        self._idle: list[tuple[float, TransactionalProducer]] = []
        self._resting: list[TransactionalProducer] = []
        self._alarm = Alarm(self._rest)

    async def borrow(self) -> TransactionalProducer:
        """Return a producer that has no transaction; wait for it while as many as there may be are borrowed."""
        await self._free.acquire()
        with self._guard:
            if self._idle:
                return self._idle.pop()[1]
            if self._resting:
                return self._resting.pop()
            self._count += 1
            name = owned_name(self._settings.namespace, self._client_id, str(self._count))
            return TransactionalProducer(self._settings, self._pool, name)

    def give_back(self, transactional_producer: TransactionalProducer) -> None:
        """Take back a producer that its borrower does not use any more, and that has no transaction."""
        with self._guard:
            self._idle.append((time.monotonic(), transactional_producer))
        self._free.release()
        self._alarm.set(IDLE)

    async def _rest(self) -> None:
        """End Kafka's clients of producers that were not borrowed for a while, but for the last one."""
        while await self._rest_one():
            pass
        with self._guard:
            is_through = len(self._idle) <= 1
        if not is_through:
            self._alarm.set(IDLE)

    async def _rest_one(self) -> bool:
        """End Kafka's client of the producer that is idle for longest; return whether there was one to end."""
        # It counts as borrowed until its client has ended: else another one would be created in its place.
        await self._free.acquire()
        try:
            with self._guard:
                if len(self._idle) <= 1 or time.monotonic() - self._idle[0][0] < IDLE:
                    return False
                _, producer = self._idle.pop(0)
            await self._pool.run(producer.forget)
            with self._guard:
                # Kafka remembers each name for a week.
                self._resting.append(producer)
            return True
        finally:
            self._free.release()

    async def close(self) -> None:
        """End Kafka's clients of the producers that are not borrowed."""
        await self._alarm.stop()
        with self._guard:
            idle, self._idle = self._idle, []
        for _, producer in idle:
            await self._pool.run(producer.forget)
        await self._pool.close()
