"""The Kafka consumers of a client: a few threads, however many entities it receives from.

A consumer holds one position in a log. Partitions at which little happens are assigned to the patient consumer, whose fetches
wait long at the brokers; that one fetches thousands of idle partitions for next to nothing, but takes up a partition only
when a fetch has ended. The prompt consumers take up a partition at once: new ones, busy ones, and those that several readers
read from different offsets, as the subscriptions of one topic do. The fetched records go into the inboxes of readers.

The thread of a consumer alone polls it and changes its assignment, so that it is known which assignment a record belongs to.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from itertools import groupby
from operator import methodcaller
from typing import NamedTuple

from confluent_kafka import KafkaException, Message, TopicPartition

from kafkabus._core.settings import Settings
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_factory import ask_for_leaders, open_consumer
from kafkabus._kafka.client_options import LOGGER, PASSING, patient_consumer_options, prompt_consumer_options

PROMPT_CONSUMERS = 3
"""How many readers of one client read a log from different offsets at a time; others take turns."""
CHUNK = 500
"""How many records a consumer's thread takes at a time, so that a reader need not wait long for its first ones."""
FULL_COUNT, FULL_SIZE = 5_000, 16 * 1024 * 1024
"""How many records, and bytes of them, wait in an inbox before its consumer pauses; if it has other readers, twice as many."""
PROMPT_POLL, PATIENT_POLL = 0.005, 0.1
"""Longest time, in seconds, of one poll, and so the longest delay until a changed assignment takes effect."""
PAUSE = 0.1
"""Longest pause, in seconds, of a consumer whose inboxes are full, if no reader wakes it."""
SURVEY = 1.0
"""How often, in seconds, a consumer's thread looks which partitions to hand over to another consumer."""
CALM, BUSY = 20, 100
"""Below how many records between two surveys a partition is calm, and from how many on it is busy."""
CALM_SURVEYS = 3
"""After how many surveys a calm partition goes to the patient consumer."""
NEAR = 1_000
"""How many records one reader's position may be ahead of another's for both to share a consumer from now on."""
CLOSE_AFTER = 10.0
"""After how many seconds without a partition a consumer is closed."""

Key = tuple[str, int]
"""A topic and a partition of it."""

_PARTITION_OF, _TOPIC_OF = methodcaller("partition"), methodcaller("topic")


class Batch(NamedTuple):
    """Records of one partition in the log's order, or an event, or the error of a consumer that failed.

    Attributes:
        feed: The feed that they are of.
        records: The records.
        size: The bytes of their values.
        event: The event: a message with an error.
        error: The error.
    """

    feed: PartitionFeed
    records: Sequence[Message] = ()
    size: int = 0
    event: Message | None = None
    error: Exception | None = None


class Inbox:
    """Batches that were fetched for one reader and not taken. One thread at a time takes; the threads of consumers add.

    Args:
        on_news: Called in a consumer's thread if something was added.
    """

    def __init__(self, on_news: Callable[[], None]) -> None:
        self.on_news = on_news
        self.feeds: set[PartitionFeed] = set()
        self.was_full = False
        self._batches: deque[Batch] = deque()
        # Each counter has one writer at a time: no lock is needed.
        self._added = self._added_size = self._taken = self._taken_size = 0

    @property
    def fill(self) -> float:
        """How full the inbox is; 1: its consumer pauses."""
        return max((self._added - self._taken) / FULL_COUNT, (self._added_size - self._taken_size) / FULL_SIZE)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._batches

    def add(self, batch: Batch) -> None:
        """Add a batch; the caller has the pool's lock."""
        self._batches.append(batch)
        self._added += len(batch.records)
        self._added_size += batch.size

    def take(self) -> Batch | None:
        """Return the next batch of a feed that is open; None if there is none."""
        while self._batches:
            batch = self._batches.popleft()
            self._taken += len(batch.records)
            self._taken_size += batch.size
            if batch.feed.is_open:
                return batch
        return None

    def drop_closed(self) -> None:
        """Drop the batches of feeds that were closed; the caller takes, and has the pool's lock."""
        for _ in range(len(self._batches)):
            batch = self._batches.popleft()
            if batch.feed.is_open:
                self._batches.append(batch)
            else:
                self._taken += len(batch.records)
                self._taken_size += batch.size


