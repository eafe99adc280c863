"""States of sessions in a compacted topic of the namespace: the last record of a session counts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping

from kafkabus._async.connections import Connections
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import SessionLockLostError
from kafkabus._core.record import as_bytes
from kafkabus._kafka.topic_admin import COMPACTED_TOPIC
from kafkabus._ledger.operations import Ledger, NoteStoredState, StoredSessionState
from kafkabus._ledger.snapshot import StoredState
from kafkabus_mapping.keys import partition_of

TIMEOUT = 60.0
"""How long, in seconds, storing a state may take."""


class SessionStates:
    """A client's access to the states of sessions.

    Args:
        connections: The client's connections.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._topic = connections.compacted_topic("session-states", COMPACTED_TOPIC)

    async def store(self, entity: Entity, ledger: Ledger, state: StoredSessionState) -> None:
        """Store a state, and then any other that the ledger holds by then, because the last record counts.

        Args:
            entity: The entity of the session.
            ledger: The ledger in which the state was set.
            state: The state.

        Raises:
            SessionLockLostError: Redis lost the state, and the lock under which it was set: the state before counts.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        lost = False
        later: StoredSessionState | None = state
        while later is not None:
            value = None
            if later.value is not None:
                value = json.dumps([later.version, later.updated, later.value], separators=(",", ":")).encode()
            key = f"{_prefix(entity)}{later.session}"
            await self._topic.store(f"the state of session {later.session!r}", {key: value}, timeout=TIMEOUT)
            stored = NoteStoredState(ledger, later.session, later.version)
            await self._connections.ledger_client.execute(stored)
            later, lost = stored.state, lost or stored.lost
        if lost:
            raise SessionLockLostError(
                f"the state of session {state.session!r} of {entity.path} was not changed: Redis lost the new state, and "
                "perhaps the session's lock with it; open another receiver to go on"
            )

    async def read(self, places: Mapping[Ledger, Entity]) -> dict[Ledger, list[StoredState]]:
        """Return the states of the sessions of some ledgers.

        Args:
            places: The ledgers, and the entity of each; entities without sessions have no states.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        found: dict[Ledger, dict[str, StoredState]] = {ledger: {} for ledger in places}
        # A client may have several objects for one ledger.
        ledgers: defaultdict[str, defaultdict[int, list[Ledger]]] = defaultdict(lambda: defaultdict(list))
        for ledger, entity in places.items():
            if entity.has_sessions:
                ledgers[_prefix(entity)][ledger.partition].append(ledger)
        counts = {_prefix(entity): entity.partitions for entity in places.values()}
        records, _ = await self._topic.read() if ledgers else ([], 0)
        for record in records:
            key, value = (as_bytes(record.key()) or b"").decode(), as_bytes(record.value())
            ends = (at + 1 for at, letter in enumerate(key) if letter == "/")
            prefix = next((key[:end] for end in ends if key[:end] in ledgers), None)
            if prefix is None:
                continue
            session = key[len(prefix) :]
            for place in ledgers[prefix].get(partition_of(session, counts[prefix]), ()):
                if value is None:
                    found[place].pop(session, None)
                else:
                    version, updated, content = json.loads(value)
                    found[place][session] = StoredState(session, version, updated, content)
        return {ledger: list(states.values()) for ledger, states in found.items()}

    async def drop(self, entity: Entity) -> None:
        """Delete the states of all sessions of an entity that is gone for good.

        Raises:
            ServiceBusCommunicationError: Kafka did not store all deletions.
        """
        if not entity.has_sessions:
            return
        records, _ = await self._topic.read()
        last = {(as_bytes(record.key()) or b"").decode(): record.value() for record in records}
        gone: dict[str | None, bytes | None] = {
            key: None for key, value in last.items() if key.startswith(_prefix(entity)) and value is not None
        }
        if gone:
            await self._topic.store("that sessions are gone", gone, timeout=TIMEOUT)


def _prefix(entity: Entity) -> str:
    """Return the prefix of records' keys; a new queue of the same name has another, so none of the states."""
    return f"{entity.path.key}/{entity.holder_id}/"
