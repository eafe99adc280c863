# Generated from facade/kafkabus/_async/stores/transaction_markers.py by tools/generate_blocking.py. Do not edit.
"""The outcomes of transactions by their markers: records that the log keeps only if their transaction was committed.

A marker says which messages its transaction settles. It is stored before these are prepared, and the transaction is
committed after that. So a client that finds a prepared message can look the marker up: it is committed, or gone, as
soon as the log is committed beyond it, which the broker ensures. And committed markers mend a ledger that Redis lost, or
that went back: a transaction that prepared messages in it and is not committed yet has stored its marker already.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkabus._core.exceptions import ServiceBusCommunicationError
from kafkabus._core.record import Record, as_bytes
from kafkabus._kafka.topic_admin import MARKER_TOPIC
from kafkabus._ledger.operations import Ledger, PreparedVerb, Resolve, read_runs, words_of
from kafkabus._ledger.ranges import Range, merge_offsets
from kafkabus._ledger.snapshot import Change, Snapshot
from kafkabus._sync.compat import sleep
from kafkabus._sync.connections import Connections
from kafkabus._sync.kafka.producer import OutgoingRecord

LOGGER = logging.getLogger("kafkabus.transaction")

PURPOSE = "transactions"
"""The purpose of the namespace's topic of markers, which is part of the topic's name."""
DECIDED_WITHIN = 40.0
"""How long, in seconds, a client waits for open transactions to end; the broker aborts abandoned ones well before that."""


class Marker(NamedTuple):
    """A transaction's marker.

    Attributes:
        offset: The offset of the marker's record.
        transaction_id: The id of the transaction.
    """

    offset: int
    transaction_id: str

    def to_text(self) -> str:
        """Return the text by which ledgers name the transaction."""
        return f"{self.offset}@{self.transaction_id}"

    @classmethod
    def from_text(cls, text: str) -> Marker:
        """Read a text that ``to_text`` wrote."""
        offset, _, transaction_id = text.partition("@")
        return cls(int(offset), transaction_id)


class Settles(NamedTuple):
    """One way in which a transaction settles messages of one ledger.

    Attributes:
        prefix: The prefix of the ledger's keys.
        verb: The way.
        ranges: The messages' offsets, ascending.
        change: Their application properties to change.
    """

    prefix: str
    verb: PreparedVerb
    ranges: Sequence[Range]
    change: Change


def _read(record: Record) -> list[Settles]:
    """Return the settlements that a marker names."""
    return [
        Settles(
            prefix,
            verb,
            [(first, last) for first, last, _ in read_runs(words)],
            change[0] if change else {},
        )
        # There are changes in the latest format alone.
        for prefix, verb, words, *change in json.loads(as_bytes(record.value()) or b"[]")
    ]


class TransactionMarkers:
    """The markers of a namespace's transactions.

    Args:
        connections: The client's connections.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._topic = connections.compacted_topic(PURPOSE, MARKER_TOPIC)
        self._exists = False

    def make(self, transaction_id: str, settled: Sequence[Settles]) -> tuple[str, OutgoingRecord]:
        """Return the topic and the record of a transaction's marker."""
        self._topic.make_ready()
        rows = [
            (
                settlement.prefix,
                settlement.verb,
                words_of(settlement.ranges),
                *([dict(settlement.change)] if settlement.change else []),
            )
            for settlement in settled
        ]
        text = json.dumps(rows, separators=(",", ":"))
        return self._topic.name, OutgoingRecord(0, transaction_id, text.encode(), [])

    def end(self) -> int:
        """Return an offset: transactions with markers below are decided; messages prepared later have markers at or above it.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        if not self._there():
            return 0
        return (self._connections.topics.ends(self._topic.name, [0]))[0]

    def was_committed(self, marker: Marker) -> bool | None:
        """Return whether a transaction was committed, or None if that is not decided yet.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        connections, topic = self._connections, self._topic.name
        # The marker was stored before a ledger named it: an unknown topic is gone, or new to the broker that answers.
        self._topic.make_ready()
        starts = connections.topics.starts(topic, [0])
        stored = connections.topics.stored_ends(topic, [0])
        if starts[0] <= marker.offset < stored[0]:
            committed = connections.topics.ends(topic, [0])
            if committed[0] <= marker.offset:
                return None
            records = connections.offset_reader.read(topic, 0, marker.offset, marker.offset)
            return any(as_bytes(record.key()) == marker.transaction_id.encode() for record in records)
        LOGGER.error(
            "transaction_forgotten transaction=%s offset=%d: topic %s does not hold its marker any more, so what it was to "
            "settle is available again",
            marker.transaction_id,
            marker.offset,
            topic,
        )
        return False

    def wait_for(self, marker: Marker) -> bool:
        """Wait until a transaction is decided; return whether it was committed.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or the transaction is not decided in time.
        """
        deadline = time.monotonic() + DECIDED_WITHIN
        while (committed := self.was_committed(marker)) is None:
            self._wait(deadline)
        return committed

    def resolve(self, ledger: Ledger, prepared: Mapping[str, Sequence[int]]) -> None:
        """Settle messages that transactions prepared and left unsettled, or give them back; undecided transactions wait.

        Args:
            ledger: The ledger of the messages.
            prepared: The messages' offsets, by the text that names their transaction.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        for text, offsets in prepared.items():
            committed = self.was_committed(Marker.from_text(text))
            LOGGER.info(
                "transaction_found ledger=%s transaction=%s count=%d committed=%s",
                ledger.keys.prefix,
                text,
                len(offsets),
                committed,
            )
            if committed is not None:
                ranges = merge_offsets(offsets)
                self._connections.ledger_client.execute(Resolve(ledger, ranges, text, committed=committed))

    def account_for(self, snapshots: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
        """Return snapshots with the outcomes of transactions applied; see ``Snapshot.after``.

        Args:
            snapshots: Snapshots of ledgers that are to be rebuilt, by the prefix of each one's keys when it was written.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached, or a transaction is not decided in time.
        """
        names = {prefix: snapshot.prepared for prefix, snapshot in snapshots.items()}
        known = any(snapshot.markers is not None for snapshot in snapshots.values()) and self._there()
        begins = {
            prefix: snapshot.markers for prefix, snapshot in snapshots.items() if known and snapshot.markers is not None
        }
        if not begins and not any(names.values()):
            return dict(snapshots)
        self._wait_for_all()
        outcomes = {name: self.wait_for(Marker.from_text(name)) for name in set[str]().union(*names.values())}
        settled = self.read_settlements(begins, self.end())
        return {
            prefix: snapshot.after(
                lambda name: outcomes[name], [settlement[1:] for settlement in settled.get(prefix, ())]
            )
            if prefix in begins or names[prefix]
            else snapshot
            for prefix, snapshot in snapshots.items()
        }

    def read_settlements(self, begins: Mapping[str, int], end: int) -> dict[str, list[Settles]]:
        """Return the settlements in some ledgers by transactions whose markers are within a range of offsets.

        Args:
            begins: The first offset of the range, by the prefix of each ledger's keys.
            end: The offset behind the last one, as ``end`` returned it.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        found: dict[str, list[Settles]] = {}
        start = min(begins.values(), default=end)
        if start < end:
            for upto, records in self._topic.batches(start):
                for record in records:
                    for settlement in _read(record):
                        if begins.get(settlement.prefix, end) <= (record.offset() or 0) < end:
                            found.setdefault(settlement.prefix, []).append(settlement)
                if upto >= end:
                    break
        return found

    def _wait_for_all(self) -> None:
        """Wait until each transaction whose marker is stored is decided."""
        if self._there():
            connections, topic = self._connections, self._topic.name
            stored = (connections.topics.stored_ends(topic, [0]))[0]
            deadline = time.monotonic() + DECIDED_WITHIN
            while self.end() < stored:
                self._wait(deadline)

    def _wait(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise ServiceBusCommunicationError(
                f"a transaction of topic {self._topic.name} is open for more than {DECIDED_WITHIN:g} s: Kafka aborts such "
                "by itself, is it running?"
            )
        sleep(0.05)

    def _there(self) -> bool:
        """Return whether there was any transaction yet, that is, whether the topic exists."""
        if not self._exists:
            connections = self._connections
            self._exists = connections.topics.describe(self._topic.name) is not None
        return self._exists
