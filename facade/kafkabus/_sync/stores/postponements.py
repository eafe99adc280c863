# Generated from facade/kafkabus/_async/stores/postponements.py by tools/generate_blocking.py. Do not edit.
"""The delays that applications asked for when they abandoned messages: records of a topic, which outlive Redis.

A delay is stored before the ledger postpones the messages. So a ledger that Redis lost, and that is rebuilt from its last
checkpoint, finds the delays that this checkpoint does not have. A record may name messages that the ledger did not
postpone, because their locks were lost; their receiver stores another one then, which takes the delay back. A delay says
how often its messages were delivered before it, and counts only if the checkpoint knows of no later delivery.

Delays by an entity's retry policy are not stored here: they are in the ledger and its checkpoints.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkabus._core.record import Record, as_bytes
from kafkabus._kafka.topic_admin import DELAY_TOPIC
from kafkabus._ledger.operations import read_runs, words_of
from kafkabus._ledger.ranges import Counted, Range
from kafkabus._ledger.snapshot import Snapshot, with_delays
from kafkabus._sync.connections import Connections

PURPOSE = "postponed"
"""The purpose of the namespace's topic of delays, which is part of the topic's name."""
TIMEOUT = 30.0
"""How long, in seconds, storing delays may take."""
MARGIN_MS = 600_000
"""How much older than a checkpoint, ms, a delay may be that the checkpoint does not have: its request to the ledger was under
way, or the clock of the client that wrote the checkpoint was not that of the brokers."""


class Postponement(NamedTuple):
    """Messages of one ledger that were abandoned with a delay.

    Attributes:
        prefix: The prefix of the ledger's keys.
        ranges: The messages' offsets, ascending.
        deliveries: How often they have been delivered, this delivery included.
        delay_ms: The delay; 0 if an earlier one does not count.
    """

    prefix: str
    ranges: Sequence[Range]
    deliveries: int
    delay_ms: int


class Postponements:
    """The delays of a namespace's messages.

    Args:
        connections: The client's connections.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._topic = connections.compacted_topic(PURPOSE, DELAY_TOPIC)

    def store(self, postponements: Sequence[Postponement]) -> None:
        """Store delays; they are durable when this returns.

        Raises:
            ServiceBusAuthorizationError: Kafka's user may not write to the topic.
            ServiceBusCommunicationError: Kafka did not store all of them.
        """
        by_ledger: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for item in postponements:
            by_ledger[item.prefix].append((words_of(item.ranges), item.deliveries, item.delay_ms))
        records: dict[str | None, bytes | None] = {
            prefix: json.dumps(rows, separators=(",", ":")).encode() for prefix, rows in by_ledger.items()
        }
        self._topic.store("a delay", records, timeout=TIMEOUT)

    def account_for(self, snapshots: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
        """Return snapshots with the delays that were asked for since they were written down.

        Args:
            snapshots: Snapshots of ledgers that are to be rebuilt, by the prefix of each one's keys when it was written.
                Those of ledgers that still exist, which were never written down, stay as they are.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        written = {prefix: at for prefix, snapshot in snapshots.items() if (at := snapshot.written_at) is not None}
        if not written or not self._topic.is_there():
            return dict(snapshots)
        begin_ms = max(0, min(written.values()) - MARGIN_MS)
        start = (self._connections.topics.offsets_at(self._topic.name, [0], begin_ms))[0]
        found: defaultdict[str, list[tuple[list[Counted], int]]] = defaultdict(list)
        for _, records in self._topic.batches(start):
            for record in records:
                prefix = (as_bytes(record.key()) or b"").decode()
                if prefix in written and record.timestamp()[1] >= written[prefix] - MARGIN_MS:
                    found[prefix] += _read(record)
        return {prefix: with_delays(snapshot, found.get(prefix, ())) for prefix, snapshot in snapshots.items()}


def _read(record: Record) -> list[tuple[list[Counted], int]]:
    """Return the delays of a record: messages with their delivery counts, and until when they are postponed, ms since 1970."""
    stored_at = record.timestamp()[1]
    return [
        ([(first, last, count) for first, last, _ in read_runs(words)], stored_at + delay_ms)
        for words, count, delay_ms in json.loads(as_bytes(record.value()) or b"[]")
    ]
