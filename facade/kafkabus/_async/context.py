"""The parts of a client, and the one place where they are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from kafkabus._async.connections import Connections
from kafkabus._async.dispositions.disposition import Dispositions
from kafkabus._async.dispositions.duplicate_scan import DuplicateScan
from kafkabus._async.dispositions.transaction_commit import CommitParts
from kafkabus._async.dispositions.transfer import Transfers
from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.entities.client_registry import ClientRegistry
from kafkabus._async.entities.format_upgrade import FormatUpgrade
from kafkabus._async.entities.ledger_marks import LedgerMarks
from kafkabus._async.entities.lifecycle import EntityLifecycle
from kafkabus._async.entities.namespace_changes import NamespaceChanges
from kafkabus._async.entities.partition_availability import PartitionAvailability
from kafkabus._async.entities.recovery import EntityRecovery
from kafkabus._async.entities.rule_changes import RuleChanges
from kafkabus._async.entities.upkeep_watch import UpkeepWatch
from kafkabus._async.receiving.deletion import MessageDeletion
from kafkabus._async.receiving.log_reader import ReaderParts
from kafkabus._async.receiving.peek import PeekParts
from kafkabus._async.receiving.readers import Readers
from kafkabus._async.redis.connection import DescriptionCache
from kafkabus._async.stores.checkpoints import Checkpoints
from kafkabus._async.stores.clock_skew import ClockSkew
from kafkabus._async.stores.entity_descriptions import EntityDescriptions
from kafkabus._async.stores.postponements import Postponements
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._async.stores.session_states import SessionStates
from kafkabus._async.stores.transaction_markers import TransactionMarkers
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.settings import Settings
from kafkabus._kafka.topic_admin import COMPACTED_TOPIC
from kafkabus._ledger.operations import Ledger
from kafkabus._runtime import forks
from kafkabus_mapping.formats import FIRST

LONGEST_HOLDER = 128
"""How many characters of a receiver's identifier its locks name."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a client: topics of the namespace's own, and what the client remembers of them.

    Attributes:
        checkpoints: The checkpoints of ledgers.
        session_states: The states of sessions.
        markers: The outcomes of transactions.
        archive: The records that are kept apart from their logs.
        postponements: The delays of messages that applications asked for.
        clock_skew: The difference between the brokers' clock and this machine's.
    """

    checkpoints: Checkpoints
    session_states: SessionStates
    markers: TransactionMarkers
    archive: RecordArchive
    postponements: Postponements
    clock_skew: ClockSkew


@dataclass(frozen=True, slots=True)
class EntityMaintenance:
    """The parts of a client that change, repair and delete entities.

    Attributes:
        format_upgrade: Brings the namespace into the latest format.
        rule_changes: The changes of subscriptions' rules.
        recovery: The repair of lost logs and ledgers.
        lifecycle: The changes of entities' life, and their deletion.
        namespace_changes: The changes of the namespace's settings.
    """

    format_upgrade: FormatUpgrade
    rule_changes: RuleChanges
    recovery: EntityRecovery
    lifecycle: EntityLifecycle
    namespace_changes: NamespaceChanges


@dataclass(frozen=True, slots=True)
class Receiving:
    """The parts of a client that read entities' logs.

    Attributes:
        readers: The readers of the entities that this client receives from.
        peek_parts: The parts that peeking works with.
        deletion: Deletes messages that wait.
    """

    readers: Readers
    peek_parts: PeekParts
    deletion: MessageDeletion


class ClientContext:
    """The parts of one client, which all its handles share.

    A forked process builds a new context, with new connections, when it first uses it.

    Args:
        settings: The addresses and the name of the namespace.
        retry_for: For how long, in seconds, a call to Redis is made again while Redis cannot serve it.

    Attributes:
        settings: The addresses and the name of the namespace.
        connections: The connections to Kafka and Redis; ``client_id``, ``topics`` and ``ledger_client`` are theirs.
        descriptions: The descriptions of all entities, which the namespace's topic of descriptions holds.
        registry: The clients of the namespace, which report now and then.
        catalog: The entities, by their names.
        stores: The namespace's topics beside those of entities.
        availability: The partitions that senders leave out.
        marks: The marks that ledgers need of messages.
        maintenance: Changes, repairs and deletes entities.
        duplicate_scan: The search for duplicates.
        transfers: The transfers of messages: dead-lettering, forwarding, activation.
        commit_parts: The parts that transactions use.
        dispositions: The dispositions of messages that no receiver gets.
        receiving: Reads entities' logs.
    """

    _forked = False

    def __init__(self, settings: Settings, *, retry_for: float = 60.0) -> None:
        self.settings = settings
        self._retry_for = retry_for
        self._open()
        forks.watch(self)

    def _open(self) -> None:
        self.connections = connections = Connections(self.settings, retry_for=self._retry_for, rebuild=self._rebuild)
        self.client_id = connections.client_id
        self.ledger_client = connections.ledger_client
        self.topics = connections.topics
        self.descriptions = descriptions = EntityDescriptions(
            self.settings.namespace,
            connections.compacted_topic("descriptions", COMPACTED_TOPIC),
            DescriptionCache(connections.redis_connection, self.settings.namespace),
        )
        upkeep_watch = UpkeepWatch(connections)
        self.registry = ClientRegistry(connections)
        self.catalog = EntityCatalog(connections, descriptions, upkeep_watch, self.registry, forget=self._forget)
        self.stores = Stores(
            checkpoints=Checkpoints(connections),
            session_states=SessionStates(connections),
            markers=TransactionMarkers(connections),
            archive=RecordArchive(connections),
            postponements=Postponements(connections),
            clock_skew=ClockSkew(connections),
        )
        self.availability = PartitionAvailability(connections)
        self.marks = LedgerMarks(connections, descriptions, self.catalog)
        self.maintenance = self._make_maintenance()
        self._make_dispositions()
        self.receiving = self._make_receiving(upkeep_watch)

    def _make_maintenance(self) -> EntityMaintenance:
        connections, descriptions, catalog, stores = self.connections, self.descriptions, self.catalog, self.stores
        recovery = EntityRecovery(
            connections,
            descriptions,
            catalog,
            checkpoints=stores.checkpoints,
            session_states=stores.session_states,
            markers=stores.markers,
            archive=stores.archive,
            postponements=stores.postponements,
        )
        return EntityMaintenance(
            format_upgrade=FormatUpgrade(connections, descriptions, self.registry),
            rule_changes=RuleChanges(connections, descriptions, catalog, stores.checkpoints),
            recovery=recovery,
            lifecycle=EntityLifecycle(
                connections,
                descriptions,
                catalog,
                recovery,
                checkpoints=stores.checkpoints,
                session_states=stores.session_states,
                archive=stores.archive,
            ),
            namespace_changes=NamespaceChanges(self.settings.namespace, descriptions, catalog),
        )

    def _make_dispositions(self) -> None:
        connections, stores = self.connections, self.stores
        self.duplicate_scan = DuplicateScan(connections)
        self.transfers = Transfers(
            connections,
            self.catalog,
            marks=self.marks,
            clock_skew=stores.clock_skew,
            archive=stores.archive,
            markers=stores.markers,
        )
        self.commit_parts = CommitParts(connections, self.catalog, self.marks, stores.markers)
        self.dispositions = Dispositions(
            connections,
            marks=self.marks,
            clock_skew=stores.clock_skew,
            transfers=self.transfers,
            commit_parts=self.commit_parts,
        )

    def _make_receiving(self, upkeep_watch: UpkeepWatch) -> Receiving:
        parts = ReaderParts(
            connections=self.connections,
            catalog=self.catalog,
            recovery=self.maintenance.recovery,
            marks=self.marks,
            archive=self.stores.archive,
            duplicate_scan=self.duplicate_scan,
            transfers=self.transfers,
            dispositions=self.dispositions,
            notifications=self.connections.notifications,
            upkeep_watch=upkeep_watch,
        )
        return Receiving(
            readers=Readers(parts),
            peek_parts=PeekParts(self.connections, self.stores.archive, self.duplicate_scan),
            deletion=MessageDeletion(parts),
        )

    def _after_fork(self) -> None:
        settings, retry_for = self.settings, self._retry_for
        forks.abandon(self.__dict__)
        self.settings, self._retry_for, self._forked = settings, retry_for, True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Open the connections of a forked process, which has its own, when it first uses a part; return the part."""
            with forks.opening:
                if self._forked:
                    self._open()
                    self._forked = False
            return object.__getattribute__(self, name)

    def holder_of(self, identifier: str) -> str | None:
        """Return a receiver as leases name it, by its identifier; None if the namespace's format has no place for it."""
        return None if self.descriptions.written_format == FIRST else quote(identifier[:LONGEST_HOLDER], safe="")

    async def _rebuild(self, ledgers: Sequence[Ledger]) -> Mapping[Ledger, ServiceBusError]:
        """Rebuild ledgers that Redis lost; see ``EntityRecovery.rebuild``."""
        return await self.maintenance.recovery.rebuild(ledgers)

    async def _forget(self, entity: Entity, replaced: bool) -> None:
        """Forget an entity that is gone, or was replaced by another one of its name."""
        if not replaced:
            await self.receiving.readers.forget(entity.path)
        self.marks.forget(entity)
        self.maintenance.recovery.forget(entity)
        self.transfers.forget(entity)
        self.stores.clock_skew.forget(entity)

    async def close(self) -> None:
        """Have the waiting requests done, and close all connections."""
        await self.receiving.readers.close()
        await self.registry.leave()
        await self.connections.close()
