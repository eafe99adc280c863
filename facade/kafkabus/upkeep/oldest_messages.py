"""The ages of the oldest messages of entities, with few reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kafkabus._async.kafka.offset_reader import OffsetReader
from kafkabus._core.entity import Entity
from kafkabus._ledger.operations import LedgerFigures
from kafkabus.exceptions import ServiceBusError
from kafkabus.upkeep.entity_maintainer import EntityMaintainer

Note = Callable[[EntityMaintainer, Entity, Sequence[LedgerFigures | None]], None]
"""Takes note of an entity, and of the figures of its ledgers."""

READ_AT_ONCE = 100
"""How many records are read at the most in one go; the others are read in the next ones."""
READ_FOR = 1.0
"""For how long, in seconds, records are read at the most in one go."""
LOOKED_PAST = 10
"""How many offsets behind the oldest one are read, too, because some hold no message."""


@dataclass(slots=True)
class _Oldest:
    """The oldest message of a partition.

    Attributes:
        topic: The Kafka topic.
        offset: The message's offset.
        last: The last offset to read, if that one holds no message.
        stored_at: When the message was stored, in seconds since 1970, or an earlier one if it was not read yet; None: unknown.
        is_read: Whether it was read.
    """

    topic: str
    offset: int
    last: int
    stored_at: float | None = None
    is_read: bool = False


class OldestMessages:
    """Knows how long ago the oldest message of each entity was stored; each such message is read once.

    Args:
        reader: Reads records by offset.
    """

    def __init__(self, reader: OffsetReader) -> None:
        self._reader = reader
        self._known: dict[tuple[str, int], _Oldest] = {}

    @contextmanager
    def note_anew(self) -> Generator[Note, None, None]:
        """Forget all entities but those that are noted in a block.

        Yields:
            A function that goes by the present figures of an entity's ledgers.
        """
        before, known = self._known, dict[tuple[str, int], _Oldest]()

        def note(maintainer: EntityMaintainer, entity: Entity, ledgers: Sequence[LedgerFigures | None]) -> None:
            for partition, figures in enumerate(() if entity.is_topic else ledgers):
                offset = None if figures is None else _first_of(maintainer, partition, figures)
                if offset is not None:
                    place = entity.path.key, partition
                    last = min(offset + LOOKED_PAST, maintainer.ends[partition] - 1)
                    known[place] = _as_known(_Oldest(entity.topic, offset, last), before.get(place))

        yield note
        self._known = known

    def age_of(self, entity: Entity) -> float:
        """Return the age of an entity's oldest message, in seconds; 0 if there is none, or none was read yet."""
        known = (self._known.get((entity.path.key, partition)) for partition in range(entity.partitions))
        times = [message.stored_at for message in known if message is not None and message.stored_at is not None]
        return max(0.0, time.time() - min(times)) if times else 0.0

    async def read(self) -> None:
        """Read messages that were not read yet, those first of which no earlier one is known."""
        unread = [
            (place, message)
            for place, message in self._known.items()
            if not message.is_read and message.last >= message.offset
        ]
        unread.sort(key=lambda entry: entry[1].stored_at or 0.0)
        until = time.monotonic() + READ_FOR
        for (_, partition), message in unread[:READ_AT_ONCE]:
            left = until - time.monotonic()
            if left <= 0:
                return
            try:
                records = await self._reader.read(message.topic, partition, message.offset, message.last, left)
            except ServiceBusError:
                # The next time tries again; upkeep itself logs what it cannot read.
                continue
            message.is_read = True
            message.stored_at = records[0].timestamp()[1] / 1000 if records else None


def _first_of(maintainer: EntityMaintainer, partition: int, figures: LedgerFigures) -> int | None:
    """Return the offset of the oldest message of a partition that is neither deferred nor scheduled; None: there is none."""
    end = maintainer.ends.get(partition, 0)
    if figures.in_flight > figures.scheduled + figures.deferred:
        first = maintainer.first_unsettled(partition)
        # A new message may not be in a checkpoint yet.
        return None if first is None else min(first, max(0, end - 1))
    return figures.cursor if figures.cursor < end else None


def _as_known(now: _Oldest, before: _Oldest | None) -> _Oldest:
    """Return what is known of a message: all, if it was the oldest before; else that it is no older than that one."""
    if before is None or before.offset > now.offset or before.topic != now.topic:
        return now
    now.stored_at, now.is_read = before.stored_at, before.is_read and before.offset == now.offset
    return now
