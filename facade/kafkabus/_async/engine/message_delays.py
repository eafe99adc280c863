"""For how long abandoned messages are postponed: checked before anything is done, and stored before ledgers know it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from kafkabus._async.engine.receiver_scope import ReceiverScope
from kafkabus._async.stores.postponements import Postponement
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import NamespaceFormatError
from kafkabus._core.message import ServiceBusMessageState
from kafkabus._core.settlement import SettlementBatch, delay_of, still_there
from kafkabus_mapping.formats import FIRST, needs_latest


class MessageDelays:
    """Delays that applications ask for.

    Args:
        scope: The receiver's entity and session.
    """

    def __init__(self, scope: ReceiverScope) -> None:
        self._scope = scope

    async def check(
        self,
        delay: timedelta | float | None,
        batches: Sequence[SettlementBatch],
        *,
        transacted: bool,
    ) -> int | None:
        """Return a delay of abandoned messages in ms; None: as the entity's retry policy says.

        Args:
            delay: The delay: a timedelta, or seconds.
            batches: The messages.
            transacted: Whether a transaction is to abandon them.

        Raises:
            NamespaceFormatError: The namespace has no place for delays.
            TypeError: The delay is neither a timedelta nor a number of seconds.
            ValueError: The delay is negative or too long, or the messages cannot be postponed.
        """
        if delay is None:
            return None
        delay_ms = delay_of(delay)
        if transacted:
            raise ValueError(
                f"delay is {delay!r} and transaction is given: a transaction gives messages back as soon as it is "
                "committed, or as the retry policy says; leave one of both out"
            )
        context = self._scope.context
        # The description of the namespace is read with the first entity.
        await context.catalog.entity(self._scope.path)
        if delay_ms and context.descriptions.written_format == FIRST:
            what = "a delay of a message that is abandoned"
            raise NamespaceFormatError(needs_latest(what, context.settings.namespace))
        for message in (message for batch in batches for message in batch.messages):
            if delay_ms and message.state is ServiceBusMessageState.DEFERRED:
                raise ValueError(
                    f"delay is {delay!r} and message {message.sequence_number} is deferred: it stays deferred, and can be "
                    "received at any time by its number; abandon it without a delay"
                )
        return delay_ms

    async def store(
        self, entity: Entity, batches: Sequence[SettlementBatch], delay_ms: int, *, counted: int = 1
    ) -> None:
        """Store for how long messages are postponed, before their ledgers postpone them, so that it outlives Redis.

        Args:
            entity: The messages' entity.
            batches: The messages.
            delay_ms: For how long, ms; 0 takes an earlier delay back.
            counted: How many deliveries are added to their count.

        Raises:
            ServiceBusCommunicationError: Kafka did not store it; nothing was done.
        """
        there, _ = still_there(list(batches), entity)
        await self._scope.context.stores.postponements.store(
            [
                Postponement(
                    entity.ledgers[batch.delivery.partition].keys.prefix,
                    batch.ranges,
                    batch.delivery.count + counted,
                    delay_ms,
                )
                for batch in there
            ]
        )
