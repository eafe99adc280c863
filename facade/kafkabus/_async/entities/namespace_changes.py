"""Changes of a namespace's settings."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from kafkabus._async.entities.catalog import EntityCatalog
from kafkabus._async.stores.entity_descriptions import NAMESPACE, EntityDescriptions
from kafkabus._core.exceptions import NamespaceFormatError
from kafkabus_mapping.entities import TopicDescription
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.formats import FIRST, needs_latest
from kafkabus_mapping.namespaces import LONGEST_LOCK, NamespaceDescription, NamespaceRuleError


class NamespaceChanges:
    """Changes a namespace's settings.

    Args:
        name: The name of the namespace.
        descriptions: The descriptions of all entities of the namespace.
        catalog: The entities; it creates the namespace if that does not exist yet.
    """

    def __init__(self, name: str, descriptions: EntityDescriptions, catalog: EntityCatalog) -> None:
        self._name = name
        self._descriptions = descriptions
        self._catalog = catalog

    async def set_longest_lock(self, longest_lock: timedelta | str) -> NamespaceDescription:
        """Set the longest lock that entities may have; return the namespace's description.

        Raises:
            ValueError: The value is no duration, or out of its bounds, or an entity has a longer lock.
            NamespaceFormatError: The namespace's format has no place for it.
            OperationTimeoutError: Another client changes the namespace.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if await self._descriptions.namespace() is None:
            await self._catalog.create_namespace()
        async with self._descriptions.lock_for_change(NAMESPACE) as lock:
            known = await self._descriptions.namespace() or await self._catalog.namespace()
            now = datetime.now(timezone.utc)
            changed = NamespaceDescription.model_validate(
                {**dict(known), "longest_lock": longest_lock, "updated_at": now}
            )
            if changed.longest_lock == known.longest_lock:
                return known
            if changed.longest_lock > LONGEST_LOCK and changed.written_format == FIRST:
                raise NamespaceFormatError(needs_latest("a lock of more than 5 minutes", self._name))
            await self._check_entities(changed.longest_lock)
            await lock.check()
            await self._descriptions.put_namespace(changed)
        return changed

    async def _check_entities(self, longest_lock: timedelta) -> None:
        """Check that no entity has a longer lock.

        Raises:
            NamespaceRuleError: One has.
        """
        for entity in await self._descriptions.all():
            if not isinstance(entity, TopicDescription) and entity.lock_duration > longest_lock:
                raise NamespaceRuleError(
                    ErrorText(
                        Term("longest_lock"),
                        f"={longest_lock}: {entity.kind} {entity.name!r} has ",
                        Term("lock_duration"),
                        f"={entity.lock_duration}; shorten that first",
                    )
                )
