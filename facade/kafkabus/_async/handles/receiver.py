"""Receiving messages from a queue, and settling them."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from typing_extensions import Self

from kafkabus._async.compat import caller_left, guard, on_left, run_uninterrupted
from kafkabus._async.context import ClientContext
from kafkabus._async.dispositions.disposition import delivered_too_often
from kafkabus._async.dispositions.transaction_commit import PendingSettlement
from kafkabus._async.handles.lock_renewer import AutoLockRenewer
from kafkabus._async.handles.session import ServiceBusSession
from kafkabus._async.handles.transaction import ServiceBusTransaction
from kafkabus._async.kafka.offset_reader import LogTruncatedError
from kafkabus._async.receiving.peek import MessagePeeker
from kafkabus._async.receiving.readers import Reader, needs_session
from kafkabus._async.receiving.session_reader import SessionLock
from kafkabus._async.stores.changed_properties import as_changed
from kafkabus._core.compatibility import check_timeout, warn_unsupported
from kafkabus._core.delivery import Delivery, Grant
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.enums import ServiceBusReceiveMode
from kafkabus._core.exceptions import (
    InvalidOperationError,
    MessageAlreadySettled,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    NamespaceFormatError,
    ServiceBusError,
    SessionLockLostError,
)
from kafkabus._core.fetch_plan import runs_of
from kafkabus._core.message import ServiceBusReceivedMessage, check_first_format
from kafkabus._core.record import Record, session_of, size_of, with_changes
from kafkabus._core.settlement import (
    DEFERRED_LIMIT,
    SettlementBatch,
    by_delivery,
    check_unsettled,
    raise_lost,
    still_there,
    too_many_deferred,
    too_much_changed,
)
from kafkabus._ledger.operations import Deferral, Ledger, Purge, Recall, Renewal, Settlement, new_lease
from kafkabus._ledger.ranges import merge_offsets, offsets_of
from kafkabus._runtime import forks, instruments
from kafkabus_mapping.codec import LONGEST_REASON, to_milliseconds
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.formats import FIRST, needs_latest
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.numbers import sequence_number as number_of
from kafkabus_mapping.numbers import split_sequence_number
from kafkabus_mapping.properties import PropertyValue, write_changes

LOGGER = logging.getLogger("kafkabus")

S = TypeVar("S", bound=Settlement)

DEFAULT_WAIT = 60.0
"""How long, in seconds, a receive waits for a first message by default."""
ENDS_TOGETHER = 1.0
"""How much sooner than a wait, in seconds, a session's lock may end and the wait ends without an error all the same."""
UNREAD_AT_ONCE = 50
"""How many messages of a session are claimed at once, at the most, if their bytes are limited: their sizes are not known."""
LOOKED_AT_ONCE = 1_000
"""How many offsets are read together to look for scheduled messages."""
FOREVER = 3600.0
"""How long, in seconds, one wait of an iteration that never ends lasts; then it waits again."""


