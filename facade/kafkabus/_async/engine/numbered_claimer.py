"""Claiming messages by their sequence numbers: the steps that deferred and waiting ones have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from kafkabus._async.compat import on_left
from kafkabus._async.engine.message_claimer import MessageClaimer, put_back
from kafkabus._async.engine.receiver_scope import ReceiverScope
from kafkabus._async.receiving.readers import Reader
from kafkabus._async.receiving.session_reader import SessionLock
from kafkabus._core.delivery import Grant
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import MessageNotFoundError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._ledger.operations import Operation
from kafkabus_mapping.numbers import sequence_number as number_of
from kafkabus_mapping.numbers import split_sequence_number


class NumberedClaimer:
    """Claims messages, all that a call names or none. A call that fails gives back what it was granted.

    Args:
        scope: The receiver's entity and session.
        claimer: Prepares granted messages for the caller.
    """

    def __init__(self, scope: ReceiverScope, claimer: MessageClaimer) -> None:
        self._scope = scope
        self._claimer = claimer

    async def claim(self, entity: Entity, numbers: Sequence[int]) -> list[ServiceBusReceivedMessage]:
        """Lock the messages of some sequence numbers and read them; expired ones are left out.

        Raises:
            MessageNotFoundError: A number names no such message.
            ServiceBusError: See the class that locks them.
        """
        wanted: dict[int, list[int]] = defaultdict(list)
        for number in dict.fromkeys(numbers):
            partition, offset = self._place_of(number, entity)
            wanted[partition].append(offset)
        try:
            return await self._claim_in_session(entity, wanted)
        except LedgersReplacedError as error:
            await self._scope.context.catalog.check_moved_on(entity, error)
            return await self._claim_in_session(await self._scope.entity(), wanted)

    def missing_error(self, entity: Entity, numbers: Sequence[int]) -> MessageNotFoundError:
        """Return the error that says that numbers name no messages that can be claimed."""
        raise NotImplementedError

    async def _claim_in_session(
        self, entity: Entity, wanted: Mapping[int, list[int]]
    ) -> list[ServiceBusReceivedMessage]:
        """Claim messages by partition and offsets; those of the receiver's session, if it has one."""
        await self._scope.note_use(entity)
        lock = await self._scope.lock_session(None)
        if lock is not None and wanted.keys() - {lock.partition}:
            raise self.missing_error(entity, [number_of(where, offset) for where in wanted for offset in wanted[where]])
        return await self._claim_places(entity, wanted, lock)

    async def _claim_places(
        self, entity: Entity, wanted: Mapping[int, list[int]], lock: SessionLock | None
    ) -> list[ServiceBusReceivedMessage]:
        """Lock messages, read them, and return them by ``_deliver``; if that fails, call ``_give_back``."""
        raise NotImplementedError

    async def _deliver(
        self, entity: Entity, reader: Reader, grants: Sequence[Grant]
    ) -> list[ServiceBusReceivedMessage]:
        """Return granted messages; they are given back if the caller has left."""
        messages = await self._claimer.deliver(entity, grants)
        on_left(partial(put_back, reader, messages))
        return messages

    async def _give_back(self, reader: Reader, releases: Sequence[Operation], grants: Sequence[Grant]) -> None:
        """Give back the messages of a call that failed."""
        for release in releases:
            self._scope.context.ledger_client.enqueue(release)
        # Messages that are settled and were not handed out come with the next call that receives.
        await reader.log.undelivered.put_back([grant for grant in grants if not grant.delivery.lease])

    def _place_of(self, number: int, entity: Entity) -> tuple[int, int]:
        """Return the partition and the offset of a sequence number."""
        try:
            partition, offset = split_sequence_number(number)
        except ValueError as error:
            raise MessageNotFoundError(str(error), error=error) from error
        if partition >= entity.partitions:
            raise self.missing_error(entity, [number])
        return partition, offset