class PartitionFeed:
    """The records of one partition for one reader, from an offset on.

    Attributes:
        inbox: The inbox that they go into.
        key: The topic and the partition.
        position: The offset behind the last record that went there.
        epoch: The leader epoch of that record, if it is known.
        is_open: Whether the reader still wants them.
        is_proved: Whether a broker has answered for this position: with records, or with the log's end.
        places: The places that they come from: one, two while it is handed over, none while there is no room.
    """

    __slots__ = ("epoch", "inbox", "is_open", "is_proved", "key", "places", "position")

    def __init__(self, inbox: Inbox, key: Key, position: int, epoch: int | None) -> None:
        self.inbox = inbox
        self.key = key
        self.position = position
        self.epoch = epoch
        self.is_open = True
        self.is_proved = False
        self.places: list[_Place] = []


class _Place:
    """A partition that is assigned to a consumer, or will be.

    Attributes:
        consumer: The consumer.
        key: The topic and the partition.
        position: The offset behind the last record that was fetched.
        epoch: The leader epoch of the record before it, if it is known; a broker is asked whether the log still has that.
        end: The end of the log that the consumer knew when it fetched last.
        feeds: For whom it is fetched.
        is_assigned: Whether the consumer knows of it.
        is_checked: Whether what it fetches is of the log that was read before, or the consumer will report that it is not.
        is_proved: Whether a broker has answered.
        is_broken: Whether the consumer does not go on with it, because of an error that the readers know.
        predecessor: The place that this one is to replace once it is proved.
        is_left: Whether another one is to replace this one.
        fetched: How many records came since the last survey.
        calm_for: For how many surveys few records came.
    """

    __slots__ = (
        "calm_for",
        "consumer",
        "end",
        "epoch",
        "feeds",
        "fetched",
        "is_assigned",
        "is_broken",
        "is_checked",
        "is_left",
        "is_proved",
        "key",
        "position",
        "predecessor",
    )

    def __init__(self, consumer: _PooledConsumer, key: Key, position: int, epoch: int | None) -> None:
        self.consumer = consumer
        self.key = key
        self.position = position
        self.epoch = epoch
        self.feeds: list[PartitionFeed] = []
        self.is_assigned = self.is_checked = self.is_proved = self.is_broken = self.is_left = False
        self.predecessor: _Place | None = None
        self.end = self.fetched = self.calm_for = 0

    @property
    def is_needed(self) -> bool:
        """Whether its consumer is still to fetch it."""
        return self.consumer.places.get(self.key) is self

    @property
    def is_steady(self) -> bool:
        """Whether it is fetched, and no other one is about to replace it, or to be replaced."""
        return self.is_proved and not (self.is_broken or self.is_left) and self.predecessor is None

    def suits(self, feed: PartitionFeed) -> bool:
        """Return whether a feed may get its records from here: all of them come, and the log before them is the same."""
        if self.is_broken or self.is_left or self.position > feed.position:
            return False
        return feed.is_proved or feed.epoch is None or (self.position == feed.position and self.epoch == feed.epoch)

    def add(self, feed: PartitionFeed) -> None:
        self.feeds.append(feed)
        feed.places.append(self)
        feed.is_proved |= self.is_proved

    def remove(self, feed: PartitionFeed) -> None:
        self.feeds.remove(feed)
        feed.places.remove(self)

    @property
    def start(self) -> TopicPartition:
        """The partition, with the offset at which to begin."""
        topic, partition = self.key
        if self.epoch is None:
            return TopicPartition(topic, partition, self.position)
        return TopicPartition(topic, partition, self.position, "", self.epoch)


