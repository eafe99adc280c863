"""Application properties that are changed when a message is settled: checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkabus._async.engine.receiver_scope import ReceiverScope
from kafkabus._core.exceptions import MessageSizeExceededError, NamespaceFormatError
from kafkabus._core.message import check_first_format, receipt_of
from kafkabus._core.record import size_of, with_changes
from kafkabus._core.settlement import SettlementBatch
from kafkabus_mapping.formats import FIRST, needs_latest
from kafkabus_mapping.properties import PropertyValue, write_changes


class PropertyChanges:
    """Changes of application properties that applications ask for.

    Args:
        scope: The receiver's entity and session.
    """

    def __init__(self, scope: ReceiverScope) -> None:
        self._scope = scope

    async def read(
        self,
        properties: Mapping[Any, PropertyValue] | None,
        batches: Sequence[SettlementBatch],
        *,
        any_format: bool = False,
    ) -> dict[str, str]:
        """Return application properties to change, by name, as ledgers keep them.

        Args:
            properties: The properties; None without any.
            batches: The messages.
            any_format: Whether a namespace of the first format has a place for them.

        Raises:
            MessageSizeExceededError: A message would be too large.
            NamespaceFormatError: The namespace has no place for changes.
            TypeError: A property has a type that messages cannot carry.
            ValueError: A text holds half of a surrogate pair.
        """
        if properties is None:
            return {}
        if not isinstance(properties, Mapping):
            raise TypeError(f"properties_to_modify is {type(properties).__name__}: give a mapping of names to values")
        context = self._scope.context
        changes = write_changes(properties)
        entity = await context.catalog.entity(self._scope.path)
        if context.descriptions.written_format == FIRST:
            check_first_format(properties, context.settings.namespace)
            if changes and not any_format:
                what = "a change of a message's application properties"
                raise NamespaceFormatError(needs_latest(what, context.settings.namespace))
        for message in (message for batch in batches for message in batch.messages):
            size = size_of(with_changes(receipt_of(message).record, changes)) if changes else 0
            if size > entity.max_message_bytes:
                raise MessageSizeExceededError(
                    f"message {message.sequence_number} would have {size} bytes with the changed properties: the namespace "
                    f"takes {entity.max_message_bytes}; change fewer or shorter ones; nothing was done"
                )
        return changes
