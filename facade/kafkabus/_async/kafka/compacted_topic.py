"""Compacted topics: records that a namespace keeps for itself, in topics of one partition."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from kafkabus._async.kafka.offset_reader import READ_TIMEOUT, OffsetReader
from kafkabus._async.kafka.producer import OutgoingRecord, RecordProducer
from kafkabus._async.kafka.topic_admin import TopicAdmin
from kafkabus._core.exceptions import ServiceBusCommunicationError
from kafkabus._core.record import Record
from kafkabus._kafka.errors import NO_RIGHTS, no_rights

READ_AT_ONCE = 5_000
"""How many records are read in one go."""


class CompactedTopic:
    """One compacted topic, created when it is first written to.

    Args:
        name: The topic's name.
        config: The topic's settings.
        topics: The cluster's topics.
        record_producer: Writes records.
        offset_reader: Reads records.
        servers: The brokers' addresses, for errors.

    Attributes:
        name: The topic's name.
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, str],
        *,
        topics: TopicAdmin,
        record_producer: RecordProducer,
        offset_reader: OffsetReader,
        servers: str,
    ) -> None:
        self.name = name
        self._config = config
        self._topics = topics
        self._producer = record_producer
        self._offset_reader = offset_reader
        self._servers = servers
        self._exists = False

    async def make_ready(self) -> None:
        """Create the topic if there is none.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        # Asked first: a user that may write to the topic need not have the right to create it.
        if not await self.is_there():
            await self._topics.create(self.name, 1, self._config)
        self._exists = True

    async def store(self, what: str, records: Mapping[str | None, bytes | None], *, timeout: float) -> list[int]:
        """Store records; they are durable when this returns.

        Args:
            what: A description of the records, for the error.
            records: Values by keys; None removes the value of a key.
            timeout: How long that may take, in seconds.

        Returns:
            The records' offsets; ``UNKNOWN_OFFSET`` if the broker did not report one.

        Raises:
            ServiceBusAuthorizationError: Kafka's user may not write to the topic.
            ServiceBusCommunicationError: Kafka did not store all records.
        """
        await self.make_ready()
        outgoing = [OutgoingRecord(0, key, value, []) for key, value in records.items()]
        reports = await self._producer.send(self.name, outgoing, timeout=timeout, keep_offsets=True)
        if not reports.is_done or reports.failures:
            self._exists = False
            refusal = next((failure.error for failure in reports.failures if failure.error.code() in NO_RIGHTS), None)
            if refusal is not None:
                raise no_rights(self._servers, f"write to topic {self.name!r}", refusal)
            reason = reports.failures[0].error if reports.failures else f"no answer within {timeout:.0f} s"
            raise ServiceBusCommunicationError(f"{what} was not stored in {self.name}: {reason}")
        return [offset for _, offset in reports.stored]

    async def read(self, start: int = 0) -> tuple[list[Record], int]:
        """Return the records from an offset on, and the offset at which the topic ended.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        records: list[Record] = []
        if not await self.is_there():
            return records, start
        async for upto, batch in self.batches(start):
            records += batch
            start = upto
        return records, start

    async def end(self) -> int:
        """Return the offset at which the topic ends; 0 if it was not written to yet.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        if not await self.is_there():
            return 0
        return (await self._topics.ends(self.name, [0]))[0]

    async def is_there(self) -> bool:
        """Return whether the topic was written to yet.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        return self._exists or await self._topics.describe(self.name) is not None

    async def batches(self, start: int, at_once: int = READ_AT_ONCE) -> AsyncIterator[tuple[int, list[Record]]]:
        """Yield the records of an existing topic from an offset on, in batches, each with the offset at which it ends.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        at = max(start, (await self._topics.starts(self.name, [0]))[0])
        end = (await self._topics.ends(self.name, [0]))[0]
        yield at, []
        while at < end:
            upto = min(end, at + at_once)
            yield upto, await self._offset_reader.read(self.name, 0, at, upto - 1)
            at = upto

    async def read_one(self, offset: int, timeout: float = READ_TIMEOUT) -> Record:
        """Return the record at an offset.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
            ValueError: The topic does not hold the record any more.
        """
        (record,) = await self._offset_reader.read(self.name, 0, offset, offset, timeout)
        return record
