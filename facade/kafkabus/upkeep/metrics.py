"""The metrics of an instance of the upkeep service, in Prometheus's format."""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kafkabus.exceptions import ServiceBusError
from kafkabus.metrics import instrument, uninstrument
from kafkabus.upkeep.entity_figures import COUNTERS, EntityFigures, FiguresReader, TendedEntity
from kafkabus.upkeep.service import Upkeep
from kafkabus_mapping.names import SubQueue

LOGGER = logging.getLogger("kafkabus.upkeep")

FRESH_FOR = 5.0
"""For how long, in seconds, figures of entities are given out again, however often they are asked for."""
WAIT_FOR = 5.0
"""How long, in seconds, a scrape waits for figures of entities; without them, it gets the other metrics."""
OTHERS = "(others)"
"""The label of the entities that have no separate metrics; no entity has such a name."""
_LATE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _EntityMetric(NamedTuple):
    """A metric that each entity has.

    Attributes:
        name: The name; that of a counter ends in ``_total``.
        text: The meaning.
        figure: The attribute of ``EntityFigures``.
        sub_queue: The sub-queue whose figure it is.
    """

    name: str
    text: str
    figure: str
    sub_queue: SubQueue = SubQueue.NONE


ENTITY_METRICS = (
    _EntityMetric(
        "kafkabus_active_messages",
        "Messages that wait or are locked, deferred and postponed ones included, as the administration counts them; duplicates "
        "that were not found yet count.",
        "active",
    ),
    _EntityMetric("kafkabus_scheduled_messages", "Messages that wait for their scheduled time.", "scheduled"),
    _EntityMetric("kafkabus_deferred_messages", "Deferred messages.", "deferred"),
    _EntityMetric(
        "kafkabus_postponed_messages",
        "Messages that were abandoned, or whose locks expired, and that receivers get again after a delay.",
        "postponed",
    ),
    _EntityMetric(
        "kafkabus_locked_messages",
        "Messages that clients hold, prefetched ones included; entities with sessions have kafkabus_locked_sessions.",
        "locked",
    ),
    _EntityMetric(
        "kafkabus_locked_sessions", "Sessions that clients hold, of entities with sessions.", "held_sessions"
    ),
    _EntityMetric(
        "kafkabus_available_sessions",
        "Sessions that wait and that no client holds, of entities with sessions; the messages of a partition that no receiver "
        "has come to yet count as one.",
        "available_sessions",
    ),
    _EntityMetric(
        "kafkabus_moving_messages",
        "Messages on their way into another log, as dead letters are and messages that are forwarded.",
        "moving",
    ),
    _EntityMetric(
        "kafkabus_dead_letter_messages", "Messages in the dead-letter queue.", "active", SubQueue.DEAD_LETTER
    ),
    _EntityMetric(
        "kafkabus_transfer_dead_letter_messages",
        "Messages in the transfer dead-letter queue.",
        "active",
        SubQueue.TRANSFER_DEAD_LETTER,
    ),
    _EntityMetric(
        "kafkabus_oldest_message_age_seconds",
        "Time since the oldest message was sent that is neither settled, deferred nor scheduled; 0 if there is none. Exact to "
        "some seconds: it goes by the last checkpoint, and 100 messages are looked up at a time.",
        "oldest",
    ),
    _EntityMetric(
        "kafkabus_partition_skew_ratio",
        "Active messages of the fullest partition divided by the mean of all partitions; 1 if they are even.",
        "skew",
    ),
    _EntityMetric(
        "kafkabus_unwritten_changes_seconds",
        "How long changes of the entity's ledgers have not been in a checkpoint; 0 if all are.",
        "unwritten",
    ),
    _EntityMetric(
        "kafkabus_stored_records_total",
        "Records that the log of a queue or topic ever had: messages that were sent, forwarded, activated or moved there, and "
        "one marker for each partition of a Kafka transaction.",
        "stored",
    ),
    _EntityMetric(
        "kafkabus_settled_messages_total",
        "Records of the log that clients and upkeep are done with: completed, dropped, expired or moved elsewhere, filtered "
        "out, or no messages.",
        "settled",
    ),
    _EntityMetric(
        "kafkabus_returned_messages_total",
        "Deliveries after which a message waited again, because it was abandoned or its lock expired; since Redis has had the "
        "ledgers.",
        "returned",
    ),
    _EntityMetric(
        "kafkabus_dead_lettered_messages_total",
        "Records that the log of the dead-letter queue ever had.",
        "stored",
        SubQueue.DEAD_LETTER,
    ),
)


