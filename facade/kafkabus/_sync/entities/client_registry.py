# Generated from facade/kafkabus/_async/entities/client_registry.py by tools/generate_blocking.py. Do not edit.
"""The clients of a namespace: each says now and then who it is, and which formats it reads."""

from __future__ import annotations

import json
import os
import socket
import time
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from kafkabus._core.exceptions import ServiceBusError
from kafkabus._ledger.keys import client_details_key, clients_key
from kafkabus._runtime.weak import WeakList
from kafkabus._sync.compat import Alarm
from kafkabus._sync.connections import Connections
from kafkabus_mapping.formats import LATEST
from kafkabus_mapping.version import installed_version

REPORT_EVERY = 30.0
"""How often, in seconds, a client that does something says who it is."""
REPORT_LIFETIME = 120.0
"""For how long, in seconds, a client counts after it said so."""
ENTITIES_REPORTED, IDENTIFIERS_REPORTED, LONGEST_IDENTIFIER = 50, 5, 128
"""How many entities a client names, how many identifiers of senders and receivers of each, and how long these are."""


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


@dataclass(frozen=True, slots=True)
class ReportedEntity:
    """An entity that a client uses, by its own report.

    Attributes:
        name: The name of the entity, with its sub-queue.
        sends: Whether it has senders there.
        receives: Whether it has receivers there.
        identifiers: The identifiers of some of these.
    """

    name: str
    sends: bool
    receives: bool
    identifiers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClientReport:
    """The report of a client about itself.

    Attributes:
        kind: ``client``, ``administration``, ``gateway`` or ``upkeep``.
        host: The name of its machine.
        process_id: The id of its process.
        since: When it was opened, ms since 1970 on its clock.
        entities: Entities that it uses, at most ``ENTITIES_REPORTED``.
        more_entities: How many more it uses.
    """

    kind: str
    host: str
    process_id: int
    since: int
    entities: tuple[ReportedEntity, ...]
    more_entities: int


@dataclass(eq=False)
class Use:
    """The use of an entity by a sender or a receiver, which keeps this object for as long as it lives.

    Attributes:
        entity: The name of the entity, with its sub-queue.
        identifier: The identifier of the sender or receiver.
        sends: Whether it is a sender.
        is_over: Whether it was closed.
    """

    entity: str
    identifier: str
    sends: bool
    is_over: bool = False


class ClientRegistry:
    """The clients of a namespace that were heard of lately; versions that read the first format alone do not report.

    Args:
        connections: The connections of the client that reports.

    Attributes:
        kind: The kind of client: ``client``, ``administration``, ``gateway`` or ``upkeep``.
    """

    def __init__(self, connections: Connections) -> None:
        self.kind = "client"
        self._uses: WeakList[Use] = WeakList()
        self._connections = connections
        self._key = clients_key(connections.settings.namespace)
        self._details_key = client_details_key(connections.settings.namespace)
        self._report_at = 0.0
        self._reported = False
        self._since = round(time.time() * 1000)
        self._last_details = ""
        # A client that was forgotten, and not closed, is not kept by its reports.
        self._alarm = Alarm(partial(_report_again, weakref.ref(self)))

    def begin_use(self, entity: str, identifier: str, *, sends: bool) -> Use:
        """Return the use of an entity by a new sender or receiver; see ``Use``."""
        use = Use(entity, identifier, sends)
        self._uses.add(use)
        return use

    def report(self) -> None:
        """Say who this client is, if it did not lately; do nothing if Redis does not answer. Once begun, it goes on."""
        now = time.monotonic()
        if now < self._report_at:
            return
        # Set before anything is awaited: of several tasks one reports.
        self._report_at = now + REPORT_EVERY
        is_first, self._reported = not self._reported, True
        with suppress(ServiceBusError):
            self._connections.ledger_client.heartbeat(self._key, self._own, REPORT_LIFETIME)
            self._put_details()
            if is_first:
                self._forget_others()
        self._alarm.set(REPORT_EVERY)

    def report_again(self) -> None:
        """Say who this client is, also if it did so lately."""
        self._report_at = 0.0
        self.report()

    def _put_details(self) -> None:
        """Report where this client runs and what it uses, if that is allowed and has changed."""
        if not self._connections.settings.client_details:
            return
        details = json.dumps(asdict(self._described()), separators=(",", ":"))
        if details != self._last_details:
            self._connections.ledger_client.put_client_details(self._details_key, self._connections.client_id, details)
            self._last_details = details

    def _forget_others(self) -> None:
        """Forget the details of clients that are gone and did not say so."""
        details = self._connections.ledger_client.client_details(self._details_key)
        known = {client.client_id for client in self.clients()}
        gone = details.keys() - known - {self._connections.client_id}
        self._connections.ledger_client.forget_client_details(self._details_key, gone)

    def _described(self) -> ClientReport:
        used: dict[str, list[Use]] = {}
        for use in self._uses:
            if not use.is_over:
                used.setdefault(use.entity, []).append(use)
        entities = tuple(
            ReportedEntity(
                name,
                any(use.sends for use in its),
                not all(use.sends for use in its),
                tuple(use.identifier[:LONGEST_IDENTIFIER] for use in its[:IDENTIFIERS_REPORTED]),
            )
            for name, its in sorted(used.items())[:ENTITIES_REPORTED]
        )
        host, process = socket.gethostname(), os.getpid()
        return ClientReport(self.kind, host, process, self._since, entities, len(used) - len(entities))

    def leave(self) -> None:
        """Say that this client ends."""
        self._alarm.stop()
        if self._reported:
            self._connections.ledger_client.leave([self._key], self._own, REPORT_LIFETIME)
            if self._last_details:
                with suppress(ServiceBusError):
                    self._connections.ledger_client.forget_client_details(
                        self._details_key, [self._connections.client_id]
                    )

    def reports(self) -> list[tuple[RegisteredClient, ClientReport | None]]:
        """Return the clients that were heard of lately, with their reports; None without one.

        Raises:
            ServiceBusCommunicationError: Redis cannot be reached.
        """
        clients = self.clients()
        details = self._connections.ledger_client.client_details(self._details_key)
        return [
            (client, _report_of(details[client.client_id]) if client.client_id in details else None)
            for client in clients
        ]

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


def _report_again(reference: weakref.ref[ClientRegistry]) -> None:
    registry = reference()
    if registry is not None:
        registry.report_again()


def _read(member: str) -> RegisteredClient:
    report = json.loads(member)
    return RegisteredClient(str(report["id"]), str(report["version"]), int(report["reads"]))


def _report_of(text: str) -> ClientReport:
    said = json.loads(text)
    entities = tuple(
        ReportedEntity(one["name"], one["sends"], one["receives"], tuple(one["identifiers"]))
        for one in said["entities"]
    )
    return ClientReport(said["kind"], said["host"], said["process_id"], said["since"], entities, said["more_entities"])
