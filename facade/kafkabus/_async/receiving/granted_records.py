"""Reading, by offset, the records of messages that a lease holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from kafkabus._async.connections import Connections
from kafkabus._async.kafka.offset_reader import READ_TIMEOUT, SILENCE, LogTruncatedError, UnfinishedReadError
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._core.delivery import Delivery
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.fetch_plan import PartitionView
from kafkabus._core.record import Record
from kafkabus._ledger.operations import Settlement
from kafkabus._ledger.ranges import Range, common, merge_offsets, offsets_of

LOGGER = logging.getLogger("kafkabus.reader")

SWEPT_AT_ONCE = 1_000
"""How many offsets one read of messages that were granted before spans at the most."""
GRANTED_READ = 5.0
"""Longest time, in seconds, of a read of granted messages; messages that do not come in time are given back."""
LEAVE_SILENT = 10.0
"""For how long, in seconds, no records of a partition are read by offset after none came."""


class GrantedRecords:
    """Reads the records of granted messages; those that do not come in time are given back.

    Args:
        connections: The client's connections.
        archive: The records that are kept apart from their logs.
        entity: Returns the entity whose records are read, as it is described now.
        views: The partitions, by number.
        doubt: Called with a partition whose log may have been truncated.
        in_order: Whether a record that does not come is an error, because later ones must not overtake it.
    """

    def __init__(
        self,
        connections: Connections,
        archive: RecordArchive,
        entity: Callable[[], Entity],
        views: Sequence[PartitionView],
        doubt: Callable[[PartitionView], None],
        *,
        in_order: bool,
    ) -> None:
        self._connections = connections
        self._archive = archive
        self._entity = entity
        self._views = views
        self._doubt = doubt
        self._in_order = in_order

    async def read(self, delivery: Delivery, ranges: Sequence[Range]) -> list[Record]:
        """Read the records of ranges that a lease holds, in one go: as many as come in time; the others are given back.

        Ranges that were leased unread may have offsets without a message, such as a transaction's marker: those are settled.
        Records that the log lost are settled, too, and logged as an error. Deferred messages must all come: an offset
        without a message is an error.

        Args:
            delivery: The delivery with the lease.
            ranges: The ranges, ascending.

        Returns:
            The records as they are stored.

        Raises:
            ServiceBusError: The records cannot be read.
        """
        entity, topics = self._entity(), self._connections.topics
        ledger = entity.ledgers[delivery.partition]
        read, upto = await self._read_in_time(delivery, ranges)
        wanted = set(offsets_of(common(ranges, [(0, upto)])))
        records = [record for record in read if record.offset() in wanted]
        if len(records) == len(wanted):
            return records
        gone = merge_offsets(wanted - {record.offset() or 0 for record in records})
        start = (await topics.starts(entity.topic, [ledger.partition], GRANTED_READ))[ledger.partition]
        if delivery.deferred and gone[-1][1] >= start:
            raise ServiceBusError(
                f"{entity.path}, partition {ledger.partition}: offset {gone[-1][1]} holds a message that cannot be "
                "read, and the log was not trimmed up to there; nothing is skipped silently"
            )
        lost = common(gone, [(0, start - 1)])
        if lost:
            LOGGER.error("lost_by_the_log entity=%s partition=%d offsets=%s", entity.path, ledger.partition, lost)
        else:
            LOGGER.debug("no_messages entity=%s partition=%d offsets=%s", entity.path, ledger.partition, gone)
        await self._connections.ledger_client.execute(Settlement(ledger, "complete", delivery.lease, gone))
        return records

    async def _read_in_time(self, delivery: Delivery, ranges: Sequence[Range]) -> tuple[list[Record], int]:
        """Return the records from the first offset of ranges to the last one that was read, and that offset."""
        entity, view = self._entity(), self._views[delivery.partition]
        ledger, first, last = entity.ledgers[view.partition], ranges[0][0], ranges[-1][1]
        # Half of the lock is for the receiver; and messages that are given back in time do not count as delivered.
        most = READ_TIMEOUT if delivery.deferred else GRANTED_READ
        timeout = min(most, ledger.seconds_until(delivery.expiry) / 2)
        try:
            read = await self._archive.read_as_stored(entity, view.partition, first, last, timeout)
        except LogTruncatedError:
            self._doubt(view)
            raise
        except UnfinishedReadError as error:
            if delivery.deferred or self._in_order:
                raise
            LOGGER.warning("given_back entity=%s error=%s", entity.path, error)
            if not error.records and timeout > SILENCE:
                view.fall_silent(time.monotonic() + LEAVE_SILENT)
            upto = (error.records[-1].offset() or 0) if error.records else first - 1
            rest = common(ranges, [(upto + 1, last)])
            await self._connections.ledger_client.execute(Settlement(ledger, "release", delivery.lease, rest))
            return error.records, upto
        return read, last