class UpkeepMetrics(Collector):
    """The metrics of an instance.

    Reading them takes no time from upkeep's own work: figures come in small batches, and are written out in a thread.

    Args:
        upkeep: The instance.
        version: The version of kafkabus.
        most_entities: How many entities have separate metrics, the first ones by name; the others are summed.
        pattern: A regular expression that the names of those match as a whole; None: all.
    """

    def __init__(
        self, upkeep: Upkeep, *, version: str, most_entities: int, pattern: re.Pattern[str] | None = None
    ) -> None:
        self._upkeep = upkeep
        self._version = version
        self._most_entities = most_entities
        self._pattern = pattern
        self._reader: FiguresReader | None = None
        self._reading: asyncio.Task[None] | None = None
        self._read_at = -FRESH_FOR
        self._read_for = 0.0
        self._growth = Growth()
        self._entities: dict[SubQueue, dict[str, EntityFigures]] | None = None
        self._registry = CollectorRegistry()
        self._late = Histogram(
            "kafkabus_upkeep_lateness_seconds",
            "How much later than asked for entities are tended.",
            registry=self._registry,
            buckets=_LATE_BUCKETS,
        )
        self._failures = Counter(
            "kafkabus_upkeep_failures_total",
            "Failures of upkeep's work, each of which is tried again; the log names them.",
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)
        self._registry.register(self)
        instrument(self._registry)
        upkeep.observer = self

    def close(self) -> None:
        """Count no more."""
        self._upkeep.observer = None
        uninstrument()

    def on_tending(self, late: float) -> None:
        """Note that an entity is tended, so many seconds late."""
        self._late.observe(late)

    def on_failure(self) -> None:
        """Note that something failed."""
        self._failures.inc()

    async def page(self, accept: str, *, compressed: bool) -> tuple[bytes, str]:
        """Return the metrics, and the type of their format.

        Args:
            accept: The formats that the client reads, as HTTP's header names them.
            compressed: Whether to compress them with gzip.
        """
        await self._refresh()
        encode, content_type = choose_encoder(accept)

        def write() -> bytes:
            text = encode(self._registry)
            return gzip.compress(text, 1) if compressed else text

        return await asyncio.to_thread(write), content_type

    async def _refresh(self) -> None:
        """Read the figures of entities unless they are fresh; scrapes at the same time share a reading."""
        if self._reading is None or self._reading.done():
            if time.monotonic() < self._read_at + FRESH_FOR:
                return
            self._reading = asyncio.create_task(self._read())
        # Not cancelled if it takes longer: the next scrape may have its result.
        _, late = await asyncio.wait([self._reading], timeout=WAIT_FOR)
        if late:
            self._entities = None

    async def _read(self) -> None:
        context, began = self._upkeep.context, time.monotonic()
        if context is None:
            return
        self._reader = self._reader or FiguresReader(context)
        try:
            tended = await self._reader.read(self._upkeep.maintainers)
            self._entities = await asyncio.to_thread(self._label_figures, tended)
        except ServiceBusError as error:
            self._entities = None
            LOGGER.warning("metrics_incomplete namespace=%s error=%s", context.settings.namespace, error)
        except Exception:
            self._entities = None
            LOGGER.exception("metrics_incomplete namespace=%s", context.settings.namespace)
        self._read_at = time.monotonic()
        self._read_for = self._read_at - began

    def _label_figures(self, tended: Sequence[TendedEntity]) -> dict[SubQueue, dict[str, EntityFigures]]:
        """Return the figures by sub-queue and label."""
        entities = choose_figures(tended, most=self._most_entities, pattern=self._pattern)
        self._growth.count(tended, entities)
        return entities

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are not counted by themselves."""
        upkeep = self._upkeep
        context, entities = upkeep.context, self._entities
        namespace = "" if context is None else context.settings.namespace
        info = InfoMetricFamily("kafkabus_upkeep", "The instance that gives these metrics.")
        instance = "" if context is None else context.client_id
        info.add_metric([], {"namespace": namespace, "instance_id": instance, "version": self._version})
        yield info
        yield _gauge(
            "kafkabus_upkeep_ready",
            "1 if the instance reaches Kafka and Redis and knows the entities, else 0.",
            not upkeep.health.reasons(),
        )
        yield _gauge(
            "kafkabus_upkeep_instances",
            "Instances that serve the namespace, this one included, as of its last heartbeat.",
            len(upkeep.members),
        )
        yield _gauge(
            "kafkabus_upkeep_entities",
            "Entities that this instance tends, dead-letter queues included.",
            len(upkeep.maintainers),
        )
        yield _gauge(
            "kafkabus_metrics_complete",
            "1 if the figures of entities could be read for this scrape, else 0.",
            entities is not None,
        )
        yield _gauge(
            "kafkabus_metrics_reading_seconds", "How long the last reading of figures of entities took.", self._read_for
        )
        for metric in ENTITY_METRICS:
            yield _family(metric, namespace, {} if entities is None else entities[metric.sub_queue])
        yield _refused_metric(namespace, {} if entities is None else entities)


class Growth:
    """Counters of the entities without separate metrics: what theirs grew by, since entities come and go among them."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, SubQueue, str], int] = {}
        self._grown: dict[tuple[SubQueue, str], int] = {}

    def count(self, tended: Sequence[TendedEntity], labels: dict[SubQueue, dict[str, EntityFigures]]) -> None:
        """Add to the sum of these entities by how much their counters grew.

        Args:
            tended: All entities.
            labels: Their figures by sub-queue and label; the sum gets its counters.
        """
        for name, sub_queue, figures in ((entity.name, entity.sub_queue, entity.figures) for entity in tended):
            for counter in COUNTERS:
                value = getattr(figures, counter)
                if value is None:
                    continue
                before, self._seen[name, sub_queue, counter] = self._seen.get((name, sub_queue, counter), value), value
                if name not in labels[sub_queue]:
                    # If it fell, this is another entity of that name.
                    more = value - before if value >= before else value
                    self._grown[sub_queue, counter] = self._grown.get((sub_queue, counter), 0) + more
        for (sub_queue, counter), grown in self._grown.items():
            if OTHERS in labels[sub_queue]:
                setattr(labels[sub_queue][OTHERS], counter, grown)


