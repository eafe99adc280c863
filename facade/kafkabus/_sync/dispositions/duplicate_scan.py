# Generated from facade/kafkabus/_async/dispositions/duplicate_scan.py by tools/generate_blocking.py. Do not edit.
"""Detection of duplicates among records that no receiver has read yet, for a caller that looks at them before."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from kafkabus._core.duplicate_detection import detect_duplicates
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import OperationTimeoutError
from kafkabus._ledger.operations import LedgerState
from kafkabus._ledger.ranges import NEVER
from kafkabus._sync.compat import sleep
from kafkabus._sync.connections import Connections
from kafkabus._sync.kafka.offset_reader import read_upto

LOGGER = logging.getLogger("kafkabus")

SCAN_FOR = 1.0
"""For how long, in seconds, one partition is scanned before the caller goes on."""
SCANNED_AT_ONCE = 2_000
"""How many records are scanned in one go."""
SCANNED_BYTES = 16 * 1024 * 1024
"""About how many bytes of them, at the most."""
JUDGED_WITHIN = 5.0
"""How long, in seconds, a caller waits until it is known which messages are duplicates."""
LOOK_BACK = 100
"""How many offsets before them are read as well, to see whether the records that were judged are still there."""


class DuplicateScan:
    """Finds duplicates before receivers read them.

    Args:
        connections: The client's.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def scan(self, entity: Entity, partition: int, at: int, end: int) -> int:
        """Find the duplicates in one partition, for at most ``SCAN_FOR``.

        Args:
            entity: The entity of the records.
            partition: The partition of the records.
            at: The offset up to which, for all the caller knows, duplicates are known.
            end: The offset up to which duplicates are to be known, at most the log's end.

        Returns:
            The offset up to which duplicates are known now.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        until = time.monotonic() + SCAN_FOR
        if at < end and self._connections.ledger_client.is_full():
            # Redis is nearly full, and settlements need room, too.
            return at
        look_back = LOOK_BACK
        while at < end and time.monotonic() < until:
            last = min(end, at + SCANNED_AT_ONCE) - 1
            records = self._connections.offset_reader.read(
                entity.topic, partition, max(0, at - look_back), last, most_bytes=SCANNED_BYTES
            )
            upto = read_upto(records, last, SCANNED_BYTES)
            if upto <= at:
                # The records before are large.
                look_back //= 10
                continue
            detection = detect_duplicates(entity, partition, at, upto, records)
            self._connections.ledger_client.execute(detection)
            at = detection.dedup_upto
            if detection.log_truncated is not None:
                # The receiver that reads on from the cursor finds out from which offset on.
                LOGGER.warning(
                    "log_truncated entity=%s partition=%d scanned_to=%d: its log was truncated",
                    entity.path,
                    partition,
                    at,
                )
                break
        return at

    def scan_to(
        self, entity: Entity, states: Mapping[int, LedgerState | None], ends: Mapping[int, int]
    ) -> dict[int, int]:
        """Scan several partitions up to their ends; return the offset up to which duplicates are known in each.

        Args:
            entity: The entity of the records.
            states: The states of the partitions' ledgers.
            ends: The ends of the partitions' logs.
        """
        upto: dict[int, int] = {}
        for partition, state in states.items():
            at = 0 if state is None or state.dedup_upto is None else state.dedup_upto
            upto[partition] = min(ends[partition], self.scan(entity, partition, at, ends[partition]))
        return upto

    def scan_all(self, entity: Entity, partitions: Sequence[int]) -> None:
        """Scan partitions, for a caller without states and ends; do nothing if the entity detects no duplicates."""
        if entity.detects_duplicates:
            self._scan_towards(entity, dict.fromkeys(partitions, NEVER))

    def scan_beyond(self, entity: Entity, offsets: Mapping[int, Sequence[int]]) -> None:
        """Find the duplicates among records; do nothing if the entity detects no duplicates.

        Args:
            entity: The entity of the records.
            offsets: The offsets of the records, by partition.

        Raises:
            OperationTimeoutError: That is not known yet: there are many records before them, or a transaction is not over.
            ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
        """
        if not (entity.detects_duplicates and offsets):
            return
        connections, until = self._connections, time.monotonic() + JUDGED_WITHIN
        stored = connections.topics.stored_ends(entity.topic, list(offsets))
        wanted = {
            partition: min(stored[partition], max(wanted_offsets) + 1) for partition, wanted_offsets in offsets.items()
        }
        while late := self._scan_towards(entity, wanted):
            if time.monotonic() >= until:
                raise OperationTimeoutError(
                    f"{entity.path}: in partitions {late} it is not known yet which messages are duplicates, as "
                    "there are many, or a transaction is not over: try again"
                )
            sleep(JUDGED_WITHIN / 50)

    def _scan_towards(self, entity: Entity, wanted: Mapping[int, int]) -> list[int]:
        """Scan partitions up to offsets, or to the end of what is committed; return the partitions that need more."""
        (*states,) = self._connections.ledger_client.states([entity.ledgers[partition] for partition in wanted])
        ends = self._connections.topics.ends(entity.topic, list(wanted))
        ends = {partition: min(ends[partition], upto) for partition, upto in wanted.items()}
        upto = self.scan_to(entity, dict(zip(wanted, states, strict=True)), ends)
        return [partition for partition in wanted if upto[partition] < wanted[partition]]
