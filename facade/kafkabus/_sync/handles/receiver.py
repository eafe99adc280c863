# Generated from facade/kafkabus/_async/handles/receiver.py by tools/generate_blocking.py. Do not edit.
"""Receiving messages from a queue, and settling them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from typing_extensions import Self

from kafkabus._core.compatibility import check_timeout, warn_unsupported
from kafkabus._core.enums import ServiceBusReceiveMode
from kafkabus._core.exceptions import MessageAlreadySettled
from kafkabus._core.message import ServiceBusMessageState, ServiceBusReceivedMessage
from kafkabus._core.message_search import EXAMINED, MessageSearch, PeekedMessages
from kafkabus._core.rule_properties import RuleFilter
from kafkabus._core.settlement import SettlementBatch, check_reason, raise_lost
from kafkabus._sync.compat import guard
from kafkabus._sync.context import ClientContext
from kafkabus._sync.engine.held_session import held_session_of
from kafkabus._sync.engine.purge import purge
from kafkabus._sync.engine.receiver_engine import ReceiverEngine
from kafkabus._sync.engine.waiting_claimer import MOST_NUMBERS
from kafkabus._sync.handles.lock_renewer import AutoLockRenewer
from kafkabus._sync.handles.session import ServiceBusSession
from kafkabus._sync.handles.transaction import ServiceBusTransaction
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.properties import PropertyValue

DEFAULT_WAIT = 60.0
"""How long, in seconds, a receive waits for a first message by default."""
FOREVER = 3600.0
"""How long, in seconds, one wait of an iteration that never ends lasts; then it waits again."""


class ServiceBusReceiver:
    """Receives from one queue or subscription. Safe to share between threads.

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
        self._max_wait_time = max_wait_time
        self._prefetch_count = prefetch_count
        self._renewer = auto_lock_renewer
        self._renews_messages = session is None and receive_mode is ServiceBusReceiveMode.PEEK_LOCK
        self._session = session
        self._use = context.registry.begin_use(self.entity_path, self.client_identifier, sends=False)
        self._engine = ReceiverEngine(
            context,
            path,
            receive_mode,
            prefetch_count=prefetch_count,
            session=None if session is None else held_session_of(session),
            identifier=self.client_identifier,
            on_session_locked=None if auto_lock_renewer is None else self._renew_session,
        )

    def __str__(self) -> str:
        return f"Receiver client id: {self.client_identifier}, entity: {self.entity_path}"

    @guard
    def __enter__(self) -> Self:
        self._engine.open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @guard
    def close(self) -> None:
        """Close the receiver. A second call does nothing.

        Messages that it handed out stay locked until their locks expire; prefetched ones are available at once, and no
        delivery is counted. A session is available at once, with all of its messages that were not settled.
        """
        self._use.is_over = True
        self._engine.close()

    def next(self) -> ServiceBusReceivedMessage:
        """Return the next message, as ``next(receiver)`` does."""
        return self.__next__()

    @property
    def session(self) -> ServiceBusSession | None:
        """The session that it receives from; None if it does not receive from a session."""
        return self._session

    @guard
    def receive_messages(
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
        self._engine.scope.check_open()
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
        return self._receive(max_message_count, wait)

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        self._engine.scope.check_open()
        return self

    @guard
    def __next__(self) -> ServiceBusReceivedMessage:
        while True:
            self._engine.scope.check_open()
            messages = self._receive(1, self._max_wait_time or FOREVER)
            if messages:
                return messages[0]
            if self._max_wait_time is not None:
                raise StopIteration

    def complete_message(
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
        self.complete_messages([message], transaction=transaction)

    @guard
    def complete_messages(
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
            transaction._add_settlements(self._engine.settler.prepare("complete", batches))
            return
        self._engine.settler.complete(batches)

    def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Give the message back, one delivery counted: it is available at once, or after a delay.

        If that was the last of ``max_delivery_count`` deliveries, the message is dead-lettered instead.

        A message that is given back with a delay is *postponed*: it keeps its sequence number and its place, no receiver holds
        it, and none gets it before its time. It counts as active. The messages of its session that come behind it wait for it.

        Args:
            message: The message.
            delay: After which time the message is available: a timedelta, or seconds, of at most 7 days; 0 for at once. By
                default as the queue's or subscription's retry policy says, and at once without one. It is stored in Kafka
                before this returns. The namespace's format must be 2. The service has no such delay.
            properties_to_modify: Application properties that the message has from now on, beside its others, as the service
                does it for its SDKs of .NET, Java, JavaScript and Go. A later change adds to an earlier one. Subscriptions'
                rules are not evaluated again. The namespace's format must be 2.
            transaction: See ``complete_message``.

        Raises:
            MessageLockLostError: The message's lock expired; it is available anyway. For other errors see ``complete_message``.
            MessageSizeExceededError: With the changed properties, the message would be too large; nothing was done.
            NamespaceFormatError: The namespace's format is 1, which has no place for changes and delays; nothing was done.
            ValueError: Also if the delay is negative or over 7 days, in a transaction, or of a deferred message; nothing was
                done.
            ServiceBusQuotaExceededError: The changed properties of all messages of a partition would have more than 16 MiB;
                those of that partition stay locked.
            TypeError: Also if a changed property has a type that messages cannot carry.
        """
        self.abandon_messages(
            [message], delay=delay, properties_to_modify=properties_to_modify, transaction=transaction
        )

    @guard
    def abandon_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Abandon several messages in one round trip; see ``abandon_message`` and ``complete_messages``."""
        batches = self._batches(messages, transaction)
        delay_ms = self._engine.settler.delays.check(delay, batches, transacted=transaction is not None)
        changes = self._engine.settler.changes.read(properties_to_modify, batches)
        if transaction is not None:
            # If this counts as one delivery too many, the receiver that claims the message next dead-letters it.
            transaction._add_settlements(self._engine.settler.prepare("abandon", batches, changes=changes))
            return
        self._engine.settler.abandon(batches, changes, delay_ms)

    def defer_message(
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
        self.defer_messages([message], properties_to_modify=properties_to_modify, transaction=transaction)

    @guard
    def defer_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        *,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Defer several messages in one round trip; see ``defer_message`` and ``complete_messages``."""
        batches = self._batches(messages, transaction)
        changes = self._engine.settler.changes.read(properties_to_modify, batches)
        if transaction is not None:
            transaction._add_settlements(self._engine.settler.prepare("defer", batches, changes=changes))
            return
        self._engine.settler.defer(batches, changes)

    def dead_letter_message(
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
        self.dead_letter_messages(
            [message],
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            transaction=transaction,
        )

    @guard
    def dead_letter_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[Any, PropertyValue] | None = None,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Dead-letter several messages for the same reason; see ``dead_letter_message`` and ``complete_messages``."""
        check_reason("reason", reason)
        check_reason("error_description", error_description)
        batches = self._batches(messages, transaction)
        settler = self._engine.settler
        verb = settler.dead_letter_verb
        changes = settler.changes.read(properties_to_modify, batches, any_format=verb == "dead_letter")
        if transaction is not None:
            transaction._add_settlements(settler.prepare(verb, batches, reason, error_description, changes))
            return
        settler.dead_letter(batches, reason, error_description, changes)

    @guard
    def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **unsupported: object
    ) -> datetime:
        """Renew the message's lock, for the queue's whole lock duration from now on; its token stays.

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
        settler = self._engine.settler
        raise_lost("renewed", settler.renew(settler.check([message], renewing=True)))
        until = message.locked_until_utc
        if until is None:
            raise MessageAlreadySettled  # By another thread, while this one waited.
        return until

    @guard
    def receive_deferred_messages(
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
        self._engine.scope.check_open()
        warn_unsupported(unsupported)
        check_timeout(timeout)
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        if not numbers:
            return []
        messages = self._engine.receive_deferred(numbers)
        self._renew_automatically(messages)
        return messages

    @guard
    def receive_messages_by_sequence_number(
        self, sequence_numbers: int | Sequence[int]
    ) -> list[ServiceBusReceivedMessage]:
        """Receive messages that wait by their sequence numbers, out of their order, all of them or none.

        They are locked like other messages; the deliveries of no other message are counted. The service has no such operation.
        ``receive_deferred_messages`` has the messages that were deferred. In a session, a message may overtake earlier ones.

        Args:
            sequence_numbers: The messages' sequence numbers, one or several, up to 1,000.

        Returns:
            The messages in the order of the numbers.

        Raises:
            MessageNotFoundError: A number names no message that waits: there is none, or it is settled, locked by another
                receiver, deferred, scheduled, expired, or of another session; none was received.
            ServiceBusQuotaExceededError: More than 10,000 messages of a partition would be received in this way that no
                receiver has come to yet; none was received.
            OperationTimeoutError: In a session, the messages of its partition before it could not be looked at within 30 s.
            ValueError: The receiver was closed, or there are too many numbers.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._engine.scope.check_open()
        messages = self._by_number(sequence_numbers)
        self._renew_automatically(messages)
        return messages

    @guard
    def delete_messages_by_sequence_number(self, sequence_numbers: int | Sequence[int]) -> None:
        """Delete messages that wait, without receiving them; see ``receive_messages_by_sequence_number``.

        Raises:
            MessageLockLostError: The lock of some expired before they were deleted; the others were deleted.
        """
        messages = self._by_number(sequence_numbers)
        if not self._engine.scope.takes:
            self._engine.settler.complete(self._batches(messages, None))

    @guard
    def dead_letter_messages_by_sequence_number(
        self,
        sequence_numbers: int | Sequence[int],
        reason: str | None = None,
        error_description: str | None = None,
    ) -> None:
        """Dead-letter messages that wait, without receiving them; see ``receive_messages_by_sequence_number``.

        Args:
            sequence_numbers: The messages' sequence numbers, one or several.
            reason: See ``dead_letter_message``, also for what is raised because of it.
            error_description: The reason in more words.

        Raises:
            ValueError: Also if the receiver's mode is ``RECEIVE_AND_DELETE``.
        """
        check_reason("reason", reason)
        check_reason("error_description", error_description)
        self._check_locks()
        messages = self._by_number(sequence_numbers)
        self._engine.settler.dead_letter(self._batches(messages, None), reason, error_description, {})

    @guard
    def postpone_messages_by_sequence_number(
        self, sequence_numbers: int | Sequence[int], delay: timedelta | float
    ) -> None:
        """Postpone messages that wait, without receiving them; no delivery is counted. Postponed ones get another time.

        Args:
            sequence_numbers: The messages' sequence numbers, one or several.
            delay: See ``abandon_message``; 0 makes postponed messages available at once.

        Raises:
            MessageNotFoundError: See ``receive_messages_by_sequence_number``, also for what else is raised.
            NamespaceFormatError: The namespace's format is 1; nothing was done.
            ValueError: Also if the receiver's mode is ``RECEIVE_AND_DELETE``, or the delay is negative or over 7 days.
        """
        self._check_locks()
        delay_ms = self._engine.settler.delays.check(delay, [], transacted=False) or 0
        messages = self._by_number(sequence_numbers)
        self._engine.settler.postpone(self._batches(messages, None), delay_ms)

    def _by_number(self, sequence_numbers: int | Sequence[int]) -> list[ServiceBusReceivedMessage]:
        """Lock the waiting messages of some sequence numbers."""
        self._engine.scope.check_open()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        if len(numbers) > MOST_NUMBERS:
            raise ValueError(f"there are {len(numbers):,} sequence numbers: give at most {MOST_NUMBERS:,} in one call")
        return self._engine.receive_by_number(numbers) if numbers else []

    def _check_locks(self) -> None:
        """Check that the receiver locks its messages."""
        if self._engine.scope.takes:
            raise ValueError("the receiver's mode is RECEIVE_AND_DELETE: open one whose mode is PEEK_LOCK")

    @guard
    def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
        filter: RuleFilter | str | None = None,
        state: ServiceBusMessageState | str | None = None,
        body_contains: str | bytes | None = None,
        max_examined_count: int = EXAMINED,
        **unsupported: object,
    ) -> PeekedMessages:
        """Look at messages that are not settled, without locking them: waiting, locked and deferred ones.

        In each partition a receiver goes on where its last call stopped, so calls until nothing comes show all messages. It
        also goes on behind messages that it received. One call returns no more than 256 KiB.

        With ``filter``, ``state`` or ``body_contains`` the call is a search: it returns the messages that satisfy all that
        are given, and may return none although there are more to examine. It begins at ``sequence_number``: 0, the default,
        is the beginning. Calls with the answer's ``next_sequence_number``, until that is None, examine all messages.

        A receiver without a session, which was not opened (``with``), may search through the messages of all sessions.

        Args:
            max_message_count: The most messages to return.
            sequence_number: The number to look from, in the order of the numbers; 0 to go on, or to search from the
                beginning.
            timeout: Kept for compatibility.
            filter: A filter of rules, or the SQL expression of one. ``sys.DeliveryCount`` is how often the message was
                delivered; dead letters also have the properties ``DeadLetterReason`` and ``DeadLetterErrorDescription``.
            state: A state, or a name: ``active``, ``deferred`` or ``scheduled``, which are Service Bus's, or of active
                messages ``waiting``, ``postponed``, or ``locked``; deferred messages may be locked as well.
            body_contains: A text, or bytes, that the body contains as it is stored: bodies that are sequences or values are
                stored as JSON.
            max_examined_count: How many messages one call of a search examines; default 10,000.
            **unsupported: Named in a warning.

        Returns:
            The messages, which cannot be settled, and where a search goes on.

        Raises:
            ValueError: The count is negative, the timeout is not positive, a filter cannot be parsed, there is no such state,
                or the receiver was closed.
            TypeError: The filter, the state or the part of a body has the wrong type.
            MessagingEntityNotFoundError: There is no such queue.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        self._engine.scope.check_open()
        warn_unsupported(unsupported)
        check_timeout(timeout)
        if max_message_count < 0:
            raise ValueError(f"max_message_count {max_message_count}: ask for 0 messages or more")
        search = MessageSearch.of(filter, state, body_contains, max_examined_count)
        return self._engine.peek(max_message_count, sequence_number, timeout, search)

    @guard
    def purge_messages(self, *, before_enqueue_time_utc: datetime | None = None) -> int:
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
        self._engine.scope.check_open()
        if self._session is not None:
            raise ValueError("a session's receiver purges nothing: use one of the queue, without session_id")
        scope = self._engine.scope
        return purge(scope.context, scope.path, before_enqueue_time_utc)

    def _receive(self, count: int, wait: float) -> list[ServiceBusReceivedMessage]:
        messages = self._engine.receive(count, wait)
        self._renew_automatically(messages)
        return messages

    def _renew_automatically(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        if self._renewer is not None and self._renews_messages:
            for message in messages:
                self._renewer.register(self, message)

    def _renew_session(self) -> None:
        if self._renewer is not None and self._session is not None:
            self._renewer.register(self, self._session)

    def _batches(
        self, messages: Sequence[ServiceBusReceivedMessage], transaction: ServiceBusTransaction | None
    ) -> list[SettlementBatch]:
        """Return the messages to settle, by delivery; all are checked before anything is done."""
        self._engine.scope.check_open()
        if transaction is not None:
            transaction._check(self._engine.scope.context)
        return self._engine.settler.check(messages)