def choose_figures(
    tended: Sequence[TendedEntity], *, most: int, pattern: re.Pattern[str] | None
) -> dict[SubQueue, dict[str, EntityFigures]]:
    """Return the figures of entities by sub-queue and label; entities without separate metrics share one label.

    Args:
        tended: The entities.
        most: How many entities have separate metrics, the first ones by name.
        pattern: A regular expression that the names of those match as a whole; None: all.
    """
    names = sorted(
        {entity.name for entity in tended if pattern is None or pattern.fullmatch(entity.name)}, key=str.lower
    )
    own = set(names[:most])
    found: dict[SubQueue, dict[str, EntityFigures]] = {sub_queue: {} for sub_queue in SubQueue}
    for entity in tended:
        labels = found[entity.sub_queue]
        if entity.name in own:
            labels[entity.name] = entity.figures
        else:
            labels.setdefault(OTHERS, EntityFigures()).add(entity.figures)
    return found


def _refused_metric(namespace: str, entities: dict[SubQueue, dict[str, EntityFigures]]) -> Metric:
    """Return the metric of copies that their destinations do not accept."""
    family = GaugeMetricFamily(
        "kafkabus_refused_copy_bytes",
        "Size of the copy of a message that cannot be dead-lettered or forwarded, because the topic of its destination does "
        "not accept so large a record: raise that topic's max.message.bytes above it. 'kafkabus doctor' names the topic.",
        labels=["namespace", "entity", "partition", "sequence_number"],
    )
    for figures in (figures for labels in entities.values() for figures in labels.values()):
        for copy in figures.refused:
            family.add_metric([namespace, copy.path, str(copy.partition), str(copy.sequence_number)], copy.bytes)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _family(metric: _EntityMetric, namespace: str, entities: dict[str, EntityFigures]) -> Metric:
    """Return a metric of all entities that have it."""
    kind = CounterMetricFamily if metric.name.endswith("_total") else GaugeMetricFamily
    family = kind(metric.name, metric.text, labels=["namespace", "entity"])
    for name, figures in entities.items():
        value = getattr(figures, metric.figure)
        if value is not None:
            family.add_metric([namespace, name], value)
    return family
