# Generated from facade/kafkabus/_async/receiving/undelivered.py by tools/generate_blocking.py. Do not edit.
"""Messages that were granted and reached no receiver, as when a call was cancelled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.fetch_plan import runs_of
from kafkabus._ledger.operations import Settlement
from kafkabus._sync.connections import Connections

LOGGER = logging.getLogger("kafkabus.reader")


class UndeliveredGrants:
    """Gives leased messages back to their ledgers, and keeps messages that receive and delete has settled already.

    Several receivers may use it at once.

    Args:
        connections: The client's connections.
        entity: Returns the entity that is read, as it is described now.
    """

    def __init__(self, connections: Connections, entity: Callable[[], Entity]) -> None:
        self._connections = connections
        self._entity = entity
        self._settled: list[Grant] = []
        self._successor: UndeliveredGrants | None = None
        self._changing = threading.Lock()

    def put_back(self, grants: Sequence[Grant]) -> None:
        """Give messages back: other receivers get them, and no delivery is counted.

        Messages that receive and delete has settled are kept for the next call that receives.
        """
        for grant in grants:
            if grant.delivery.lease:
                ledger = self._entity().ledgers[grant.delivery.partition]
                # A session's lease also holds messages that were handed out before.
                ranges = runs_of(grant.records) if grant.delivery.session else None
                self._connections.ledger_client.enqueue(Settlement(ledger, "release", grant.delivery.lease, ranges))
        self._keep([grant for grant in grants if not grant.delivery.lease and grant.records])

    def take(self, want: int, is_wanted: Callable[[Grant], bool] | None = None) -> list[Grant]:
        """Return up to ``want`` messages that an earlier call settled and could not hand out; all, or those wanted.

        The messages of a partition come in the order of its log.
        """
        grants: list[Grant] = []
        with self._changing:
            kept: list[Grant] = []
            for grant in self._settled:
                count = want if is_wanted is None or is_wanted(grant) else 0
                part, rest = grant.records[:count], grant.records[count:]
                want -= len(part)
                if part:
                    grants.append(replace(grant, records=part))
                if rest:
                    kept.append(replace(grant, records=rest))
            self._settled = kept
        return grants

    def hand_over(self, successor: UndeliveredGrants) -> None:
        """Give what is kept, and what will be, to the reader that replaces this one's."""
        with self._changing:
            self._successor, settled, self._settled = successor, self._settled, []
        successor._keep(settled)

    def report_lost(self) -> None:
        """Log the messages that no call will hand out any more, because the reader is closed."""
        with self._changing:
            lost, self._settled = self._settled, []
        for grant in lost:
            LOGGER.error(
                "lost_by_receive_and_delete entity=%s partition=%d offsets=%s: settled, and handed to no receiver",
                self._entity().path,
                grant.delivery.partition,
                runs_of(grant.records),
            )

    def _keep(self, grants: Sequence[Grant]) -> None:
        with self._changing:
            successor = self._successor
            if successor is None:
                self._settled = sorted([*self._settled, *grants], key=_place)
        if successor is not None:
            successor._keep(grants)

    def _flush(self) -> None:
        try:
            self._connections.ledger_client.flush()
        except ServiceBusError as error:
            LOGGER.warning("put_back entity=%s error=%s", self._entity().path, error)


def _place(grant: Grant) -> tuple[int, int]:
    return grant.delivery.partition, grant.records[0].offset() or 0
