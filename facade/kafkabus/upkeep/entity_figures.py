"""Figures of the entities that an instance tends, for its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity, has_sessions
from kafkabus._ledger.operations import LedgerFigures
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
from kafkabus.upkeep.oldest_messages import OldestMessages
from kafkabus_mapping.entities import SubscriptionDescription
from kafkabus_mapping.names import SubQueue
from kafkabus_mapping.numbers import sequence_number

LEDGERS_AT_ONCE = 50
"""How many ledgers are asked for in one round trip, between which upkeep's own work goes on: some 2 ms each."""


REFUSED_SHOWN = 10
"""How many refused copies of an entity have metrics."""


class RefusedCopy(NamedTuple):
    """A copy of a message that its destination does not accept, because it is too large.

    Attributes:
        path: Path of the entity that holds the message.
        partition: The message's partition.
        sequence_number: Its sequence number.
        bytes: The size of the copy.
    """

    path: str
    partition: int
    sequence_number: int
    bytes: int


@dataclass(slots=True)
class EntityFigures:
    """The figures of one entity, or of several together.

    A figure that an entity does not have is None.

    Attributes:
        active: Messages that wait or are locked, deferred and postponed ones included, as the administration counts them.
        scheduled: Messages that wait for their time.
        deferred: Deferred messages.
        postponed: Messages that were given back, and are not received again before a time.
        locked: Locked messages; None if there are sessions.
        held_sessions: Sessions that clients hold; None if the entity has none.
        available_sessions: Sessions that wait and that no client holds; messages of a partition that no receiver has come to
            yet count as one. None if the entity has none.
        moving: Messages on their way into another log.
        stored: Records that the log ever had; it never falls.
        settled: Offsets below the cursor that hold no message that is left; it never falls.
        returned: Deliveries after which a message waited again; it never falls.
        oldest: The age of the oldest message that is not settled, in seconds; 0 if there is none.
        skew: The active messages of the fullest partition, against the mean of all partitions.
        unwritten: For how long, in seconds, changes have not been in a checkpoint; 0 if all are.
        refused: Copies of messages that their destinations do not accept, at most ``REFUSED_SHOWN`` of them.
    """

    active: int | None = None
    scheduled: int | None = None
    deferred: int | None = None
    postponed: int | None = None
    locked: int | None = None
    held_sessions: int | None = None
    available_sessions: int | None = None
    moving: int | None = None
    stored: int | None = None
    settled: int | None = None
    returned: int | None = None
    oldest: float | None = None
    skew: float | None = None
    unwritten: float | None = None
    refused: tuple[RefusedCopy, ...] = ()

    def add(self, other: EntityFigures) -> None:
        """Add another entity's: numbers are summed, of times the longest counts, and skew and counters are unknown."""
        for name in _SUMMED:
            setattr(self, name, _join_figures(sum, getattr(self, name), getattr(other, name)))
        for name in _LONGEST:
            setattr(self, name, _join_figures(max, getattr(self, name), getattr(other, name)))
        self.skew = None
        self.refused = (self.refused + other.refused)[:REFUSED_SHOWN]

    def hold(self, before: EntityFigures) -> None:
        """Let no counter fall below an earlier one: a message that is activated, for one, counts as open for a moment."""
        for name in COUNTERS:
            setattr(self, name, _join_figures(max, getattr(self, name), getattr(before, name)))


_SUMMED = ("active", "scheduled", "deferred", "postponed", "locked", "held_sessions", "available_sessions", "moving")
_LONGEST = ("oldest", "unwritten")
COUNTERS = ("stored", "settled", "returned")
"""The figures that only grow."""


@dataclass(frozen=True, slots=True)
class TendedEntity:
    """An entity that the instance tends, and its figures.

    Attributes:
        name: The name of the queue, topic or subscription.
        sub_queue: The sub-queue of it whose figures these are, or none.
        figures: The figures.
    """

    name: str
    sub_queue: SubQueue
    figures: EntityFigures


