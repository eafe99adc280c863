# Generated from facade/kafkabus/_async/handles/client.py by tools/generate_blocking.py. Do not edit.
"""The entry point: a namespace's client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TypeVar

from typing_extensions import Self

from kafkabus._core.compatibility import check_timeout, warn_unsupported
from kafkabus._core.enums import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
)
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.settings import Settings, TokenProvider, host_of, parse_settings, settings_for
from kafkabus._runtime import forks
from kafkabus._runtime.weak import WeakList
from kafkabus._sync.compat import guard
from kafkabus._sync.context import ClientContext
from kafkabus._sync.handles.lock_renewer import AutoLockRenewer
from kafkabus._sync.handles.paging import Paged
from kafkabus._sync.handles.processor import SLICE, OnError, OnMessage, ServiceBusProcessor, ServiceBusSessionProcessor
from kafkabus._sync.handles.receiver import ServiceBusReceiver
from kafkabus._sync.handles.sender import ServiceBusSender
from kafkabus._sync.handles.session import ServiceBusSession, session_ids
from kafkabus._sync.handles.transaction import ServiceBusTransaction
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.names import EntityPath, SubQueue, check_entity
from kafkabus_mapping.names import subscription_name as subscription_path

MAX_PREFETCH = 50_000
"""The most messages that a receiver may prefetch."""

E = TypeVar("E", ServiceBusReceiveMode, ServiceBusSubQueue)


class ServiceBusClient:
    """A client of a namespace, which makes its senders and receivers. Safe to share between threads.

    Args:
        fully_qualified_namespace: Host name of the namespace; the environment has the addresses of Kafka and Redis
            (``KAFKABUS_BOOTSTRAP_SERVERS``, ``KAFKABUS_REDIS_URL``).
        credential: Accepted, not checked: Kafka and Redis decide about access. If Kafka takes tokens (OAUTHBEARER), its
            method ``get_token`` provides them; it must need no ``await``.
        kafka_token_provider: A function that returns a token for Kafka with the time at which it expires, in seconds since
            1970: ``(token, expires_on)``, or an object with these attributes. Kafka's client calls it in a separate thread
            whenever it needs another token.
        **unsupported: Named in a warning, except those that mean nothing here: ``retry_…``, ``user_agent``,
            ``logging_enable`` (configure the logger ``kafkabus``).

    Attributes:
        fully_qualified_namespace: Host name of the namespace.

    Raises:
        ValueError: The host name names no namespace, the address of Kafka or Redis is missing, the file of a secret cannot
            be read, or nothing provides the tokens that Kafka takes.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: object = None,
        *,
        kafka_token_provider: TokenProvider | None = None,
        **unsupported: object,
    ) -> None:
        warn_unsupported(unsupported)
        self._open(
            settings_for(
                host_of(fully_qualified_namespace), credential=credential, kafka_token_provider=kafka_token_provider
            )
        )

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        environment: Mapping[str, str] | None = None,
        kafka_token_provider: TokenProvider | None = None,
        **unsupported: object,
    ) -> Self:
        """Return a client of the namespace that a connection string names: Azure's own, or one that ``kafkabus up`` prints.

        Args:
            conn_str: The connection string. Put a value with a semicolon into double quotes, and write a quote inside it
                twice: ``KafkaSaslPassword="a;b""c"`` is ``a;b"c``.
            environment: ``KAFKABUS_…`` settings; the process's environment by default.
            kafka_token_provider: See the class.
            **unsupported: See the class.

        Raises:
            ValueError: The string is malformed (the message says which part), the address of Kafka or Redis is missing, the
                file of a secret cannot be read, or nothing provides the tokens that Kafka takes.
        """
        warn_unsupported(unsupported)
        client = cls.__new__(cls)
        client._open(parse_settings(conn_str, environment, kafka_token_provider=kafka_token_provider))
        return client

    def _open(self, settings: Settings) -> None:
        self.fully_qualified_namespace = settings.fully_qualified_namespace
        self._settings = settings
        self._guard = threading.Lock()
        forks.watch(self)
        self._context: ClientContext | None = None
        # A handle that the application does not hold any more needs no closing.
        self._handles: WeakList[ServiceBusSender | ServiceBusReceiver] = WeakList()

    def _after_fork(self) -> None:
        self._guard = threading.Lock()
        self._handles.after_fork()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @guard
    def close(self) -> None:
        """Close all senders and receivers that this client made; the client itself can be used again."""
        for handle in self._handles:
            handle.close()
        context, self._context = self._context, None
        if context is not None:
            context.close()

    @guard
    def get_queue_sender(
        self,
        queue_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,  # noqa: ARG002 - kept for compatibility
        **unsupported: object,
    ) -> ServiceBusSender:
        """Return a sender to a queue; it makes no request before it is used.

        Args:
            queue_name: Name of the queue.
            client_identifier: A name for logs.
            socket_timeout: Kept for compatibility.
            **unsupported: Named in a warning, except those that mean nothing here.

        Raises:
            ValueError: The name breaks a rule, or the connection string is for another entity.
        """
        warn_unsupported(unsupported)
        self._check_entity_path(queue_name)
        sender = ServiceBusSender(self._connections(), check_entity(queue_name), client_identifier)
        self._handles.add(sender)
        return sender

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_wait_time: float | None = None,
        auto_lock_renewer: AutoLockRenewer | None = None,
        prefetch_count: int = 0,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,  # noqa: ARG002 - kept for compatibility
        **unsupported: object,
    ) -> ServiceBusReceiver:
        """Return a receiver from a queue; it makes no request before it is used.

        Args:
            queue_name: Name of the queue.
            session_id: The session to receive from, or ``NEXT_AVAILABLE_SESSION``. The receiver locks the session when it is
                first used, and gives it up when it is closed.
            sub_queue: ``DEAD_LETTER`` (or its value) for the queue's dead-letter queue, ``TRANSFER_DEAD_LETTER`` for the one
                of messages that could not be forwarded.
            receive_mode: ``PEEK_LOCK`` locks messages until they are settled, ``RECEIVE_AND_DELETE`` settles them by
                receiving.
            max_wait_time: How long a receive waits for a first message, in seconds, and after how many seconds without a
                message an iteration ends; by default 60 for a receive, and never for an iteration.
            auto_lock_renewer: Renews the lock of each received message until it is settled.
            prefetch_count: How many messages a receive locks beyond those that it returns, for later receives: 0 to 50,000,
                default 0. They are never handed out expired: the receiver gives back messages whose lock is half over, and no
                delivery is counted. With ``RECEIVE_AND_DELETE`` no message is settled before a receive asks for it.
            client_identifier: A name for logs.
            socket_timeout: Kept for compatibility.
            **unsupported: Named in a warning, except those that mean nothing here.

        Raises:
            ValueError: An argument is none of its choices or not positive, or the connection string is for another entity.
        """
        warn_unsupported(unsupported)
        self._check_entity_path(queue_name)
        return self._receiver(
            check_entity(queue_name),
            session_id=session_id,
            sub_queue=sub_queue,
            receive_mode=receive_mode,
            max_wait_time=max_wait_time,
            auto_lock_renewer=auto_lock_renewer,
            prefetch_count=prefetch_count,
            client_identifier=client_identifier,
        )

    def get_topic_sender(
        self,
        topic_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,  # noqa: ARG002 - kept for compatibility
        **unsupported: object,
    ) -> ServiceBusSender:
        """Return a sender to a topic; see ``get_queue_sender``.

        Args:
            topic_name: Name of the topic.
            client_identifier: A name for logs.
            socket_timeout: Kept for compatibility.
            **unsupported: Named in a warning, except those that mean nothing here.

        Raises:
            ValueError: The name breaks a rule, or the connection string is for another entity.
        """
        warn_unsupported(unsupported)
        return self.get_queue_sender(topic_name, client_identifier=client_identifier)

    def get_subscription_receiver(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_wait_time: float | None = None,
        auto_lock_renewer: AutoLockRenewer | None = None,
        prefetch_count: int = 0,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,  # noqa: ARG002 - kept for compatibility
        **unsupported: object,
    ) -> ServiceBusReceiver:
        """Return a receiver from a subscription of a topic; it makes no request before it is used.

        Args:
            topic_name: Name of the topic.
            subscription_name: Name of the subscription.
            session_id: See ``get_queue_receiver``.
            sub_queue: See ``get_queue_receiver``.
            receive_mode: See ``get_queue_receiver``.
            max_wait_time: See ``get_queue_receiver``.
            auto_lock_renewer: See ``get_queue_receiver``.
            prefetch_count: See ``get_queue_receiver``.
            client_identifier: A name for logs.
            socket_timeout: Kept for compatibility.
            **unsupported: Named in a warning, except those that mean nothing here.

        Raises:
            ValueError: See ``get_queue_receiver``.
        """
        warn_unsupported(unsupported)
        name = subscription_path(topic_name, subscription_name)
        self._check_entity_path(topic_name, name)
        return self._receiver(
            name,
            session_id=session_id,
            sub_queue=sub_queue,
            receive_mode=receive_mode,
            max_wait_time=max_wait_time,
            auto_lock_renewer=auto_lock_renewer,
            prefetch_count=prefetch_count,
            client_identifier=client_identifier,
        )

    def get_queue_processor(
        self,
        queue_name: str,
        on_message: OnMessage,
        on_error: OnError | None = None,
        *,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_concurrent_calls: int = 1,
        auto_complete: bool = True,
        max_auto_lock_renewal_duration: float = 300,
        prefetch_count: int = 0,
        client_identifier: str | None = None,
    ) -> ServiceBusProcessor:
        """Return a processor of a queue: started with ``start`` or by entering it, it hands each message to a callback.

        Args:
            queue_name: Name of the queue.
            on_message: Handles a message. If it raises, the message is abandoned; if it returns and has not settled the
                message, the message is completed.
            on_error: Called with every error, the callback's own among them; errors are logged in any case.
            sub_queue: See ``get_queue_receiver``.
            receive_mode: See ``get_queue_receiver``.
            max_concurrent_calls: How many messages are handled at a time.
            auto_complete: If False, a message that the callback does not settle stays locked until its lock expires.
            max_auto_lock_renewal_duration: For how long the lock of each message is renewed, in seconds; 0 for no renewal.
            prefetch_count: See ``get_queue_receiver``.
            client_identifier: A name for logs.

        Raises:
            ValueError: See ``get_queue_receiver``; or ``max_concurrent_calls`` is below 1.
        """
        return self._processor(
            partial(self.get_queue_receiver, queue_name),
            on_message,
            on_error,
            sub_queue=sub_queue,
            receive_mode=receive_mode,
            max_concurrent_calls=max_concurrent_calls,
            auto_complete=auto_complete,
            max_auto_lock_renewal_duration=max_auto_lock_renewal_duration,
            prefetch_count=prefetch_count,
            client_identifier=client_identifier,
        )

    def get_queue_session_processor(
        self,
        queue_name: str,
        on_message: OnMessage,
        on_error: OnError | None = None,
        *,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_concurrent_sessions: int = 8,
        session_idle_timeout: float = 60,
        auto_complete: bool = True,
        max_auto_lock_renewal_duration: float = 300,
        prefetch_count: int = 0,
        client_identifier: str | None = None,
    ) -> ServiceBusSessionProcessor:
        """Return a processor of a queue with sessions: it hands the messages of several sessions at a time to a callback.

        Args:
            queue_name: Name of the queue.
            on_message: Handles a message; those of one session come one after the other. See ``get_queue_processor``.
            on_error: Called with every error, the callback's own among them; errors are logged in any case.
            receive_mode: See ``get_queue_receiver``.
            max_concurrent_sessions: How many sessions are locked at a time.
            session_idle_timeout: After how many seconds without a message the processor leaves a session for another one.
            auto_complete: If False, a message that the callback does not settle stays locked with its session.
            max_auto_lock_renewal_duration: For how long the lock of each session is renewed, in seconds; 0 for no renewal.
            prefetch_count: See ``get_queue_receiver``.
            client_identifier: A name for logs.

        Raises:
            ValueError: See ``get_queue_receiver``; or a count is below 1, or the timeout is not positive.
        """
        return self._session_processor(
            partial(self.get_queue_receiver, queue_name),
            on_message,
            on_error,
            receive_mode=receive_mode,
            max_concurrent_sessions=max_concurrent_sessions,
            session_idle_timeout=session_idle_timeout,
            auto_complete=auto_complete,
            max_auto_lock_renewal_duration=max_auto_lock_renewal_duration,
            prefetch_count=prefetch_count,
            client_identifier=client_identifier,
        )

    def get_subscription_processor(
        self,
        topic_name: str,
        subscription_name: str,
        on_message: OnMessage,
        on_error: OnError | None = None,
        *,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_concurrent_calls: int = 1,
        auto_complete: bool = True,
        max_auto_lock_renewal_duration: float = 300,
        prefetch_count: int = 0,
        client_identifier: str | None = None,
    ) -> ServiceBusProcessor:
        """Return a processor of a subscription; see ``get_queue_processor``.

        Args:
            topic_name: Name of the topic.
            subscription_name: Name of the subscription.
            on_message: See ``get_queue_processor``.
            on_error: See ``get_queue_processor``.
            sub_queue: See ``get_queue_receiver``.
            receive_mode: See ``get_queue_receiver``.
            max_concurrent_calls: How many messages are handled at a time.
            auto_complete: See ``get_queue_processor``.
            max_auto_lock_renewal_duration: See ``get_queue_processor``.
            prefetch_count: See ``get_queue_receiver``.
            client_identifier: A name for logs.

        Raises:
            ValueError: See ``get_queue_processor``.
        """
        return self._processor(
            partial(self.get_subscription_receiver, topic_name, subscription_name),
            on_message,
            on_error,
            sub_queue=sub_queue,
            receive_mode=receive_mode,
            max_concurrent_calls=max_concurrent_calls,
            auto_complete=auto_complete,
            max_auto_lock_renewal_duration=max_auto_lock_renewal_duration,
            prefetch_count=prefetch_count,
            client_identifier=client_identifier,
        )

    def get_subscription_session_processor(
        self,
        topic_name: str,
        subscription_name: str,
        on_message: OnMessage,
        on_error: OnError | None = None,
        *,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_concurrent_sessions: int = 8,
        session_idle_timeout: float = 60,
        auto_complete: bool = True,
        max_auto_lock_renewal_duration: float = 300,
        prefetch_count: int = 0,
        client_identifier: str | None = None,
    ) -> ServiceBusSessionProcessor:
        """Return a processor of a subscription with sessions; see ``get_queue_session_processor``.

        Args:
            topic_name: Name of the topic.
            subscription_name: Name of the subscription.
            on_message: See ``get_queue_session_processor``.
            on_error: See ``get_queue_processor``.
            receive_mode: See ``get_queue_receiver``.
            max_concurrent_sessions: How many sessions are locked at a time.
            session_idle_timeout: See ``get_queue_session_processor``.
            auto_complete: See ``get_queue_session_processor``.
            max_auto_lock_renewal_duration: See ``get_queue_session_processor``.
            prefetch_count: See ``get_queue_receiver``.
            client_identifier: A name for logs.

        Raises:
            ValueError: See ``get_queue_session_processor``.
        """
        return self._session_processor(
            partial(self.get_subscription_receiver, topic_name, subscription_name),
            on_message,
            on_error,
            receive_mode=receive_mode,
            max_concurrent_sessions=max_concurrent_sessions,
            session_idle_timeout=session_idle_timeout,
            auto_complete=auto_complete,
            max_auto_lock_renewal_duration=max_auto_lock_renewal_duration,
            prefetch_count=prefetch_count,
            client_identifier=client_identifier,
        )

    def _processor(
        self,
        get_receiver: Callable[..., ServiceBusReceiver],
        on_message: OnMessage,
        on_error: OnError | None,
        *,
        sub_queue: ServiceBusSubQueue | str | None,
        receive_mode: ServiceBusReceiveMode | str,
        max_concurrent_calls: int,
        auto_complete: bool,
        max_auto_lock_renewal_duration: float,
        prefetch_count: int,
        client_identifier: str | None,
    ) -> ServiceBusProcessor:
        _check_count("max_concurrent_calls", max_concurrent_calls)
        mode = _choice("receive_mode", ServiceBusReceiveMode, receive_mode)

        def open_receiver(renewer: AutoLockRenewer | None) -> ServiceBusReceiver:
            return get_receiver(
                sub_queue=sub_queue,
                receive_mode=mode,
                auto_lock_renewer=renewer,
                prefetch_count=prefetch_count,
                client_identifier=client_identifier,
            )

        return ServiceBusProcessor(
            open_receiver,
            receive_mode=mode,
            max_concurrent_calls=max_concurrent_calls,
            max_auto_lock_renewal_duration=max_auto_lock_renewal_duration,
            auto_complete=auto_complete,
            on_message=on_message,
            on_error=on_error,
        )

    def _session_processor(
        self,
        get_receiver: Callable[..., ServiceBusReceiver],
        on_message: OnMessage,
        on_error: OnError | None,
        *,
        receive_mode: ServiceBusReceiveMode | str,
        max_concurrent_sessions: int,
        session_idle_timeout: float,
        auto_complete: bool,
        max_auto_lock_renewal_duration: float,
        prefetch_count: int,
        client_identifier: str | None,
    ) -> ServiceBusSessionProcessor:
        _check_count("max_concurrent_sessions", max_concurrent_sessions)
        if session_idle_timeout <= 0:
            raise ValueError(f"session_idle_timeout {session_idle_timeout}: give seconds, more than 0")
        mode = _choice("receive_mode", ServiceBusReceiveMode, receive_mode)

        def open_receiver(renewer: AutoLockRenewer | None) -> ServiceBusReceiver:
            return get_receiver(
                session_id=NEXT_AVAILABLE_SESSION,
                receive_mode=mode,
                max_wait_time=SLICE,
                auto_lock_renewer=renewer,
                prefetch_count=prefetch_count,
                client_identifier=client_identifier,
            )

        return ServiceBusSessionProcessor(
            open_receiver,
            receive_mode=mode,
            max_concurrent_sessions=max_concurrent_sessions,
            session_idle_timeout=session_idle_timeout,
            max_auto_lock_renewal_duration=max_auto_lock_renewal_duration,
            auto_complete=auto_complete,
            on_message=on_message,
            on_error=on_error,
        )

    @guard
    def transaction(self) -> ServiceBusTransaction:
        """Return a transaction of this client's senders and receivers, to be used in a ``with`` block.

        All sends and settlements with ``transaction=`` are done when the block ends; if an exception leaves the block, none
        is. Azure's SDK for Python has no transactions; its .NET SDK has transaction scopes.

        Examples:
            ::

                with client.transaction() as transaction:
                    sender.send_messages(ServiceBusMessage(b"paid", session_id="order-7"), transaction=transaction)
                    receiver.complete_message(order, transaction=transaction)
        """
        return ServiceBusTransaction(self._connections())

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
        **unsupported: object,
    ) -> Paged[str]:
        """Return the ids, in order, of a queue's sessions that have messages waiting, are locked, or have state.

        Args:
            queue_name: Name of the queue.
            state_updated_after: List only sessions whose state was set after this time. Naive times are UTC.
            timeout: Kept for compatibility.
            **unsupported: Named in a warning.

        Raises:
            ValueError: The timeout is not positive, or the connection string is for another entity. Iteration raises
                ServiceBusError if there is no such queue, it has no sessions, or Kafka or Redis cannot be reached.
        """
        warn_unsupported(unsupported)
        check_timeout(timeout)
        self._check_entity_path(queue_name)
        return self._sessions(check_entity(queue_name), state_updated_after)

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
        **unsupported: object,
    ) -> Paged[str]:
        """Return the ids of a subscription's sessions; see ``list_queue_sessions``.

        Args:
            topic_name: Name of the topic.
            subscription_name: Name of the subscription.
            state_updated_after: List only sessions whose state was set after this time. Naive times are UTC.
            timeout: Kept for compatibility.
            **unsupported: Named in a warning.

        Raises:
            ValueError: See ``list_queue_sessions``.
        """
        warn_unsupported(unsupported)
        check_timeout(timeout)
        name = subscription_path(topic_name, subscription_name)
        self._check_entity_path(topic_name, name)
        return self._sessions(name, state_updated_after)

    def _sessions(self, name: str, state_updated_after: datetime | None) -> Paged[str]:
        path, context = EntityPath(name), self._connections()

        def fetch() -> list[str]:
            return session_ids(context, path, state_updated_after)

        return Paged(fetch)

    @guard
    def _receiver(
        self,
        name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None,
        sub_queue: ServiceBusSubQueue | str | None,
        receive_mode: ServiceBusReceiveMode | str,
        max_wait_time: float | None,
        auto_lock_renewer: AutoLockRenewer | None,
        prefetch_count: int,
        client_identifier: str | None,
    ) -> ServiceBusReceiver:
        if max_wait_time is not None and max_wait_time <= 0:
            raise ValueError(ErrorText(Term("max_wait_time"), f" {max_wait_time}: give seconds, more than 0, or None"))
        if not 0 <= prefetch_count <= MAX_PREFETCH:
            raise ValueError(f"prefetch_count {prefetch_count}: choose 0 to {MAX_PREFETCH}")
        mode = _choice("receive_mode", ServiceBusReceiveMode, receive_mode)
        if session_id is not None and sub_queue is not None:
            raise ValueError(
                ErrorText(
                    Term("session_id"),
                    f" {session_id!r} and sub_queue {sub_queue!r}: sub-queues have no sessions, so leave one out",
                )
            )
        if auto_lock_renewer is not None and mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE and session_id is None:
            raise ValueError("auto_lock_renewer with RECEIVE_AND_DELETE: such messages are not locked, so leave it out")
        path = EntityPath(name)
        if sub_queue is not None:
            path = EntityPath(path.name, SubQueue(_choice("sub_queue", ServiceBusSubQueue, sub_queue).value))
        receiver = ServiceBusReceiver(
            self._connections(),
            path,
            receive_mode=mode,
            max_wait_time=max_wait_time,
            prefetch_count=prefetch_count,
            auto_lock_renewer=auto_lock_renewer,
            client_identifier=client_identifier,
            session=self._session(path, session_id, max_wait_time),
        )
        self._handles.add(receiver)
        return receiver

    def _session(self, path: EntityPath, session_id: object, max_wait_time: float | None) -> ServiceBusSession | None:
        if session_id is None:
            return None
        if session_id is NEXT_AVAILABLE_SESSION:
            return ServiceBusSession(self._connections(), path, None, max_wait_time)
        if not isinstance(session_id, str):
            raise ServiceBusError(
                f"session_id {session_id!r}: session ids are texts; give a str or NEXT_AVAILABLE_SESSION"
            )
        return ServiceBusSession(self._connections(), path, session_id, max_wait_time)

    def _connections(self) -> ClientContext:
        with self._guard:
            if self._context is None:
                self._context = ClientContext(self._settings)
            return self._context

    def _check_entity_path(self, *names: str) -> None:
        only = self._settings.entity_path
        if only is not None and only.lower() not in map(str.lower, names):
            raise ValueError(f"the connection string is for {only!r} alone (EntityPath), not for {names[-1]!r}")


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"{name} {count}: choose 1 or more")


def _choice(name: str, choices: type[E], value: object) -> E:
    try:
        return choices(value)
    except ValueError:
        raise ValueError(f"{name} {value!r}: choose from {[choice.value for choice in choices]}") from None
