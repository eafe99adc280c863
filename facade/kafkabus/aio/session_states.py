"""States of sessions, as they stand in a compacted topic of the namespace: the last record of a session counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kafkabus.entity import Entity
from kafkabus.exceptions import SessionLockLostError
from kafkabus.ledger.operations import Ledger, State, StateStored
from kafkabus.ledger.snapshot import StoredState
from kafkabus.log.topics import COMPANION_TOPIC
from kafkabus.record import as_bytes
from kafkabus_mapping.keys import partition_of

if TYPE_CHECKING:
    from kafkabus.aio.services import Services

TIMEOUT = 60.0
"""How long a state may take to be stored, in seconds."""


class SessionStates:
    """A client's way to that topic.

    Args:
        services: The client's connections.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._companion = services.companion("session-states", COMPANION_TOPIC)

    async def store(self, entity: Entity, ledger: Ledger, state: State) -> None:
        """Store a state, and whichever is found to be later: what stands last is what counts.

        Args:
            entity: Whose session it is.
            ledger: Where it was set.
            state: It.

        Raises:
            SessionLockLostError: Redis lost it meanwhile, and the lock by which it was set: what was before counts.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        lost = False
        later: State | None = state
        while later is not None:
            value = None
            if later.value is not None:
                value = json.dumps([later.version, later.updated, later.value], separators=(",", ":")).encode()
            key = f"{_prefix(entity)}{later.session}"
            await self._companion.store(f"the state of session {later.session!r}", {key: value}, timeout=TIMEOUT)
            stored = StateStored(ledger, later.session, later.version)
            await self._services.courier.ask(stored)
            later, lost = stored.state, lost or stored.lost
        if lost:
            raise SessionLockLostError(
                f"the state of session {state.session!r} of {entity.path} was not changed: Redis was lost meanwhile, and "
                "the session's lock with it; open another receiver to go on"
            )

    async def read(self, entity: Entity, partition: int) -> list[StoredState]:
        """The states of the sessions of one partition.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        if not entity.has_sessions:
            return []
        prefix, found = _prefix(entity), dict[str, StoredState]()
        records, _ = await self._companion.read()
        for record in records:
            key, value = (as_bytes(record.key()) or b"").decode(), as_bytes(record.value())
            session = key.removeprefix(prefix)
            if session == key or partition_of(session, entity.partitions) != partition:
                continue
            if value is None:
                found.pop(session, None)
            else:
                version, updated, content = json.loads(value)
                found[session] = StoredState(session, version, updated, content)
        return list(found.values())


def _prefix(entity: Entity) -> str:
    """What a record's key begins with; a queue of the same name that is made anew has none of the states."""
    return f"{entity.path.key}/{entity.holder_id}/"
