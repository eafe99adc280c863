# Generated from facade/kafkabus/_async/handles/processor.py by tools/generate_blocking.py. Do not edit.
"""Processors, which hand messages to a callback, several at a time, renew their locks, and hand errors to another callback.

Azure's Python SDK has no processors; these are like those of its other SDKs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypedDict

from typing_extensions import Self, Unpack

from kafkabus._core.enums import ServiceBusReceiveMode
from kafkabus._core.exceptions import OperationTimeoutError, SessionCannotBeLockedError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._runtime import forks
from kafkabus._sync.compat import CALLBACK_ERRORS, Bell, Worker, guard
from kafkabus._sync.handles.lock_renewer import AutoLockRenewer
from kafkabus._sync.handles.receiver import ServiceBusReceiver
from kafkabus._sync.handles.session import ServiceBusSession

LOGGER = logging.getLogger("kafkabus")

SLICE = 1.0
"""The longest time, in seconds, that a worker waits for a message at a stretch, and so until it notices that it shall stop."""
FIRST_PAUSE = 0.1
"""How long, in seconds, a worker rests after an error; each further error doubles that."""
LONGEST_PAUSE = 10.0
"""How long, in seconds, a worker rests at the most."""

Operation = Literal["open", "receive", "process", "settle", "close"]


class ProcessMessageEventArgs:
    """A message, and the ways to settle it.

    Attributes:
        message: The message.
        receiver: The receiver of the message.
    """

    def __init__(self, message: ServiceBusReceivedMessage, receiver: ServiceBusReceiver) -> None:
        self.message = message
        self.receiver = receiver

    @property
    def session(self) -> ServiceBusSession | None:
        """The message's session; None if the queue has no sessions."""
        return self.receiver.session

    def complete(self) -> None:
        """See ``ServiceBusReceiver.complete_message``."""
        self.receiver.complete_message(self.message)

    def abandon(self) -> None:
        """See ``ServiceBusReceiver.abandon_message``."""
        self.receiver.abandon_message(self.message)

    def defer(self) -> None:
        """See ``ServiceBusReceiver.defer_message``."""
        self.receiver.defer_message(self.message)

    def dead_letter(self, reason: str | None = None, error_description: str | None = None) -> None:
        """See ``ServiceBusReceiver.dead_letter_message``."""
        self.receiver.dead_letter_message(self.message, reason, error_description)


@dataclass(frozen=True, slots=True)
class ProcessErrorEventArgs:
    """An error, and where it came from.

    Attributes:
        error: The error; SystemExit, too, if the callback calls ``sys.exit``.
        operation: The operation that failed: ``open`` (a session), ``receive``, ``process`` (the callback), ``settle`` or
            ``close``.
        entity_path: The queue.
        message: The message that the error is about, or None.
    """

    error: BaseException
    operation: Operation
    entity_path: str
    message: ServiceBusReceivedMessage | None = None


OnMessage = Callable[[ProcessMessageEventArgs], None]
OnError = Callable[[ProcessErrorEventArgs], None]


class _Settings(TypedDict):
    """The settings of both kinds of processors, as ``_Processor`` takes them."""

    receive_mode: ServiceBusReceiveMode
    max_auto_lock_renewal_duration: float
    auto_complete: bool
    on_message: OnMessage
    on_error: OnError | None