class ConsumerPool:
    """The consumers of a client; safe to share. Consumers are opened as they are needed, and closed when they are not.

    Args:
        settings: The client's settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.lock = threading.Lock()
        self._patient: _PooledConsumer | None = None
        self._prompt: list[_PooledConsumer | None] = [None] * PROMPT_CONSUMERS
        self._waiting: deque[PartitionFeed] = deque()
        self._threads: set[threading.Thread] = set()

    # For readers.

    def open(self, inbox: Inbox, starts: Iterable[tuple[Key, int, int | None]]) -> list[PartitionFeed]:
        """Begin to fetch partitions for a reader.

        Args:
            inbox: The reader's inbox.
            starts: For each partition the offset at which to begin, and the leader epoch of the record before it: a broker is
                asked first whether the log still holds that record. None: it is not asked.

        Raises:
            KafkaException: The settings are none that Kafka's client accepts.
        """
        with self.lock:
            feeds = [PartitionFeed(inbox, *start) for start in starts]
            for feed in feeds:
                self._settle(feed)
                inbox.feeds.add(feed)
        return feeds

    def close_feeds(self, inbox: Inbox, feeds: Iterable[PartitionFeed]) -> None:
        """Stop fetching some of a reader's partitions; what was not taken is dropped. The caller is the one that takes."""
        with self.lock:
            for feed in feeds:
                feed.is_open = False
                inbox.feeds.discard(feed)
                self._leave(feed)
            inbox.drop_closed()
            self._serve_waiting()

    def on_take(self, inbox: Inbox) -> None:
        """Note that a reader took from its inbox: if that was full, go on to fetch."""
        if inbox.was_full and inbox.fill < 0.5:
            with self.lock:
                inbox.was_full = False
                for feed in inbox.feeds:
                    if not feed.places and feed not in self._waiting:
                        self._settle(feed)
                    for place in feed.places:
                        place.consumer.goes_on.set()

    def has_more(self, feed: PartitionFeed, position: int) -> bool:
        """Return whether the brokers are known to hold records of a partition from a position on."""
        return any(place.end > position for place in tuple(feed.places))

    def end(self) -> None:
        """Have all consumers closed soon; ``close`` waits for it."""
        with self.lock:
            for consumer in self._open_ones():
                consumer.is_ending = True
                consumer.goes_on.set()

    def close(self) -> None:
        """Close all consumers, and wait until they are."""
        self.end()
        with self.lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    # For consumers; the caller has the lock.

    def park(self, inbox: Inbox) -> None:
        """Stop fetching for an inbox that is full, until its reader has taken from it."""
        for feed in inbox.feeds:
            self._leave(feed)
        self._serve_waiting()

    def is_awaited(self, inbox: Inbox) -> bool:
        """Return whether other readers wait until a consumer does not fetch for this one."""
        keys = {feed.key for feed in self._waiting}
        return any(feed.key in keys for feed in inbox.feeds)

    def hand_over(self, place: _Place) -> None:
        """Have another consumer fetch what a consumer fetches, if it is better there."""
        if not place.is_steady or self._yields(place):
            return
        target: _PooledConsumer | None = None
        if place.consumer is self._patient:
            if place.fetched >= BUSY:
                target = self._prompt_without(place.key)
        elif not self._joins_another(place) and place.calm_for >= CALM_SURVEYS:
            self._patient = self._patient or self._begin(patient=True)
            target = None if place.key in self._patient.places else self._patient
        if target is not None:
            # Both fetch it until the new one does for sure: a fetch that is under way may have long to wait.
            successor = target.begin(place.key, place.position, place.epoch)
            successor.predecessor, place.is_left = place, True
            for feed in place.feeds:
                successor.add(feed)

    def _yields(self, place: _Place) -> bool:
        """If other readers wait for their turn, and another consumer is further on in the log, give them the turn."""
        awaited = any(feed.key == place.key for feed in self._waiting)
        if not awaited or all(place.position >= other.position for other in self._places_of(place.key)):
            return False
        for feed in list(place.feeds):
            self._leave(feed)
            self._waiting.append(feed)
        self._serve_waiting()
        return True

    def _joins_another(self, place: _Place) -> bool:
        """If another consumer has come to the same part of the log, have it fetch for all; return whether that is so."""
        for other in self._places_of(place.key):
            near = other is not place and other.is_steady and 0 <= place.position - other.position <= NEAR
            if near and all(map(other.suits, place.feeds)):
                for feed in list(place.feeds):
                    place.remove(feed)
                    other.add(feed)
                place.consumer.release(place)
                self._serve_waiting()
                return True
        return False

    def on_answer(self, place: _Place) -> None:
        """Note that a broker answered for a place: it replaces the place before."""
        place.is_proved = True
        for feed in place.feeds:
            feed.is_proved = True
        before, place.predecessor = place.predecessor, None
        if before is not None:
            for feed in list(before.feeds):
                if feed in place.feeds:
                    before.remove(feed)
            before.is_left = False
            if not before.feeds:
                before.consumer.release(before)
                self._serve_waiting()

    def on_end(self, consumer: _PooledConsumer) -> None:
        """Forget a consumer, which has no places and will be closed."""
        if self._patient is consumer:
            self._patient = None
        self._prompt = [None if known is consumer else known for known in self._prompt]

    def on_thread_end(self) -> None:
        """Forget the thread of a consumer that was closed."""
        self._threads.discard(threading.current_thread())

    def _settle(self, feed: PartitionFeed) -> None:
        """Find a consumer for a feed; if all read its log from other offsets, it waits until one does not."""
        for place in self._places_of(feed.key):
            if place.suits(feed):
                place.add(feed)
                return
        consumer = self._prompt_without(feed.key)
        if consumer is None:
            self._waiting.append(feed)
        else:
            consumer.begin(feed.key, feed.position, feed.epoch).add(feed)

    def _leave(self, feed: PartitionFeed) -> None:
        """Take a feed from its places."""
        # The log may be another one when it is read on.
        feed.is_proved = False
        for place in list(feed.places):
            place.remove(feed)
            if not place.feeds:
                place.consumer.release(place)
        if feed in self._waiting:
            self._waiting.remove(feed)

    def _serve_waiting(self) -> None:
        """Find consumers for feeds that wait for one."""
        for _ in range(len(self._waiting)):
            self._settle(self._waiting.popleft())

    def _places_of(self, key: Key) -> Iterator[_Place]:
        for consumer in self._open_ones():
            place = consumer.places.get(key)
            if place is not None:
                yield place

    def _prompt_without(self, key: Key) -> _PooledConsumer | None:
        """Return a prompt consumer to which a partition is not assigned; None if all have it."""
        for number, known in enumerate(self._prompt):
            if known is None:
                self._prompt[number] = begun = self._begin(patient=False)
                return begun
            if key not in known.places:
                return known
        return None

    def _begin(self, *, patient: bool) -> _PooledConsumer:
        consumer = _PooledConsumer(self, self._settings, patient=patient)
        thread = threading.Thread(target=consumer.run, name="kafkabus-consumer", daemon=True)
        self._threads.add(thread)
        thread.start()
        return consumer

    def _open_ones(self) -> Iterator[_PooledConsumer]:
        if self._patient is not None:
            yield self._patient
        for consumer in self._prompt:
            if consumer is not None:
                yield consumer


