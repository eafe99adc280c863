# Generated from facade/kafkabus/_async/entities/client_registry.py by tools/generate_blocking.py. Do not edit.
"""The clients of a namespace: each says now and then who it is, and which formats it reads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from kafkabus._core.exceptions import ServiceBusError
from kafkabus._ledger.keys import clients_key
from kafkabus._sync.connections import Connections
from kafkabus_mapping.formats import LATEST
from kafkabus_mapping.version import installed_version

REPORT_EVERY = 30.0
"""How often, in seconds, a client that does something says who it is."""
REPORT_LIFETIME = 120.0
"""For how long, in seconds, a client counts after it said so."""


class RegisteredClient(NamedTuple):
    """A client, by its own report.

    Attributes:
        client_id: Its id.
        version: The version of kafkabus that it runs.
        reads: The latest format that it reads.
    """

    client_id: str
    version: str
    reads: int


class ClientRegistry:
    """The clients of a namespace that were heard of lately; versions that read the first format alone do not report.

    Args:
        connections: The connections of the client that reports.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._key = clients_key(connections.settings.namespace)
        self._report_at = 0.0
        self._reported = False

    def report(self) -> None:
        """Say who this client is, if it did not lately; do nothing if Redis does not answer."""
        now = time.monotonic()
        if now < self._report_at:
            return
        # Set before anything is awaited: of several tasks one reports.
        self._report_at = now + REPORT_EVERY
        self._reported = True
        with suppress(ServiceBusError):
            self._connections.ledger_client.heartbeat(self._key, self._own, REPORT_LIFETIME)

    def leave(self) -> None:
        """Say that this client ends."""
        if self._reported:
            self._connections.ledger_client.leave([self._key], self._own, REPORT_LIFETIME)

    def clients(self) -> list[RegisteredClient]:
        """Return the clients that were heard of lately.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        (members,) = self._connections.ledger_client.find_clients([self._key], REPORT_LIFETIME)
        return [_read(member) for member in members]

    def find_unregistered(
        self, keys: Sequence[str], registered: Iterable[RegisteredClient], lifetime: float
    ) -> dict[str, list[str]]:
        """Return the ids of clients that gave heartbeats and do not report here, by the keys of their heartbeats.

        Args:
            keys: Keys of sorted sets of clients: an entity's receivers, or the upkeep services.
            registered: The clients that report.
            lifetime: For how long, in seconds, a heartbeat counts.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        known = {client.client_id for client in registered}
        heard = self._connections.ledger_client.find_clients(keys, lifetime)
        unknown = {
            key: [member for member in members if member not in known] for key, members in zip(keys, heard, strict=True)
        }
        return {key: members for key, members in unknown.items() if members}

    @property
    def _own(self) -> str:
        """The report of this client, which is the same one each time."""
        return json.dumps(
            {"id": self._connections.client_id, "version": installed_version(), "reads": LATEST}, separators=(",", ":")
        )


def _read(member: str) -> RegisteredClient:
    report = json.loads(member)
    return RegisteredClient(str(report["id"]), str(report["version"]), int(report["reads"]))
