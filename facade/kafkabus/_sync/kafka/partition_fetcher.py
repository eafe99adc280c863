# Generated from facade/kafkabus/_async/kafka/partition_fetcher.py by tools/generate_blocking.py. Do not edit.
"""Fetching the records of an entity's partitions, from offsets that the caller chooses, with the consumers of its client."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, cast

from confluent_kafka import Message

from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus._core.record import Record
from kafkabus._core.settings import Settings
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_options import GONE, LOGGER, PASSING
from kafkabus._kafka.consumer_pool import Batch, ConsumerPool, Inbox, PartitionFeed
from kafkabus._kafka.errors import NO_RIGHTS, no_rights
from kafkabus._sync.compat import Bell, Pool

CHOOSE_FOR = 0.5
"""Longest time, in seconds, of one fetch if only some of the records are wanted."""
GATHER = 0.005
"""How long, in seconds, a fetch waits for records that the brokers are known to have."""

_TRUNCATED = re.compile(r"truncation.*broker end offset is (-?\d+)")
"""The consumer's error if the log before an offset is not the one that was read; and where the log was truncated."""


class FetchFrom(NamedTuple):
    """The place at which to begin with a partition.

    Attributes:
        partition: The partition.
        offset: The first offset to fetch.
        epoch: The leader epoch of the record before that offset. The consumer then asks the brokers first whether the log
            still holds what it held there. None: it does not ask.
    """

    partition: int
    offset: int
    epoch: int | None


class OffsetNotInLogError(Exception):
    """A log does not hold the offset at which it was to be read on: it was trimmed or truncated.

    Attributes:
        partition: The partition.
        truncated_to: The offset to which the brokers say that the log was truncated, negative if they do not know it; None
            if they said nothing of a truncation.
    """

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(reason)
        truncated = _TRUNCATED.search(reason)
        self.partition = partition
        self.truncated_to = None if truncated is None else int(truncated[1])


class RecordSink(Protocol):
    """The buffers that fetched records go to: a ``LogReader``'s.

    If only some records are messages, the fetcher calls it in a thread of the pool.
    """

    def add(self, partition: int, records: Sequence[Record]) -> int:
        """Take records of a partition, in the log's order; return how many of them are messages."""
        ...

    def end(self, partition: int, offset: int) -> None:
        """Note that a log ends at an offset for now."""
        ...

    def buffered_partitions(self) -> Iterable[int]:
        """Return the partitions with buffered messages."""
        ...

    def position(self, partition: int) -> int:
        """Return the offset behind the last record of a partition that was taken."""
        ...


