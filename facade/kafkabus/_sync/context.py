# Generated from facade/kafkabus/_async/context.py by tools/generate_blocking.py. Do not edit.
"""The parts of a client, and the one place where they are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.settings import Settings
from kafkabus._kafka.topic_admin import COMPACTED_TOPIC
from kafkabus._ledger.operations import Ledger
from kafkabus._runtime import forks
from kafkabus._sync.connections import Connections
from kafkabus._sync.dispositions.disposition import Dispositions
from kafkabus._sync.dispositions.duplicate_scan import DuplicateScan
from kafkabus._sync.dispositions.transaction_commit import CommitParts
from kafkabus._sync.dispositions.transfer import Transfers
from kafkabus._sync.entities.catalog import EntityCatalog
from kafkabus._sync.entities.client_registry import ClientRegistry
from kafkabus._sync.entities.format_upgrade import FormatUpgrade
from kafkabus._sync.entities.ledger_marks import LedgerMarks
from kafkabus._sync.entities.lifecycle import EntityLifecycle
from kafkabus._sync.entities.partition_availability import PartitionAvailability
from kafkabus._sync.entities.recovery import EntityRecovery
from kafkabus._sync.entities.rule_changes import RuleChanges
from kafkabus._sync.entities.upkeep_watch import UpkeepWatch
from kafkabus._sync.receiving.deletion import MessageDeletion
from kafkabus._sync.receiving.log_reader import ReaderParts
from kafkabus._sync.receiving.peek import PeekParts
from kafkabus._sync.receiving.readers import Readers
from kafkabus._sync.redis.connection import DescriptionCache
from kafkabus._sync.stores.checkpoints import Checkpoints
from kafkabus._sync.stores.clock_skew import ClockSkew
from kafkabus._sync.stores.entity_descriptions import EntityDescriptions
from kafkabus._sync.stores.record_archive import RecordArchive
from kafkabus._sync.stores.session_states import SessionStates
from kafkabus._sync.stores.transaction_markers import TransactionMarkers


class ClientContext:
    """The parts of one client, which all its handles share.

    In a forked process the context is put together anew, with connections of its own, when it is first used there.

    Args:
        settings: The addresses and the name of the namespace.
        retry_for: For how long, in seconds, a call to Redis is made again while Redis cannot serve it.

    Attributes:
        connections: The connections to Kafka and Redis; ``topics`` and ``ledger_client`` are theirs.
        descriptions: The descriptions of all entities, which the namespace's topic of descriptions holds.
        registry: The clients of the namespace, which report now and then.
        catalog: The entities, by their names.
        format_upgrade: Brings the namespace into the latest format.
        checkpoints: The checkpoints of ledgers.
        session_states: The states of sessions.
        markers: The outcomes of transactions.
        archive: The records that are kept apart from their logs.
        clock_skew: The difference between the brokers' clock and this machine's.
        availability: The partitions that senders leave out.
        marks: The marks that ledgers need of messages.
        rule_changes: The changes of subscriptions' rules.
        recovery: The repair of lost logs and ledgers.
        transfers: The transfers of messages: dead-lettering, forwarding, activation.
        dispositions: The dispositions of messages that no receiver gets.
        duplicate_scan: The search for duplicates.
        readers: The readers of the entities that this client receives from.
        deletion: Deletes messages that wait.
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
        self.registry = registry = ClientRegistry(connections)
        self.catalog = catalog = EntityCatalog(connections, descriptions, upkeep_watch, registry, forget=self._forget)
        self.format_upgrade = FormatUpgrade(connections, descriptions, registry)
        self.checkpoints = Checkpoints(connections)
        self.session_states = SessionStates(connections)
        self.markers = TransactionMarkers(connections)
        self.archive = RecordArchive(connections)
        self.clock_skew = ClockSkew(connections)
        self.availability = PartitionAvailability(connections)
        self.marks = LedgerMarks(connections, descriptions, catalog)
        self.rule_changes = RuleChanges(connections, descriptions, catalog, self.checkpoints)
        self.recovery = EntityRecovery(
            connections,
            descriptions,
            catalog,
            checkpoints=self.checkpoints,
            session_states=self.session_states,
            markers=self.markers,
            archive=self.archive,
        )
        self.lifecycle = EntityLifecycle(
            connections,
            descriptions,
            catalog,
            checkpoints=self.checkpoints,
            session_states=self.session_states,
            archive=self.archive,
        )
        self.duplicate_scan = DuplicateScan(connections)
        self.transfers = Transfers(
            connections,
            catalog,
            marks=self.marks,
            clock_skew=self.clock_skew,
            archive=self.archive,
            markers=self.markers,
        )
        self.commit_parts = CommitParts(connections, catalog, self.marks, self.markers)
        self.dispositions = Dispositions(
            connections,
            marks=self.marks,
            clock_skew=self.clock_skew,
            transfers=self.transfers,
            commit_parts=self.commit_parts,
        )
        self.peek_parts = PeekParts(connections, self.archive, self.duplicate_scan)
        reader_parts = ReaderParts(
            connections=connections,
            catalog=catalog,
            recovery=self.recovery,
            marks=self.marks,
            archive=self.archive,
            duplicate_scan=self.duplicate_scan,
            transfers=self.transfers,
            dispositions=self.dispositions,
            notifications=connections.notifications,
            upkeep_watch=upkeep_watch,
        )
        self.readers = Readers(reader_parts)
        self.deletion = MessageDeletion(reader_parts)

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

    def _rebuild(self, ledgers: Sequence[Ledger]) -> Mapping[Ledger, ServiceBusError]:
        """Make ledgers anew that Redis lost; see ``EntityRecovery.rebuild``."""
        return self.recovery.rebuild(ledgers)

    def _forget(self, entity: Entity, replaced: bool) -> None:
        """Forget an entity that is gone, or was replaced by another one of its name."""
        if not replaced:
            self.readers.forget(entity.path)
        self.marks.forget(entity)
        self.recovery.forget(entity)
        self.transfers.forget(entity)
        self.clock_skew.forget(entity)

    def close(self) -> None:
        """Have the waiting requests done, and close all connections."""
        self.readers.close()
        self.registry.leave()
        self.connections.close()
