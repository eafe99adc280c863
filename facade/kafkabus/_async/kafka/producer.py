"""Producing records and waiting until they are durable."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer

from kafkabus._async.compat import Pool, sleep
from kafkabus._async.kafka.compat import Deliveries
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.record import as_bytes
from kafkabus._core.settings import Settings
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_factory import open_producer
from kafkabus._kafka.client_options import producer_options
from kafkabus._kafka.closed import CLOSED
from kafkabus._kafka.delivery_reports import Content, DeliveryReports
from kafkabus._runtime import instruments
from kafkabus_mapping.codec import Headers
from kafkabus_mapping.headers import MESSAGE_ID


class OutgoingRecord(NamedTuple):
    """A record to produce.

    Attributes:
        partition: Kafka partition.
        key: The partition key, or None.
        value: The body.
        headers: The properties.
        position: The position of its message among those that are sent together.
    """

    partition: int
    key: str | bytes | None
    value: bytes | None
    headers: Headers
    position: int = 0

    @property
    def content(self) -> Content:
        """The fields by which a failure names the record."""
        return self.partition, as_bytes(self.key), self.value

    @property
    def message_id(self) -> str:
        """The message id among the record's headers."""
        return next((value.decode() for name, value in self.headers if name == MESSAGE_ID and value), "(no id)")


PRODUCED_AT_ONCE = 500
"""After how many records of a send other tasks have their turns."""
TOPIC_APPEARS_WITHIN = 5.0
"""For how long, in seconds, a producer looks for a topic that Kafka's client does not know."""


async def look_again(pool: Pool, producer: Producer, topic: str, error: KafkaException, until: float) -> None:
    """Have a producer look up a topic that it takes for missing, and that may exist again.

    Kafka's client notices within a minute that a topic was deleted, refuses records for it from then on, and takes as long to
    notice that there is a topic of that name again.

    Args:
        pool: Threads for blocking calls.
        producer: The producer.
        topic: The topic's name.
        error: The error with which the producer refused a record.
        until: The time until which the caller tries again, on the monotonic clock.

    Raises:
        ServiceBusError: The producer refused the record for another reason, or the time has passed.
    """
    if error.args[0].code() not in _UNKNOWN or time.monotonic() >= until:
        raise ServiceBusError(f"Kafka's client refuses a record for {topic}: {error}", error=error) from error
    await sleep(0.05)
    with suppress(KafkaException):
        await pool.run(producer.list_topics, topic, 1.0)


_UNKNOWN = {error_codes.UNKNOWN_TOPIC, error_codes.UNKNOWN_PARTITION}


class RecordProducer:
    """One producer for all senders of a client; safe to share.

    Args:
        settings: The namespace's settings.
        pool: Threads for blocking calls.
        message_timeout: After how many seconds Kafka's client gives up a record that was not acknowledged.
    """

    def __init__(self, settings: Settings, pool: Pool, *, message_timeout: float = 60.0) -> None:
        self._producer = open_producer(settings, producer_options(settings, message_timeout=message_timeout))
        self._deliveries = Deliveries(self._producer, pool)
        self._pool = pool

    async def send(
        self,
        topic: str,
        records: Sequence[OutgoingRecord],
        *,
        timeout: float,
        keep_offsets: bool = False,
        waits_for_topic: bool = True,
    ) -> DeliveryReports:
        """Produce records and wait until each was acknowledged or given up, or time ran out.

        Args:
            topic: The Kafka topic.
            records: The records, in the order in which each partition shall hold them.
            timeout: How long that may take, in seconds.
            keep_offsets: Whether the reports shall have the offsets of the stored records, and the positions of the others.
            waits_for_topic: Whether to look for a topic, or a partition, that Kafka's client does not know; if not, such a
                record is a failure at once.

        Returns:
            The records' delivery reports; not ``is_done`` if time ran out.
        """
        began = time.monotonic()
        deadline = began + timeout
        reports = DeliveryReports(len(records), keep_offsets=keep_offsets)
        produce = self._producer.produce
        for at, record in enumerate(records):
            partition, key, value, headers, _ = record
            if at % PRODUCED_AT_ONCE == PRODUCED_AT_ONCE - 1:
                # Other tasks have their turns.
                await sleep(0)
            acknowledge = partial(reports.acknowledge, position=at) if keep_offsets else reports.acknowledge
            while True:
                try:
                    produce(topic, value, key, partition, acknowledge, None, 0, headers)  # type: ignore[arg-type]  # list is invariant
                    break
                except BufferError:
                    # The producer's queue is full: acknowledgements make room.
                    await self._pool.run(self._producer.flush, 0.1)
                    if time.monotonic() > deadline:
                        return reports
                except KafkaException as error:
                    if not waits_for_topic and error.args[0].code() in _UNKNOWN:
                        reports.refuse(record.content, error.args[0], at)
                        break
                    await look_again(
                        self._pool, self._producer, topic, error, min(deadline, began + TOPIC_APPEARS_WITHIN)
                    )
        if not reports.is_done:
            await self._deliveries.wait(reports, deadline - time.monotonic())
        if instruments.observer is not None:
            instruments.observer.on_kafka_store(time.monotonic() - began, len(reports.failures) + reports.left)
        return reports

    async def close(self) -> None:
        """Send the records that are left, and end Kafka's client; callers that wait for them get their reports."""
        await self._pool.run(self._end)

    def _end(self) -> None:
        self._producer.flush(10.0)
        self._producer = CLOSED
        self._deliveries.close()