class PartitionFetcher:
    """Fetches some partitions of one topic for one reader; one caller at a time may use it.

    Args:
        consumers: The client's consumers.
        settings: The client's settings.
        pool: The threads for blocking calls.
        topic: The name of the topic.
        entity: The name of the entity, for errors.
        sink: The buffers.
        bell: Rings if something was fetched; others may ring it to end a wait.
    """

    def __init__(
        self,
        consumers: ConsumerPool,
        settings: Settings,
        pool: Pool,
        topic: str,
        entity: str,
        *,
        sink: RecordSink,
        bell: Bell,
    ) -> None:
        self._consumers = consumers
        self._settings = settings
        self._pool = pool
        self._topic = topic
        self._entity = entity
        self._sink = sink
        self._bell = bell
        self._inbox = Inbox(bell.ring)
        self._feeds: dict[int, PartitionFeed] = {}

    @property
    def is_fetching(self) -> bool:
        """Whether any partition is fetched."""
        return bool(self._feeds)

    @property
    def has_news(self) -> bool:
        """Whether something was fetched and not handed over."""
        return not self._inbox.is_empty

    def assign(self, places: Sequence[FetchFrom]) -> None:
        """Begin to fetch partitions that were not fetched."""
        starts = [((self._topic, place.partition), place.offset, place.epoch) for place in places]
        feeds = self._pool.run(self._consumers.open, self._inbox, starts)
        self._feeds.update(zip((place.partition for place in places), feeds, strict=True))

    def unassign(self, partitions: Iterable[int]) -> None:
        """Stop fetching partitions; records of theirs that were not handed over are dropped."""
        feeds = [feed for partition in partitions if (feed := self._feeds.pop(partition, None)) is not None]
        if feeds:
            self._consumers.close_feeds(self._inbox, feeds)

    def unassign_all(self) -> None:
        """Stop fetching, also what an interrupted call may have begun."""
        self._feeds = {}
        self._consumers.close_feeds(self._inbox, list(self._inbox.feeds))

    def seek(self, partition: int, offset: int) -> None:
        """Fetch a partition from another offset."""
        if partition in self._feeds:
            self.unassign([partition])
            self.assign([FetchFrom(partition, offset, None)])

    def fetch(self, count: int, timeout: float | None, *, chooses: bool) -> None:
        """Hand over records until the sink has ``count`` more messages, or until no more records are at hand.

        Args:
            count: The number of messages.
            timeout: The longest wait for the first record, in seconds, which the bell ends; None if messages are buffered
                already.
            chooses: Whether only some of the records are messages of the sink.

        Raises:
            OffsetNotInLogError: A log does not hold the offset to be fetched.
            MessagingEntityNotFoundError: The topic is gone.
            ServiceBusError: The records cannot be read.
        """
        if count <= 0:
            return
        added = self._take(count, chooses)
        if added is None and timeout is not None:
            self._bell.wait(timeout)
            added = self._take(count, chooses)
            if added is None:
                return
        until = time.monotonic() + CHOOSE_FOR
        while (count := count - (added or 0)) > 0 and not (chooses and time.monotonic() >= until):
            added = self._gather(count, chooses)
            if added is None:
                return

    def _gather(self, count: int, chooses: bool) -> int | None:
        """Hand over what is there, or comes in a moment if the brokers are known to have more; see ``_take``."""
        until = time.monotonic() + GATHER
        while True:
            added = self._take(count, chooses)
            left = until - time.monotonic()
            if added is not None or left <= 0 or not any(map(self.has_more, self._sink.buffered_partitions())):
                return added
            self._bell.wait(left)

    def has_more(self, partition: int) -> bool:
        """Return whether the brokers are known to hold records behind those that the sink has taken."""
        feed = self._feeds.get(partition)
        return feed is not None and self._consumers.has_more(feed, self._sink.position(partition))

    def _take(self, count: int, chooses: bool) -> int | None:
        """Hand over what was fetched, up to ``count`` messages; return how many messages it was, None if nothing was there."""
        if chooses:
            return self._pool.run(self._take_now, count)
        return self._take_now(count)

    def _take_now(self, count: int) -> int | None:
        added: int | None = None
        try:
            while (added or 0) < count and (batch := self._inbox.take()) is not None:
                added = (added or 0) + self._hand_over(batch)
        finally:
            self._consumers.on_take(self._inbox)
        return added

    def _hand_over(self, batch: Batch) -> int:
        """Give records to the sink, or heed an event; return how many records were messages."""
        _, partition = batch.feed.key
        if batch.error is not None:
            raise ServiceBusError(f"reading {self._entity} failed: {batch.error}") from batch.error
        if batch.event is not None:
            self._take_event(partition, batch.event)
        return self._sink.add(partition, cast("Sequence[Record]", batch.records)) if batch.records else 0

    def _take_event(self, partition: int, event: Message) -> None:
        error = event.error()
        code = error.code() if error is not None else None
        if code == error_codes.PARTITION_EOF:
            self._sink.end(partition, event.offset() or 0)
        elif code in GONE:
            raise MessagingEntityNotFoundError(f"{self._entity} was deleted: its topic {self._topic} is gone")
        elif code in {error_codes.AUTO_OFFSET_RESET, error_codes.LOG_TRUNCATION}:
            raise OffsetNotInLogError(partition, str(error))
        elif code in PASSING:
            LOGGER.warning("consume entity=%s partition=%d error=%s", self._entity, partition, error)
        elif error is not None and code in NO_RIGHTS:
            raise no_rights(self._settings.bootstrap_servers, f"read topic {self._topic!r}", error)
        else:
            # The consumer would continue behind a record that it cannot read, and the ledger would settle that as a hole.
            position = self._sink.position(partition)
            raise ServiceBusError(
                f"reading {self._entity}, partition {partition}, from offset {position} failed: {error}"
            )