class _PooledConsumer:
    """One consumer, and what its thread does.

    Args:
        pool: The pool that it is of.
        settings: The client's settings.
        patient: Whether its fetches wait long at the brokers.

    Attributes:
        places: The partitions that are assigned to it, or will be; the pool's lock guards them.
        goes_on: Wakes the thread while it pauses.
        is_ending: Whether to close the consumer.
    """

    def __init__(self, pool: ConsumerPool, settings: Settings, *, patient: bool) -> None:
        options = (patient_consumer_options if patient else prompt_consumer_options)(settings)
        self.places: dict[Key, _Place] = {}
        self.goes_on = threading.Event()
        self.is_ending = False
        self._pool = pool
        self._patient = patient
        self._poll = PATIENT_POLL if patient else PROMPT_POLL
        self._consumer = open_consumer(settings, options)
        self._orders: deque[tuple[bool, _Place]] = deque()
        self._unchecked: list[_Place] = []
        self._survey_at = time.monotonic() + SURVEY
        self._used_at = time.monotonic()
        self._filled = False

    # The caller has the pool's lock.

    def begin(self, key: Key, position: int, epoch: int | None) -> _Place:
        """Have a partition assigned."""
        place = self.places[key] = _Place(self, key, position, epoch)
        self._orders.append((True, place))
        self.goes_on.set()
        return place

    def release(self, place: _Place) -> None:
        """Have a partition unassigned."""
        if place.is_needed:
            del self.places[place.key]
            self._orders.append((False, place))
            self.goes_on.set()

    # In the consumer's thread.

    def run(self) -> None:
        """Fetch until the consumer is not needed any more."""
        consumer = self._consumer
        try:
            while not self._ends():
                self._carry_out_orders()
                self._have_checked()
                self._survey()
                if self._pauses():
                    self.goes_on.wait(PAUSE)
                    self.goes_on.clear()
                    continue
                message = consumer.poll(self._poll)
                if message is not None:
                    self._hand_out([message, *consumer.consume(CHUNK - 1, 0)])
        except Exception as error:  # noqa: BLE001 - it is raised where a reader takes
            LOGGER.exception("consumer_failed")
            self._fail(error)
        finally:
            consumer.close()
            with self._pool.lock:
                self._pool.on_thread_end()

    def _ends(self) -> bool:
        """Return whether the consumer is not needed any more; from then on the pool does not know it."""
        now = time.monotonic()
        if self.places:
            self._used_at = now
        if not self.is_ending and now - self._used_at < CLOSE_AFTER:
            return False
        with self._pool.lock:
            if self.places and not self.is_ending:
                return False
            self._pool.on_end(self)
            return True

    def _fail(self, error: Exception) -> None:
        """Pass an error to all readers after which the consumer cannot be used."""
        inboxes: set[Inbox] = set()
        with self._pool.lock:
            self._pool.on_end(self)
            for place in self.places.values():
                place.is_broken = True
                for feed in place.feeds:
                    feed.inbox.add(Batch(feed, error=error))
                    inboxes.add(feed.inbox)
        _ring(inboxes)

    def _carry_out_orders(self) -> None:
        while self._orders:
            with self._pool.lock:
                assigns = self._orders[0][0]
                places: list[_Place] = []
                while self._orders and self._orders[0][0] is assigns:
                    places.append(self._orders.popleft()[1])
                if assigns:
                    places = [place for place in places if place.is_needed]
                    starts = [place.start for place in places]
                else:
                    starts = [place.start for place in places if place.is_assigned]
            if not starts:
                continue
            if not assigns:
                self._consumer.incremental_unassign(starts)
                continue
            self._consumer.incremental_assign(starts)
            with self._pool.lock:
                known = {place.key[0] for place in self.places.values() if place.is_assigned}
                for place in places:
                    place.is_assigned = True
            self._unchecked += places
            self._have_checked()
            self._learn_leaders({start.topic for start in starts} - known)

    def _have_checked(self) -> None:
        """Have the brokers asked, if the consumer is ready for it, whether logs are still those that were read.

        Kafka's client asks after each seek; after an assignment only if it did not know the partition's leader.
        """
        for place in self._unchecked:
            # A consumer that does not fetch yet refuses to seek.
            with suppress(KafkaException):
                if place.epoch is not None:
                    self._consumer.seek(place.start)
                place.is_checked = True
        self._unchecked = [place for place in self._unchecked if place.is_needed and not place.is_checked]

    def _learn_leaders(self, topics: Set[str]) -> None:
        """See ``ask_for_leaders``; the patient consumer takes over from another one, and has time."""
        if topics and not self._patient:
            ask_for_leaders(self._consumer, topics)

    def _pauses(self) -> bool:
        """Return whether there is no room for what would be fetched: then the brokers' answers wait in Kafka's client."""
        if not self._filled:
            return False
        with self._pool.lock:
            inboxes = {feed.inbox for place in self.places.values() for feed in place.feeds}
            self._filled = bool(inboxes) and all(inbox.fill >= 1 for inbox in inboxes)
            for inbox in inboxes if self._filled else ():
                if self._pool.is_awaited(inbox):
                    self._pool.park(inbox)
            return self._filled

    def _survey(self) -> None:
        """See which partitions another consumer should fetch."""
        now = time.monotonic()
        if now < self._survey_at:
            return
        self._survey_at = now + SURVEY
        with self._pool.lock:
            for place in list(self.places.values()):
                place.calm_for = place.calm_for + 1 if place.fetched < CALM else 0
                self._pool.hand_over(place)
                place.fetched = 0

    def _hand_out(self, messages: Sequence[Message]) -> None:
        """Put records and events into the inboxes of those that read them."""
        inboxes: set[Inbox] = set()
        with self._pool.lock:
            for partition, of_partition in groupby(messages, _PARTITION_OF):
                for topic, group in groupby(of_partition, _TOPIC_OF):
                    place = self.places.get((topic, partition))
                    if place is not None and place.is_assigned:
                        self._hand_out_of(place, list(group), inboxes)
                    elif partition < 0:
                        self._tell_all(list(group), inboxes)
            for inbox in inboxes:
                fill = inbox.fill
                if fill >= 1:
                    self._filled = inbox.was_full = True
                    if fill >= 2:
                        self._pool.park(inbox)
        _ring(inboxes)

    def _hand_out_of(self, place: _Place, messages: Sequence[Message], inboxes: set[Inbox]) -> None:
        """Put records and events of one partition into inboxes."""
        if not place.is_checked:
            messages = [message for message in messages if _code_of(message) not in {None, error_codes.PARTITION_EOF}]
        records = [message for message in messages if message.error() is None]
        if records:
            size = sum(map(len, records))
            place.fetched += len(records)
            place.position, place.epoch = _next_offset(records[-1]), _epoch_of(records[-1], place.epoch)
            # In this thread: in another one the call would wait until no poll is under way.
            _, place.end = self._consumer.get_watermark_offsets(TopicPartition(*place.key), cached=True)
            for feed in place.feeds:
                _add(feed, records, size)
        # Events are last: the records that came with them must not be taken for a hole.
        events = (
            [message for message in messages if message.error() is not None] if len(records) < len(messages) else []
        )
        for event in events:
            self._hand_out_event(place, event)
        inboxes.update(feed.inbox for feed in place.feeds)
        answered = records or any(_code_of(event) == error_codes.PARTITION_EOF for event in events)
        if answered and not (place.is_proved or place.is_broken):
            self._pool.on_answer(place)

    @staticmethod
    def _hand_out_event(place: _Place, event: Message) -> None:
        """Put an event into inboxes: a log's end, or an error."""
        if _code_of(event) not in {*PASSING, error_codes.PARTITION_EOF}:
            place.is_broken = True
        for feed in place.feeds:
            feed.inbox.add(Batch(feed, event=event))

    def _tell_all(self, events: Sequence[Message], inboxes: set[Inbox]) -> None:
        """Put events that are of no partition into all inboxes."""
        for inbox in {feed.inbox for place in self.places.values() for feed in place.feeds}:
            inboxes.add(inbox)
            for event in events:
                inbox.add(Batch(next(iter(inbox.feeds)), event=event))


def _add(feed: PartitionFeed, records: list[Message], size: int) -> None:
    """Put records of a partition into an inbox, without those that went there before."""
    if (records[0].offset() or 0) < feed.position:
        records = [record for record in records if (record.offset() or 0) >= feed.position]
        if not records:
            return
        size = sum(map(len, records))
    feed.inbox.add(Batch(feed, records, size))
    feed.position, feed.epoch = _next_offset(records[-1]), _epoch_of(records[-1], feed.epoch)


def _next_offset(record: Message) -> int:
    return (record.offset() or 0) + 1


def _epoch_of(record: Message, before: int | None) -> int | None:
    epoch = record.leader_epoch()
    return epoch if epoch is not None and epoch >= 0 else before


def _code_of(event: Message) -> int | None:
    error = event.error()
    return None if error is None else error.code()


def _ring(inboxes: Iterable[Inbox]) -> None:
    for inbox in inboxes:
        inbox.on_news()