class _Processor:
    """The common part of both kinds of processors: workers that go on until they are stopped.

    Args:
        open_receiver: Opens a receiver, whose locks a renewer renews, if there is one.
        receive_mode: The receiver's mode.
        max_auto_lock_renewal_duration: For how long locks are renewed, in seconds; 0 for no renewal.
        auto_complete: Whether messages are completed that the callback did not settle.
        on_message: Handles a message.
        on_error: Called with errors; they are logged as well.
    """

    def __init__(
        self,
        open_receiver: Callable[[AutoLockRenewer | None], ServiceBusReceiver],
        *,
        receive_mode: ServiceBusReceiveMode,
        max_auto_lock_renewal_duration: float,
        auto_complete: bool,
        on_message: OnMessage,
        on_error: OnError | None,
    ) -> None:
        self.entity_path = ""
        self._open = open_receiver
        self._takes = receive_mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
        self._renewal = max_auto_lock_renewal_duration
        self._auto_complete = auto_complete
        self._on_message = on_message
        self._on_error = on_error
        self._count = 1
        self._workers: list[tuple[Worker, Bell]] = []
        self._stopping = False
        forks.watch(self)

    def _after_fork(self) -> None:
        # The parent process goes on with the workers; a child may start the processor for itself.
        self._workers = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def is_processing(self) -> bool:
        """Whether it was started and not stopped."""
        return bool(self._workers)

    @guard
    def start(self) -> None:
        """Begin to receive, and return at once. A second call does nothing."""
        if self._workers:
            return
        self._stopping = False
        for _ in range(self._count):
            bell = Bell()
            self._workers.append((self._worker(bell), bell))

    @guard
    def stop(self) -> None:
        """Stop receiving, and wait for the callbacks that run; messages that they did not see are available at once."""
        self._stopping = True
        workers, self._workers = self._workers, []
        for _, bell in workers:
            bell.ring()
        for worker, _ in workers:
            worker.join()
        self._stopped()

    def _worker(self, bell: Bell) -> Worker:
        def work() -> None:
            pause = FIRST_PAUSE
            while not self._stopping:
                if self._safe_turn():
                    pause = FIRST_PAUSE
                elif not self._stopping:
                    bell.wait(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)

        return Worker(work)

    def _safe_turn(self) -> bool:
        try:
            return self._turn()
        except CALLBACK_ERRORS as error:  # A worker goes on whatever happens.
            self._tell(error, "close")
            return False

    def _turn(self) -> bool:
        """Do a piece of work; return False if it failed, and a rest is due."""
        raise NotImplementedError

    def _stopped(self) -> None:
        """Close what is open, after all workers have ended."""

    def _new_renewer(self) -> AutoLockRenewer | None:
        return AutoLockRenewer(self._renewal) if self._renewal > 0 else None

    def _receive(self, receiver: ServiceBusReceiver, wait: float) -> list[ServiceBusReceivedMessage]:
        """Return the next message, or nothing if none comes in time; wait in slices.

        Raises:
            Exception: Receiving failed; the error was reported.
        """
        while not self._stopping and wait > 0:
            try:
                messages = receiver.receive_messages(1, max_wait_time=min(wait, SLICE))
            except Exception as error:
                self._tell(error, "receive")
                raise
            if messages:
                return messages
            wait -= SLICE
        return []

    def _process(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        """Hand a message to the callback, and settle it."""
        arguments = ProcessMessageEventArgs(message, receiver)
        try:
            self._on_message(arguments)
        except CALLBACK_ERRORS as error:
            self._tell(error, "process", message)
            settle = arguments.abandon
        else:
            settle = arguments.complete
            if not self._auto_complete:
                return
        if not self._takes and message.lock_token is not None:
            try:
                settle()
            except Exception as error:  # noqa: BLE001 - likewise
                self._tell(error, "settle", message)

    def _tell(
        self, error: BaseException, operation: Operation, message: ServiceBusReceivedMessage | None = None
    ) -> None:
        LOGGER.warning("processor entity=%s operation=%s error=%r", self.entity_path, operation, error)
        if self._on_error is None:
            return
        try:
            self._on_error(ProcessErrorEventArgs(error, operation, self.entity_path, message))
        except CALLBACK_ERRORS:
            LOGGER.exception("on_error entity=%s", self.entity_path)


class ServiceBusProcessor(_Processor):
    """Hands a queue's messages to a callback; made by ``ServiceBusClient.get_queue_processor``.

    Attributes:
        entity_path: The queue, with its sub-queue.
    """

    def __init__(
        self,
        open_receiver: Callable[[AutoLockRenewer | None], ServiceBusReceiver],
        *,
        max_concurrent_calls: int,
        **settings: Unpack[_Settings],
    ) -> None:
        super().__init__(open_receiver, **settings)
        self._count = max_concurrent_calls
        self._renewer: AutoLockRenewer | None = None
        self._receiver: ServiceBusReceiver | None = None

    @guard
    def start(self) -> None:
        """Begin to receive, and return at once. A second call does nothing."""
        if self._receiver is None:
            # Messages that were received and deleted have no locks.
            self._renewer = None if self._takes else self._new_renewer()
            self._receiver = self._open(self._renewer)
            self.entity_path = self._receiver.entity_path
        super().start()

    def _turn(self) -> bool:
        receiver = self._receiver
        if receiver is None:
            return False
        try:
            messages = self._receive(receiver, SLICE)
        except Exception:  # noqa: BLE001 - it was reported
            return False
        for message in messages:
            self._process(receiver, message)
        return True

    def _stopped(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()
        if self._renewer is not None:
            self._renewer.close()


class ServiceBusSessionProcessor(_Processor):
    """Hands messages of sessions to a callback, in order within each session, several sessions at a time.

    Made by ``ServiceBusClient.get_queue_session_processor``.

    Attributes:
        entity_path: The queue.
    """

    def __init__(
        self,
        open_receiver: Callable[[AutoLockRenewer | None], ServiceBusReceiver],
        *,
        max_concurrent_sessions: int,
        session_idle_timeout: float,
        **settings: Unpack[_Settings],
    ) -> None:
        super().__init__(open_receiver, **settings)
        self._count = max_concurrent_sessions
        self._idle = session_idle_timeout

    def _turn(self) -> bool:
        """Work on one session until it has no messages for a while."""
        renewer = self._new_renewer()
        receiver = self._open(renewer)
        self.entity_path = receiver.entity_path
        try:
            if not self._opened(receiver):
                return True
            while not self._stopping:
                messages = self._receive(receiver, self._idle)
                if not messages:
                    return True
                for message in messages:
                    self._process(receiver, message)
            return True
        except Exception:  # noqa: BLE001 - it was reported
            return False
        finally:
            receiver.close()
            if renewer is not None:
                renewer.close()

    def _opened(self, receiver: ServiceBusReceiver) -> bool:
        """Return whether a session could be locked within a while."""
        try:
            receiver.__enter__()
        except (OperationTimeoutError, SessionCannotBeLockedError):
            return False
        except Exception as error:
            self._tell(error, "open")
            raise
        return True