class ServiceBusReceiver:
    """Receives from one queue or subscription. Safe to share between asyncio tasks.

    ``ServiceBusClient.get_queue_receiver`` and ``get_subscription_receiver`` return receivers.

    Attributes:
        entity_path: The queue or subscription, with its sub-queue.
        fully_qualified_namespace: Host name of the namespace.
        client_identifier: The receiver's name for logs, as given or generated.
    """

    def __init__(
        self,
        context: ClientContext,
        path: EntityPath,
        *,
        receive_mode: ServiceBusReceiveMode,
        max_wait_time: float | None,
        prefetch_count: int = 0,
        auto_lock_renewer: AutoLockRenewer | None = None,
        client_identifier: str | None = None,
        session: ServiceBusSession | None = None,
    ) -> None:
        self.entity_path = str(path)
        self.fully_qualified_namespace = context.settings.fully_qualified_namespace
        self.client_identifier = client_identifier or f"SBReceiver-{uuid.uuid4()}"
        self._context = context
        self._path = path
        self._mode = receive_mode
        self._max_wait_time = max_wait_time
        self._prefetch_count = prefetch_count
        self._renewer = auto_lock_renewer
        self._session = session
        self._peeker = MessagePeeker()
        self._stock: deque[ServiceBusReceivedMessage] = deque()
        self._half_lock = 0.0
        # How many bytes of messages a claim takes, as far as their sizes are known before.
        self._most_bytes: float = math.inf
        self._closed = False
        context.receiving.readers.on_open(path)
        forks.watch(self)

    def _after_fork(self) -> None:
        # Prefetched messages are locked for the parent process.
        self._stock.clear()

    def __str__(self) -> str:
        return f"Receiver client id: {self.client_identifier}, entity: {self.entity_path}"

    @guard
    async def __aenter__(self) -> Self:
        self._check_open()
        await self._entity()
        if self._session is not None:
            await self._open_session(self._session, None)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @guard
    async def close(self) -> None:
        """Close the receiver. A second call does nothing.

        Messages that it handed out stay locked until their locks expire; prefetched ones are available at once, and no
        delivery is counted. A session is available at once, with all of its messages that were not settled.
        """
        before, self._closed = self._closed, True
        stock, self._stock = self._stock, deque()
        await self._put_back(list(stock))
        if self._session is not None:
            await self._session._close()
        if not before:
            await self._context.receiving.readers.on_close(self._path)

    # blocking: def next(self) -> ServiceBusReceivedMessage:
    # blocking:     """Return the next message, as ``next(receiver)`` does."""
    # blocking:     return self.__next__()

    @property
    def session(self) -> ServiceBusSession | None:
        """The session that it receives from; None if it does not receive from a session."""
        return self._session

    @guard
    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive up to ``max_message_count`` messages, waiting for the first.

        The receiver fills a batch while messages are at hand, and does not wait for more than that.

        Args:
            max_message_count: The most messages to receive. None: as many as the receiver prefetches, which is none by default.
            max_wait_time: The longest wait for the first message, in seconds; by default the receiver's, else 60.

        Returns:
            The messages; empty if none came in time.

        Raises:
            ValueError: An argument is not positive, or the receiver was closed.
            MessagingEntityNotFoundError: There is no such queue.
            MessagingEntityDisabledError: The queue gives no messages.
            InvalidOperationError: The queue forwards its messages to another one.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._check_open()
        if max_wait_time is not None and max_wait_time <= 0:
            raise ValueError(
                ErrorText(
                    Term("max_wait_time"), f" {max_wait_time}: give seconds, more than 0, or None for the default"
                )
            )
        if max_message_count is None:
            max_message_count = self._prefetch_count
            if max_message_count == 0:
                return []
        if max_message_count <= 0:
            raise ValueError(f"max_message_count {max_message_count}: ask for 1 message or more")
        wait = max_wait_time or self._max_wait_time or DEFAULT_WAIT
        return await self._receive(max_message_count, wait)

    def __aiter__(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        self._check_open()
        return self

    @guard
    async def __anext__(self) -> ServiceBusReceivedMessage:
        while True:
            self._check_open()
            messages = await self._receive(1, self._max_wait_time or FOREVER)
            if messages:
                return messages[0]
            if self._max_wait_time is not None:
                raise StopAsyncIteration

    async def complete_message(
        self, message: ServiceBusReceivedMessage, *, transaction: ServiceBusTransaction | None = None
    ) -> None:
        """Complete the message: it will not be delivered again.

        Args:
            message: The message.
            transaction: A transaction that this is to be part of: then it happens when the transaction is committed.

        Raises:
            TypeError: The argument is no received message.
            ValueError: The message was not locked, or the receiver was closed.
            MessageAlreadySettled: The message was settled before.
            MessageLockLostError: The message's lock expired; it will be delivered again.
            ServiceBusCommunicationError: Redis cannot be reached; it is unknown whether the message was completed.
        """
        await self.complete_messages([message], transaction=transaction)

    @guard
    async def complete_messages(
        self, messages: Sequence[ServiceBusReceivedMessage], *, transaction: ServiceBusTransaction | None = None
    ) -> None:
        """Complete several messages in one round trip.

        Args:
            messages: The messages.
            transaction: See ``complete_message``.

        Raises:
            MessageLockLostError: Locks of some messages expired, the error names these; the others were completed.
            TypeError: See ``complete_message``, also for ValueError and MessageAlreadySettled; nothing was done.
            ServiceBusCommunicationError: Redis cannot be reached; it is unknown whether the messages were completed.
        """
        batches = self._batches(messages, transaction)
        if transaction is not None:
            transaction._add_settlements(self._pending("complete", batches))
            return
        entity = await self._context.catalog.entity(self._path)
        self._end("complete", "completed", batches, await self._settle(entity, "complete", batches))

    async def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Give the message back: it is available at once, and one delivery is counted.

        If that was the last of ``max_delivery_count`` deliveries, the message is dead-lettered instead.

        Args:
            message: The message.
            properties_to_modify: Application properties that the message has from now on, beside its others, as the service
                does it for its SDKs of .NET, Java, JavaScript and Go. A later change adds to an earlier one. Subscriptions'
                rules are not evaluated again. The namespace's format must be 2.
            transaction: See ``complete_message``.

        Raises:
            MessageLockLostError: The message's lock expired; it is available anyway. For other errors see ``complete_message``.
            MessageSizeExceededError: With the changed properties, the message would be too large; nothing was done.
            NamespaceFormatError: The namespace's format is 1, which has no place for changes; nothing was done.
            ServiceBusQuotaExceededError: The changed properties of all messages of a partition would have more than 16 MiB;
                those of that partition stay locked.
            TypeError: Also if a changed property has a type that messages cannot carry.
        """
        await self.abandon_messages([message], properties_to_modify=properties_to_modify, transaction=transaction)

    @guard
    async def abandon_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        *,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Abandon several messages in one round trip; see ``abandon_message`` and ``complete_messages``."""
        batches = self._batches(messages, transaction)
        changes = await self._changes(properties_to_modify, batches)
        if transaction is not None:
            # If this counts as one delivery too many, the receiver that claims the message next dead-letters it.
            transaction._add_settlements(self._pending("abandon", batches, changes=changes))
            return
        entity = await self._context.catalog.entity(self._path)
        last = [one for one in batches if one.delivery.count + 1 >= entity.max_deliveries]
        lost = await self._settle(entity, "abandon", [one for one in batches if one not in last], changes)
        for one in last:
            lost += await self._dead_letter(
                entity, [one], *delivered_too_often(entity, one.delivery.count + 1), changes=changes
            )
        self._end("abandon", "abandoned", batches, lost)

    async def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Defer the message: it can be received by its sequence number only, see ``receive_deferred_messages``.

        Args:
            message: The message.
            properties_to_modify: See ``abandon_message``, also for what is raised because of it.
            transaction: See ``complete_message``.

        Raises:
            ServiceBusQuotaExceededError: Too many messages of the partition are deferred already; the message stays locked.
            MessageLockLostError: The message's lock expired; it is available again. For other errors see ``complete_message``.
        """
        await self.defer_messages([message], properties_to_modify=properties_to_modify, transaction=transaction)

    @guard
    async def defer_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        *,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Defer several messages in one round trip; see ``defer_message`` and ``complete_messages``."""
        batches = self._batches(messages, transaction)
        changes = await self._changes(properties_to_modify, batches)
        if transaction is not None:
            transaction._add_settlements(self._pending("defer", batches, changes=changes))
            return
        entity = await self._context.catalog.entity(self._path)
        asked, lost = await self._ask(
            entity,
            batches,
            lambda ledger, one: Deferral(ledger, one.delivery.lease, one.ranges, DEFERRED_LIMIT, changes),
        )
        full = [deferral.ledger.partition for _, deferral in asked if deferral.full]
        for one, deferral in asked:
            if not deferral.full and deferral.too_much is None:
                lost += one.mark_settled(deferral.lost)
        _check_changes(entity, asked)
        if full:
            raise too_many_deferred(entity, full[0])
        self._end("defer", "deferred", batches, lost)

    async def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Move the message into the queue's dead-letter queue.

        Args:
            message: The message.
            reason: The reason in a word.
            error_description: The reason in more words. Each text has at most 4,096 characters, as in Service Bus.
            properties_to_modify: See ``abandon_message``; in a namespace of any format.
            transaction: See ``complete_message``.

        Raises:
            ValueError: A text has more characters, or half of a surrogate pair; nothing was done.
            MessageLockLostError: The message's lock expired; it stays where it is. For other errors see ``complete_message``.
            OperationTimeoutError: The move began and was not finished in time; it will be finished later.
        """
        await self.dead_letter_messages(
            [message],
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            transaction=transaction,
        )

    @guard
    async def dead_letter_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Dead-letter several messages for the same reason; see ``dead_letter_message`` and ``complete_messages``."""
        _check_reason("reason", reason)
        _check_reason("error_description", error_description)
        batches = self._batches(messages, transaction)
        # A dead-letter queue has none of its own: messages that are dead-lettered there stay there.
        verb = "abandon" if self._path.is_dead_letter else "dead_letter"
        changes = await self._changes(properties_to_modify, batches, any_format=verb == "dead_letter")
        if transaction is not None:
            transaction._add_settlements(self._pending(verb, batches, reason, error_description, changes))
            return
        entity = await self._context.catalog.entity(self._path)
        if verb == "abandon":
            lost = await self._settle(entity, verb, batches, changes)
        else:
            lost = await self._dead_letter(entity, batches, reason, error_description, changes)
        self._end("dead_letter", "dead-lettered", batches, lost)

    @guard
    async def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **unsupported: object
    ) -> datetime:
        """Lock the message anew, for the queue's whole lock duration from now on; its token stays.

        Args:
            message: The message.
            timeout: Kept for compatibility: a ledger answers or cannot be reached.
            **unsupported: Named in a warning.

        Returns:
            When the lock expires now, in UTC, on the ledger's clock; also in ``message.locked_until_utc``.

        Raises:
            MessageLockLostError: The lock expired before. For other errors see ``complete_message``.
            TypeError: Also if the receiver has a session, which has the lock: see ``ServiceBusSession.renew_lock``.
        """
        warn_unsupported(unsupported)
        check_timeout(timeout)
        if self._session is not None:
            raise TypeError("messages of a session are locked with it: renew with receiver.session.renew_lock()")
        raise_lost("renewed", await self._renew(self._batches([message], renewing=True)))
        until = message.locked_until_utc
        if until is None:
            raise MessageAlreadySettled  # By another thread, while this one waited.
        return until

    @guard
    async def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None, **unsupported: object
    ) -> list[ServiceBusReceivedMessage]:
        """Receive messages that were deferred, all of them or none.

        They are locked like other messages. If they are abandoned or their locks expire, they are still deferred.

        Args:
            sequence_numbers: The messages' sequence numbers, one or several.
            timeout: Kept for compatibility.
            **unsupported: Named in a warning.

        Returns:
            The messages in the order of the numbers.

        Raises:
            MessageNotFoundError: A number names no deferred message, or one that is locked; none was received.
            ValueError: The receiver was closed, or the timeout is not positive.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._check_open()
        warn_unsupported(unsupported)
        check_timeout(timeout)
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        if not numbers:
            return []
        entity = await self._entity()
        wanted: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            partition, offset = _place_of(number, entity)
            wanted[partition].append(offset)
        try:
            messages = await self._recall(entity, wanted)
        except LedgersReplacedError as error:
            await self._context.catalog.check_moved_on(entity, error)
            messages = await self._recall(await self._entity(), wanted)
        self._renew_automatically(messages)
        received = {message.sequence_number: message for message in messages}
        missing = [number for number in numbers if number not in received]
        if missing:
            await self._put_back(messages)
            raise _not_deferred(entity, missing)
        self._note_received(messages)
        return [received[number] for number in dict.fromkeys(numbers)]

    @guard
    async def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
        **unsupported: object,
    ) -> list[ServiceBusReceivedMessage]:
        """Look at messages that are not settled, without locking them: waiting, locked and deferred ones.

        In each partition a receiver goes on where its last call stopped, so calls until nothing comes show all messages. It
        also goes on behind messages that it received. One call returns no more than 256 KiB.

        Args:
            max_message_count: The most messages to return.
            sequence_number: The number to look from, in the order of the numbers; 0 to go on.
            timeout: Kept for compatibility.
            **unsupported: Named in a warning.

        Returns:
            The messages, which cannot be settled.

        Raises:
            ValueError: The count is negative, the timeout is not positive, or the receiver was closed.
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._check_open()
        warn_unsupported(unsupported)
        check_timeout(timeout)
        if max_message_count < 0:
            raise ValueError(f"max_message_count {max_message_count}: ask for 0 messages or more")
        entity = await self._entity()
        if self._session is not None:
            lock = await self._open_session(self._session, timeout)
            self._peeker.keep_to(lock.session)
        if not sequence_number:
            return await self._peeker.look_on(self._context.receiving.peek_parts, entity, max_message_count)
        partition, offset = split_sequence_number(sequence_number)
        return await self._peeker.look_from(
            self._context.receiving.peek_parts, entity, partition, offset, max_message_count
        )

    @guard
    async def purge_messages(self, *, before_enqueue_time_utc: datetime | None = None) -> int:
        """Settle all waiting messages without receiving them; locked, deferred and scheduled messages stay.

        No records are read, however many there are, unless senders ever scheduled messages there. Messages that a plain Kafka
        producer scheduled, and that no reader has found yet, go with the rest. Azure's .NET SDK has ``PurgeMessagesAsync``.

        Args:
            before_enqueue_time_utc: Purge only messages that were enqueued before; by default all that are there now. Naive
                times are UTC.

        Returns:
            The number of offsets that were passed: those of the messages, and those of the markers of Kafka transactions.

        Raises:
            ValueError: The receiver was closed.
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._check_open()
        if self._session is not None:
            raise ValueError("a session's receiver purges nothing: use one of the queue, without session_id")
        entity = await self._context.catalog.entity(self._path)
        topics, partitions = self._context.topics, range(entity.partitions)
        if before_enqueue_time_utc is None:
            upto = await topics.ends(entity.topic, partitions)
        else:
            upto = await topics.offsets_at(entity.topic, partitions, to_milliseconds(before_enqueue_time_utc))
        await self._note_use(entity)
        await self._put_off(entity, upto)
        purged = 0
        purges = [Purge(entity.ledgers[partition], offset) for partition, offset in upto.items()]
        while purges:
            await self._context.ledger_client.execute(*purges)
            purged += sum(purge.purged for purge in purges)
            purges = [Purge(purge.ledger, purge.upto) for purge in purges if purge.more]
        return purged

    async def _put_off(self, entity: Entity, upto: Mapping[int, int]) -> None:
        """Keep scheduled messages from a purge, also those that were stored and that their ledger does not know yet."""
        for partition, state in enumerate(await self._context.ledger_client.states(entity.ledgers)):
            if entity.description.schedules or (state is not None and state.schedules):
                first = 0 if state is None else state.cursor
                for start in range(first, upto.get(partition, 0), LOOKED_AT_ONCE):
                    last = min(start + LOOKED_AT_ONCE, upto[partition]) - 1
                    records = await self._context.stores.archive.read(entity, partition, start, last)
                    await self._context.dispositions.put_off(entity, partition, records)

    async def _ask(
        self, entity: Entity, batches: list[SettlementBatch], operation: Callable[[Ledger, SettlementBatch], S]
    ) -> tuple[list[tuple[SettlementBatch, S]], list[ServiceBusReceivedMessage]]:
        """Have an operation done for each batch, in one round trip; return these, and messages whose partition is gone."""
        await self._note_use(entity)
        there, lost = still_there(batches, entity)
        operations = [operation(entity.ledgers[one.delivery.partition], one) for one in there]
        try:
            await self._context.ledger_client.execute(*operations)
        except LedgersReplacedError as error:
            await self._context.catalog.check_moved_on(entity, error)
            # The new ledgers know no locks of the old ones, and say so.
            return await self._ask(await self._context.catalog.entity(self._path), batches, operation)
        except ServiceBusError as error:
            self._note_failure("settle", error)
            raise
        return list(zip(there, operations, strict=True)), lost

    async def _settle(
        self, entity: Entity, verb: str, batches: list[SettlementBatch], changes: Mapping[str, str] | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Complete, abandon or release messages; return those whose locks were lost.

        The ledger decides, in ``_ledger/lua/settle.lua``: ``operations`` has a function for each verb.
        """
        asked, lost = await self._ask(
            entity,
            batches,
            lambda ledger, one: Settlement(ledger, verb, one.delivery.lease, one.ranges, changes),
        )
        for one, settlement in asked:
            if settlement.too_much is None:
                lost += one.mark_settled(settlement.lost)
        _check_changes(entity, asked)
        return lost

    async def _dead_letter(
        self,
        entity: Entity,
        batches: list[SettlementBatch],
        reason: str | None,
        description: str | None,
        changes: Mapping[str, str],
    ) -> list[ServiceBusReceivedMessage]:
        """Dead-letter messages; return those whose locks were lost."""
        kept = changes if self._context.descriptions.written_format > FIRST else {}
        batches, lost = still_there(batches, entity)
        for partition in sorted({one.delivery.partition for one in batches}):
            there = [one for one in batches if one.delivery.partition == partition]
            records: dict[str, list[Record]] = defaultdict(list)
            for one in there:
                records[one.delivery.lease] += [with_changes(message._record, changes) for message in one.messages]
            refused = await self._context.transfers.dead_letter(
                entity, partition, records, reason=reason, description=description, changes=kept
            )
            for one in there:
                lost += one.mark_settled(refused.get(one.delivery.lease, []))
        return lost

    async def _renew(self, batches: list[SettlementBatch]) -> list[ServiceBusReceivedMessage]:
        """Lock messages anew, in one round trip; return those whose locks were lost."""
        entity = await self._context.catalog.entity(self._path)
        asked, lost = await self._ask(
            entity, batches, lambda ledger, one: Renewal(ledger, one.delivery.lease, one.ranges, entity.lock_ms)
        )
        for one, renewal in asked:
            lost += one.mark_renewed(renewal.lost, renewal.expiry)
        return lost

    def _seconds_left(self, message: ServiceBusReceivedMessage) -> float:
        """Return how long a message's lock still lasts, as far as this client knows the ledger's clock."""
        if self._session is not None:
            return self._session._seconds_left()
        return self._context.catalog.seconds_left(self._path, message._delivery.partition, message._lock_until)

    async def _recall(self, entity: Entity, wanted: dict[int, list[int]]) -> list[ServiceBusReceivedMessage]:
        """Lock deferred messages and read them; expired ones go where expired messages go."""
        await self._note_use(entity)
        lock = None if self._session is None else await self._open_session(self._session, None)
        if lock is not None and wanted.keys() - {lock.partition}:
            raise _not_deferred(entity, [number_of(where, offset) for where in wanted for offset in wanted[where]])
        recalls = [
            Recall(
                entity.ledgers[partition],
                new_lease() if lock is None else lock.lease,
                merge_offsets(offsets),
                entity.lock_ms,
                session=lock is not None,
                rules=entity.rules_version,
            )
            for partition, offsets in wanted.items()
        ]
        reader = await self._context.receiving.readers.reader_of(entity)
        await self._context.ledger_client.execute(*recalls)
        if self._session is not None and any(recall.gone for recall in recalls):
            raise self._session._lost()
        releases = [recall.undo() for recall in recalls if recall.again]
        if len(releases) < len(recalls):
            if releases:
                await self._context.ledger_client.execute(*releases)
            raise _not_deferred(
                entity,
                [
                    number_of(recall.ledger.partition, offset)
                    for recall in recalls
                    for offset in offsets_of(recall.missing)
                ],
            )
        grants: list[Grant] = []
        try:
            if any(recall.stale_rules for recall in recalls):
                entity = await self._context.catalog.entity_anew(entity)
                reader.log.follow(entity)
            for recall in recalls:
                grants += await self._read_recalled(entity, reader, recall)
            if lock is not None:
                self._check_session(entity, grants, lock.session)
            messages = await self._deliver(entity, grants, self._mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE)
            on_left(partial(_put_back, reader, messages))
            return messages
        except BaseException:
            for release in releases:
                self._context.ledger_client.enqueue(release)
            # Messages that are settled and were not handed out come with the next call that receives.
            await reader.log.undelivered.put_back([grant for grant in grants if not grant.delivery.lease])
            raise

    async def _read_recalled(self, entity: Entity, reader: Reader, recall: Recall) -> list[Grant]:
        grants: list[Grant] = []
        for first, last, count in recall.again:
            delivery = entity.delivery(
                recall.ledger.partition,
                recall.lease,
                recall.expiry,
                count,
                deferred=True,
                session=self._session is not None,
            )
            records = await reader.log.read_again(delivery, [(first, last)])
            grants.append(Grant(delivery, await as_changed(self._context.connections, recall.ledger, records)))
        return grants

    @staticmethod
    def _check_session(entity: Entity, grants: Sequence[Grant], session: str) -> None:
        """Check that deferred messages are of the session, which is known only once they were read.

        Raises:
            MessageNotFoundError: Some are of another session.
        """
        others = [
            number_of(grant.delivery.partition, record.offset() or 0)
            for grant in grants
            for record in grant.records
            if session_of(record) != session
        ]
        if others:
            raise _not_deferred(entity, others)

    async def _receive(self, count: int, wait: float) -> list[ServiceBusReceivedMessage]:
        """Return up to ``count`` messages, prefetched ones first; messages that are claimed beyond them are prefetched."""
        messages = await self._take_stock(count)
        missing = count - len(messages)
        if missing:
            prefetch = self._prefetch_count if self._mode is ServiceBusReceiveMode.PEEK_LOCK else 0
            try:
                claimed = await self._claim(missing + prefetch, 0.0 if messages else wait)
            except BaseException as error:
                self._stock.extendleft(reversed(messages))
                self._note_failure("receive", error)
                raise
            messages += claimed[:missing]
            self._stock.extend(claimed[missing:])
            if self._closed:
                # Closed meanwhile: no call asks for these messages any more.
                await self._put_back(list(self._stock))
                self._stock.clear()
        if self._mode is ServiceBusReceiveMode.PEEK_LOCK:
            on_left(partial(self._restock, messages))
        self._renew_automatically(messages)
        self._note_received(messages)
        return messages

    async def _note_use(self, entity: Entity) -> None:
        """Keep an entity from being deleted because it is idle; a receive says by itself that the entity is used."""
        await self._context.connections.notifications.note_use(entity)

    def _note_received(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        if instruments.observer is not None and messages:
            instruments.observer.on_receive(self.entity_path, len(messages))

    def _note_failure(self, operation: str, error: BaseException) -> None:
        if instruments.observer is not None and isinstance(error, Exception):
            instruments.observer.on_error(self.entity_path, operation, error)

    async def _restock(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Keep messages that the caller has not seen for the next receive; give them back if the receiver was closed."""
        if self._closed:
            await self._put_back(messages)
        else:
            self._stock.extendleft(reversed(messages))

    async def _take_stock(self, count: int) -> list[ServiceBusReceivedMessage]:
        """Return up to ``count`` prefetched messages; give back those whose locks are half over, no delivery counted."""
        taken: list[ServiceBusReceivedMessage] = []
        old: list[ServiceBusReceivedMessage] = []
        while self._stock and len(taken) < count:
            try:
                message = self._stock.popleft()
            except IndexError:
                break  # Another thread was faster.
            if self._session is None:
                fresh = self._seconds_left(message) > self._half_lock
            else:
                # No message of a session overtakes one that goes back.
                fresh = not old and self._seconds_left(message) > 0
            (taken if fresh else old).append(message)
        await self._put_back(old)
        return taken

    async def _put_back(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give back messages that no caller has seen, for any receiver to claim; no delivery is counted."""
        if not messages:
            return
        try:
            entity = await self._context.catalog.entity(self._path)
            await self._settle(entity, "release", by_delivery(messages))
        except ServiceBusError as error:
            LOGGER.warning("put_back entity=%s count=%d error=%s", self.entity_path, len(messages), error)

    def _renew_automatically(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        if self._renewer is not None and self._session is None and self._mode is ServiceBusReceiveMode.PEEK_LOCK:
            for message in messages:
                self._renewer.register(self, message)

    async def _claim(self, count: int, wait: float) -> list[ServiceBusReceivedMessage]:
        """Claim up to ``count`` messages, waiting up to ``wait`` seconds until at least one is there."""
        deadline = time.monotonic() + wait
        held = self._session is not None and (not self._session._is_open or self._session._seconds_left() > 0)
        while not self._is_unwanted():
            entity = await self._entity()
            _check_receivable(entity)
            left = deadline - time.monotonic()
            try:
                lock = None if self._session is None else await self._open_session(self._session, wait)
                left = deadline - time.monotonic()
                messages = await self._claim_from(entity, lock, count, max(0.0, left))
            except SessionLockLostError:
                # A wait for as long as the lock lasts, by a receiver that has nothing to settle, was in vain; it lost nothing.
                settles = self._mode is ServiceBusReceiveMode.PEEK_LOCK
                if settles or not held or time.monotonic() < deadline - ENDS_TOGETHER:
                    raise
                return []
            except LedgersReplacedError as error:
                await self._context.catalog.check_moved_on(entity, error)
                continue
            except LogTruncatedError:
                # The next round reads the log from the ledger's cursor, and so finds out where it was truncated.
                if left <= 0:
                    raise
                continue
            if messages or (left <= 0 and self._context.catalog.goes_by(entity)):
                return messages
        return []

    async def _claim_from(
        self, entity: Entity, lock: SessionLock | None, count: int, wait: float
    ) -> list[ServiceBusReceivedMessage]:
        """Claim messages of an entity, or of the session that a lock holds, and prepare them for the application.

        The wait may end before its time, and does if the entity is no longer as it was.
        """
        take = self._mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
        reader: Reader

        def is_over() -> bool:
            return self._is_unwanted() or not self._context.catalog.goes_by(entity)

        if lock is None:
            reader = await self._context.receiving.readers.messages_of(entity)
            grants = await reader.receive(
                count, min(wait, reader.log.slice), is_over, take=take, most_bytes=self._most_bytes
            )
        else:
            reader = await self._context.receiving.readers.sessions_of(entity)
            if self._most_bytes < math.inf:
                count = min(count, UNREAD_AT_ONCE)
            grants = await reader.receive_next(lock, count, min(wait, reader.log.slice), is_over)
        try:
            messages = await self._deliver(entity, grants, take)
        except BaseException:
            await reader.log.undelivered.put_back(grants)
            raise
        if take and messages:
            on_left(partial(_put_back, reader, messages))
        return messages

    async def _entity(self) -> Entity:
        """Return the entity.

        Raises:
            ServiceBusError: It is a topic, or has sessions and the receiver has none, or is gone, or cannot be looked up.
        """
        entity = await self._context.catalog.entity(self._path)
        if entity.is_topic:
            raise InvalidOperationError(
                ErrorText(
                    f"{self._path} is a topic: receive from one of ",
                    Term(
                        "receive_from_subscription",
                        "its subscriptions, with get_subscription_receiver",
                        str(self._path),
                    ),
                )
            )
        if entity.has_sessions and self._session is None:
            raise needs_session(entity, self._path)
        return entity

    async def _open_session(self, session: ServiceBusSession, wait: float | None) -> SessionLock:
        """Return the lock of the session; lock the session now if it was not locked yet.

        Raises:
            SessionLockLostError: The lock was lost.
            ServiceBusError: See ``ServiceBusSession._open``.
        """
        opened = session._is_open
        lock = await session._open(wait, self._is_unwanted)
        if lock.lost:
            raise session._lost()
        if not opened and self._renewer is not None:
            self._renewer.register(self, session)
        return lock

    def _end(
        self,
        outcome: str,
        done: str,
        batches: Sequence[SettlementBatch],
        lost: Sequence[ServiceBusReceivedMessage],
    ) -> None:
        """Report a settlement to the process's observer, and raise an error if locks were lost."""
        if instruments.observer is not None:
            count = sum(len(one.messages) for one in batches)
            instruments.observer.on_settlement(self.entity_path, outcome, count - len(lost))
        try:
            self._raise_lost(done, lost)
        except Exception as error:
            self._note_failure("settle", error)
            raise

    def _raise_lost(self, done: str, lost: Sequence[ServiceBusReceivedMessage]) -> None:
        """Raise if locks were lost.

        Raises:
            MessageLockLostError: Locks of messages were lost.
            SessionLockLostError: The session's lock was lost.
        """
        if lost and self._session is not None:
            raise self._session._lost()
        raise_lost(done, lost)

    def _is_unwanted(self) -> bool:
        return self._closed or caller_left()

    async def _deliver(self, entity: Entity, grants: Sequence[Grant], take: bool) -> list[ServiceBusReceivedMessage]:
        """Return the granted messages, without those whose time to live is over and those that were delivered too often.

        Messages whose lock was over when they came, as far as this client can tell, go back, and no delivery is counted.
        """
        self._half_lock = entity.lock_ms / 2000
        delivered: list[Grant] = []
        late: list[Grant] = []
        for grant in grants:
            if await self._context.dispositions.outlives(entity, grant):
                (late if self._is_late(entity, grant, late) else delivered).append(grant)
        for grant in late:
            # Before any other request to the ledger, so that it does not grant a later message of the session.
            ledger, lease = entity.ledgers[grant.delivery.partition], grant.delivery.lease
            self._context.ledger_client.enqueue(Settlement(ledger, "release", lease, runs_of(grant.records)))
        if take:
            await self._settle_taken(entity, [grant for grant in delivered if grant.delivery.lease])
        messages: list[ServiceBusReceivedMessage] = []
        for grant in delivered:
            messages += [ServiceBusReceivedMessage(record, grant.delivery) for record in grant.records]
            if grant.records:
                self._peeker.on_receive(entity, grant.delivery.partition, grant.records[-1].offset() or 0)
        return messages

    def _is_late(self, entity: Entity, grant: Grant, late: Sequence[Grant]) -> bool:
        """Return whether a lock is over, as reading took long or Redis answered late; in a session, also if others' was."""
        delivery = grant.delivery
        if not delivery.lease:
            return False
        if delivery.session and self._session is not None:
            return bool(late) or self._session._seconds_left() <= 0
        return entity.ledgers[delivery.partition].seconds_until(delivery.expiry) <= 0

    async def _settle_taken(self, entity: Entity, grants: Sequence[Grant]) -> None:
        """Settle messages that were leased to be read, and are received and deleted."""
        settlements = [
            Settlement(
                entity.ledgers[grant.delivery.partition], "complete", grant.delivery.lease, runs_of(grant.records)
            )
            for grant in grants
        ]
        try:
            # This call must learn which messages were settled, also if its task is cancelled.
            await run_uninterrupted(self._context.ledger_client.execute(*settlements))  # type: ignore[func-returns-value, unused-ignore]
        finally:
            for grant, settlement in zip(grants, settlements, strict=True):
                if settlement.done and settlement.error is None:
                    # A message whose lock expired while it was read may be another receiver's by now; the caller has the rest.
                    lost = set(offsets_of(settlement.lost))
                    grant.records = [record for record in grant.records if record.offset() not in lost]
                    grant.delivery = replace(grant.delivery, lease="", expiry=0)

    def _batches(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        transaction: ServiceBusTransaction | None = None,
        *,
        renewing: bool = False,
    ) -> list[SettlementBatch]:
        """Return the messages to settle, by delivery; all are checked before anything is done."""
        self._check_open()
        if transaction is not None:
            transaction._check(self._context)
        if self._session is not None and self._session._is_lost:
            raise self._session._lost()
        batches = by_delivery(messages)
        for one in batches:
            self._check_delivery(one.delivery)
        check_unsettled(batches, enlisted=renewing)
        return batches

    def _pending(
        self,
        verb: str,
        batches: Sequence[SettlementBatch],
        reason: str | None = None,
        description: str | None = None,
        changes: Mapping[str, str] | None = None,
    ) -> list[PendingSettlement]:
        """Return settlements for a transaction."""
        return [
            PendingSettlement(self._path, verb, one, self._raise_lost, reason, description, changes or {})
            for one in batches
        ]

    async def _changes(
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
        changes = write_changes(properties)
        entity = await self._context.catalog.entity(self._path)
        if self._context.descriptions.written_format == FIRST:
            check_first_format(properties, self._context.settings.namespace)
            if changes and not any_format:
                what = "a change of a message's application properties"
                raise NamespaceFormatError(needs_latest(what, self._context.settings.namespace))
        for message in (message for one in batches for message in one.messages):
            size = size_of(with_changes(message._record, changes)) if changes else 0
            if size > entity.max_message_bytes:
                raise MessageSizeExceededError(
                    f"message {message.sequence_number} would have {size} bytes with the changed properties: the namespace "
                    f"takes {entity.max_message_bytes}; change fewer or shorter ones; nothing was done"
                )
        return changes

    def _check_delivery(self, delivery: Delivery) -> None:
        if self._mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE or not delivery.lease:
            raise ValueError(
                "the message is not locked, so it cannot be settled: it was received with RECEIVE_AND_DELETE or peeked"
            )
        if delivery.entity != self._path.key:
            raise ValueError(
                f"the message was received from {delivery.entity!r}: settle it with a receiver of that "
                f"queue, not of {self.entity_path!r}"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(
                "The handler has already been shutdown: this receiver was closed, get another from the client"
            )


def _check_changes(entity: Entity, asked: Sequence[tuple[SettlementBatch, Settlement]]) -> None:
    """Check that ledgers kept changed properties.

    Raises:
        ServiceBusQuotaExceededError: One did not, and did nothing.
    """
    for _, settlement in asked:
        if settlement.too_much is not None:
            raise too_much_changed(entity, settlement.ledger.partition, settlement.too_much)


def _check_receivable(entity: Entity) -> None:
    """Look whether an entity gives messages to receivers.

    Raises:
        MessagingEntityNotFoundError: It is about to be deleted.
        MessagingEntityDisabledError: It is disabled for receivers.
        InvalidOperationError: It forwards its messages.
    """
    entity.check_in_use()
    closed_by = entity.closing_status
    if closed_by is not None:
        raise MessagingEntityDisabledError(f"{closed_by} and gives no messages")
    if entity.forwards_to is not None:
        raise InvalidOperationError(
            f"{entity.kind} {entity.path} forwards its messages to {entity.forwards_to}: receive them there"
        )


async def _put_back(reader: Reader, messages: Sequence[ServiceBusReceivedMessage]) -> None:
    """Give back messages that no caller has seen: other receivers may get them; received and deleted ones come again."""
    grants = [Grant(one.delivery, [message._record for message in one.messages]) for one in by_delivery(messages)]
    await reader.log.undelivered.put_back(grants)


def _place_of(number: int, entity: Entity) -> tuple[int, int]:
    """Return the partition and the offset of a sequence number."""
    try:
        partition, offset = split_sequence_number(number)
    except ValueError as error:
        raise MessageNotFoundError(str(error), error=error) from error
    if partition >= entity.partitions:
        raise _not_deferred(entity, [number])
    return partition, offset


def _not_deferred(entity: Entity, numbers: Sequence[int]) -> MessageNotFoundError:
    return MessageNotFoundError(
        f"{entity.path}: no deferred messages with sequence numbers {list(numbers[:10])}: they were never deferred, are locked "
        "by another receiver, or are settled; nothing was received"
    )


def _check_reason(name: str, text: str | None) -> None:
    """Check that a text on why a message is dead-lettered can be stored with it.

    Raises:
        TypeError: The text is no ``str``.
        ValueError: The text is too long, or holds half of a surrogate pair.
    """
    if text is None:
        return
    if not isinstance(text, str):
        raise TypeError(f"{name} is {type(text).__name__}: use str; nothing was done")
    if len(text) > LONGEST_REASON:
        raise ValueError(
            f"{name} has {len(text):,} characters, and Service Bus takes {LONGEST_REASON:,}: shorten it; nothing was done"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} holds half of a surrogate pair, at position {error.start}: nothing was done"
        ) from error
