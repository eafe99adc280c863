# Generated from facade/kafkabus/_async/entities/format_upgrade.py by tools/generate_blocking.py. Do not edit.
"""Bringing a namespace into the latest format, while programs use it.

Programs of versions that do not read the new format stop once they see its number, and must not meet anything before that
that they cannot read. So the description first names the new format and says that programs still write the old one. When every
program has seen that, the description no longer says so, and programs write what only the new format has.
"""

from __future__ import annotations

from datetime import datetime, timezone

from kafkabus._core.exceptions import InvalidOperationError
from kafkabus._ledger.keys import receivers_key, upkeep_key
from kafkabus._sync.compat import sleep
from kafkabus._sync.connections import Connections
from kafkabus._sync.entities.client_registry import ClientRegistry
from kafkabus._sync.redis.notifications import HEARTBEAT_LIFETIME
from kafkabus._sync.stores.entity_descriptions import NAMESPACE, EntityDescriptions
from kafkabus_mapping.formats import LATEST
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.namespaces import NamespaceDescription
from kafkabus_mapping.version import installed_version

SEEN_WITHIN = 70.0
"""Within how many seconds every program has seen a change of the format: Spark's jobs look at it once a minute."""
NAMED = 5
"""How many outdated programs an error names at the most."""


class FormatUpgrade:
    """Brings a namespace into the latest format.

    Args:
        connections: The client's.
        descriptions: The descriptions of all entities of the namespace.
        registry: The clients of the namespace.
    """

    def __init__(self, connections: Connections, descriptions: EntityDescriptions, registry: ClientRegistry) -> None:
        self._connections = connections
        self._descriptions = descriptions
        self._registry = registry

    def run(self) -> NamespaceDescription:
        """Bring the namespace into the latest format; go on with an upgrade that was cut off.

        This takes ``SEEN_WITHIN``, unless the namespace is in the latest format already.

        Raises:
            InvalidOperationError: The namespace does not exist yet, or programs use it that cannot read the latest format;
                nothing was changed.
            OperationTimeoutError: Another client upgrades the namespace.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; the upgrade can be run again.
        """
        known = self._current()
        if known.format < LATEST:
            self._check_programs()
            with self._descriptions.lock_for_change(NAMESPACE) as lock:
                known = self._current()
                if known.format < LATEST:
                    lock.check()
                    known = self._put(known, format=LATEST, format_by=installed_version(), upgrading_from=known.format)
        if known.upgrading_from is not None:
            sleep(SEEN_WITHIN)
            with self._descriptions.lock_for_change(NAMESPACE) as lock:
                known = self._current()
                lock.check()
                known = self._put(known, upgrading_from=None)
        return known

    def _current(self) -> NamespaceDescription:
        known = self._descriptions.namespace()
        if known is None:
            raise InvalidOperationError(
                f"namespace {self._connections.settings.namespace!r} does not exist yet: the first queue or topic, or "
                f"'kafkabus namespace create', makes it, in format {LATEST}"
            )
        return known

    def _put(self, known: NamespaceDescription, **changes: object) -> NamespaceDescription:
        changed = known.model_copy(update={**changes, "updated_at": datetime.now(timezone.utc)})
        self._descriptions.put_namespace(changed)
        return changed

    def _check_programs(self) -> None:
        """Check that the programs that were heard of lately read the latest format.

        Raises:
            InvalidOperationError: Some do not.
        """
        namespace = self._connections.settings.namespace
        registered = self._registry.clients()
        outdated = [
            f"client {client.client_id} of kafkabus {client.version}" for client in registered if client.reads < LATEST
        ]
        users = {upkeep_key(namespace): "'kafkabus serve', instance"}
        for description in self._descriptions.all():
            for path in EntityPath(description.name).all:
                users[receivers_key(namespace, path)] = f"a receiver of {path}, client"
        unregistered = self._registry.find_unregistered(list(users), registered, HEARTBEAT_LIFETIME)
        outdated += [f"{users[key]} {client_id}" for key, ids in unregistered.items() for client_id in ids]
        if outdated:
            more = f", and {len(outdated) - NAMED} more" if len(outdated) > NAMED else ""
            raise InvalidOperationError(
                f"namespace {namespace!r} was not upgraded, because programs that do not read format {LATEST} use it: "
                f"{'; '.join(outdated[:NAMED])}{more}; upgrade or stop them, and try again after some seconds"
            )
