"""Messages that were granted and reached no receiver, as when a call was cancelled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from kafkabus._async.connections import Connections
from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.fetch_plan import runs_of
from kafkabus._ledger.operations import Settlement

LOGGER = logging.getLogger("kafkabus.reader")


class UndeliveredGrants:
    """Gives leased messages back to their ledgers, and keeps messages that receive and delete has settled already.

    Args:
        connections: The client's connections.
        entity: The entity that is read.
    """

    def __init__(self, connections: Connections, entity: Entity) -> None:
        self._connections = connections
        self._entity = entity
        self._settled: list[Grant] = []

    async def put_back(self, grants: Sequence[Grant]) -> None:
        """Give messages back: other receivers get them, and no delivery is counted.

        Messages that receive and delete has settled are kept for the next call that receives.
        """
        for grant in grants:
            if grant.delivery.lease:
                ledger = self._entity.ledgers[grant.delivery.partition]
                # A session's lease also holds messages that were handed out before.
                ranges = runs_of(grant.records) if grant.delivery.session else None
                self._connections.ledger_client.enqueue(Settlement(ledger, "release", grant.delivery.lease, ranges))
            else:
                self._settled.append(grant)
        self._connections.pool.soon(self._flush())  # aio-only

    def take(self, want: int, is_wanted: Callable[[Grant], bool] | None = None) -> list[Grant]:
        """Return up to ``want`` messages that an earlier call settled and could not hand out; all, or those wanted."""
        grants: list[Grant] = []
        others: list[Grant] = []
        while self._settled and want > 0:
            grant = self._settled.pop()
            if is_wanted is not None and not is_wanted(grant):
                others.append(grant)
                continue
            part, rest = grant.records[:want], grant.records[want:]
            want -= len(part)
            grants.append(replace(grant, records=part))
            if rest:
                self._settled.append(replace(grant, records=rest))
        self._settled += reversed(others)
        return grants

    def report_lost(self) -> None:
        """Log the messages that no call will hand out any more, because the reader is closed."""
        for grant in self._settled:
            LOGGER.error(
                "lost_by_receive_and_delete entity=%s partition=%d offsets=%s: settled, and handed to nobody",
                self._entity.path,
                grant.delivery.partition,
                runs_of(grant.records),
            )

    async def _flush(self) -> None:
        try:
            await self._connections.ledger_client.flush()
        except ServiceBusError as error:
            LOGGER.warning("put_back entity=%s error=%s", self._entity.path, error)