class FiguresReader:
    """Reads the figures of entities: the ledgers' from Redis in few round trips, the rest from what upkeep knows.

    Kafka is asked for the oldest records alone, if they were not read yet.

    Args:
        context: The service's parts.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._oldest = OldestMessages(context.connections.offset_reader)
        self._highest: dict[str, EntityFigures] = {}

    async def read(self, maintainers: Iterable[EntityMaintainer]) -> list[TendedEntity]:
        """Return the figures of the entities that some maintainers tend.

        Raises:
            ServiceBusError: Redis cannot be reached.
        """
        tended = [
            (maintainer, maintainer.entity)
            for maintainer in maintainers
            if maintainer.entity is not None and maintainer.ends
        ]
        highest: dict[str, EntityFigures] = {}
        found: list[tuple[Entity, EntityFigures]] = []
        with self._oldest.note_anew() as note:
            for batch in _batches(tended):
                ledgers = iter(
                    await self._context.ledger_client.figures(
                        [ledger for _, entity in batch for ledger in entity.ledgers]
                    )
                )
                for maintainer, entity in batch:
                    own = [next(ledgers) for _ in entity.ledgers]
                    note(maintainer, entity, own)
                    figures, key = self._figures_of(maintainer, entity, own), f"{entity.path.key} {entity.generation}"
                    if key in self._highest:
                        figures.hold(self._highest[key])
                    highest[key] = figures
                    found.append((entity, figures))
        self._highest = highest
        await self._oldest.read()
        return [await self._with_age(*tended_entity) for tended_entity in found]

    async def _with_age(self, entity: Entity, figures: EntityFigures) -> TendedEntity:
        """Return an entity with its figures, and the age of its oldest message among them."""
        if not entity.is_topic:
            figures.oldest = self._oldest.age_of(entity)
        # Upkeep's own work goes on.
        await asyncio.sleep(0)
        return TendedEntity(entity.description.name, entity.path.sub_queue, figures)

    def _figures_of(
        self, maintainer: EntityMaintainer, entity: Entity, ledgers: Sequence[LedgerFigures | None]
    ) -> EntityFigures:
        ends = [maintainer.ends.get(partition, 0) for partition in range(entity.partitions)]
        known = [ledger for ledger in ledgers if ledger is not None]
        figures = EntityFigures(
            scheduled=sum(ledger.scheduled for ledger in known),
            moving=sum(ledger.moving for ledger in known),
            refused=_refused_copies(entity, ledgers),
            unwritten=maintainer.unwritten_for([None if ledger is None else ledger.changed for ledger in ledgers]),
        )
        if entity.path.is_dead_letter or not isinstance(entity.description, SubscriptionDescription):
            figures.stored = sum(ends)
        if entity.is_topic:
            return figures
        ahead = [
            0 if ledger is None else _ahead(ledger, end, maintainer.holes(partition, ledger.cursor))
            for partition, (ledger, end) in enumerate(zip(ledgers, ends, strict=True))
        ]
        active = [
            waiting + (0 if ledger is None else max(0, ledger.in_flight - ledger.scheduled - ledger.moving))
            for waiting, ledger in zip(ahead, ledgers, strict=True)
        ]
        figures.active = sum(active)
        figures.skew = max(active) * len(active) / sum(active) if any(active) else 1.0
        figures.deferred = sum(ledger.deferred for ledger in known)
        figures.postponed = sum(ledger.postponed for ledger in known)
        figures.settled = sum(max(0, ledger.cursor - max(0, ledger.in_flight - ledger.scheduled)) for ledger in known)
        figures.returned = sum(ledger.returned for ledger in known)
        if has_sessions(entity.path, entity.description):
            figures.held_sessions = sum(ledger.held_sessions for ledger in known)
            figures.available_sessions = sum(ledger.free_sessions for ledger in known) + sum(map(bool, ahead))
        else:
            figures.locked = sum(ledger.locked for ledger in known)
        return figures


def _batches(
    tended: Iterable[tuple[EntityMaintainer, Entity]],
) -> Iterator[list[tuple[EntityMaintainer, Entity]]]:
    """Yield entities in batches with up to ``LEDGERS_AT_ONCE`` ledgers, or of one entity."""
    batch: list[tuple[EntityMaintainer, Entity]] = []
    ledgers = 0
    for maintainer, entity in tended:
        if batch and ledgers + entity.partitions > LEDGERS_AT_ONCE:
            yield batch
            batch, ledgers = [], 0
        batch.append((maintainer, entity))
        ledgers += entity.partitions
    if batch:
        yield batch


def _refused_copies(entity: Entity, ledgers: Sequence[LedgerFigures | None]) -> tuple[RefusedCopy, ...]:
    copies = [
        RefusedCopy(str(entity.path), partition, sequence_number(partition, offset), size)
        for partition, ledger in enumerate(ledgers)
        if ledger is not None
        for offset, size in ledger.refused
    ]
    return tuple(copies[:REFUSED_SHOWN])


def _ahead(ledger: LedgerFigures, end: int, holes: int) -> int:
    """Return how many messages of a partition no receiver has come to yet; see ``Administration._counts``."""
    return max(0, end - ledger.cursor - ledger.skipped - holes)


def _join_figures(join: Callable[[list[float]], float], *figures: float | None) -> float | None:
    """Return figures joined by a function; None if none is known."""
    known = [figure for figure in figures if figure is not None]
    return join(known) if known else None
