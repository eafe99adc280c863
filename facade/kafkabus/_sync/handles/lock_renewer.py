# Generated from facade/kafkabus/_async/handles/lock_renewer.py by tools/generate_blocking.py. Do not edit.
"""Keeping locks alive while applications work on their messages."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from typing_extensions import Self

from kafkabus._core.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout, ServiceBusError, SessionLockLostError
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus._core.settlement import by_delivery
from kafkabus._runtime import forks
from kafkabus._sync.compat import CALLBACK_ERRORS, Bell, Worker, guard
from kafkabus._sync.engine.held_session import held_session_of
from kafkabus._sync.engine.receiver_engine import EngineHolder, ReceiverEngine, engine_of
from kafkabus._sync.handles.session import ServiceBusSession

LOGGER = logging.getLogger("kafkabus")

Renewable = ServiceBusReceivedMessage | ServiceBusSession
OnFailure = Callable[[Any, Exception | None], None]
"""Called with a message or a session whose lock was lost, and the error."""

LAST_SECONDS = 10.0
"""A lock is renewed when so many seconds of it are left, or half of it if that is less."""
RETRY_AFTER = 1.0
"""After how many seconds a renewal is tried again that failed, or that waits for a transaction."""


@dataclass(slots=True)
class _Registration:
    """A message, or a session, whose lock is kept alive."""

    engine: ReceiverEngine
    what: Renewable
    until: float
    duration: float
    on_failure: OnFailure | None

    @property
    def is_ended(self) -> bool:
        """Whether no lock has to be kept alive any more, because the message was settled or the receiver closed."""
        settled = isinstance(self.what, ServiceBusReceivedMessage) and receipt_of(self.what).is_settled
        return settled or self.engine.is_closed

    @property
    def waits(self) -> bool:
        """Whether a transaction is about to settle the message, so that it has no lock, or has it again in a moment."""
        return isinstance(self.what, ServiceBusReceivedMessage) and receipt_of(self.what).is_prepared

    @property
    def entity_path(self) -> str:
        """The entity, for logs."""
        return self.engine.scope.entity_path

    @property
    def name(self) -> str:
        """The message or the session, for errors."""
        if isinstance(self.what, ServiceBusSession):
            return f"session {self.what.session_id!r}"
        return f"message {self.what.sequence_number}"

    @property
    def seconds_left(self) -> float:
        """How many seconds its lock still lasts."""
        if isinstance(self.what, ServiceBusSession):
            return held_session_of(self.what).seconds_left
        return self.engine.seconds_left(self.what)


class AutoLockRenewer:
    """Renews the locks of messages until they are settled, and of sessions; one renewer may serve any number of receivers.

    The renewer renews locks of messages that are due together in one round trip. If a lock is lost all the same,
    ``auto_renew_error`` of the message or the session is set, and ``on_lock_renew_failure`` is called.

    Args:
        max_lock_renewal_duration: For how long after its registration a lock is renewed, in seconds.
        on_lock_renew_failure: Called with a message or a session and an error when its lock was lost; not if it was settled,
            or its receiver or the renewer was closed.

    The class for tasks also takes ``loop``, for compatibility. The class for threads takes ``max_workers``, for compatibility:
    one thread renews all locks; and ``executor``, which calls ``on_lock_renew_failure``. By default, and if the executor was
    shut down, the renewer's own thread calls it.
    """

    def __init__(
        self,
        max_lock_renewal_duration: float = 300,
        on_lock_renew_failure: OnFailure | None = None,
        executor: Executor | None = None,
        max_workers: int | None = None,
    ) -> None:
        self._duration = max_lock_renewal_duration
        self._on_failure = on_lock_renew_failure
        self._executor = executor
        del max_workers
        self._closed = False
        self._begin()
        forks.watch(self)

    def _begin(self) -> None:
        self._guard = threading.Lock()
        self._order = itertools.count()
        self._due: list[tuple[float, int, _Registration]] = []
        self._bell = Bell()
        self._worker: Worker | None = None

    def _after_fork(self) -> None:
        # The parent process renews the locks that it holds.
        self._begin()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @guard
    def register(
        self,
        receiver: EngineHolder,
        renewable: Renewable,
        max_lock_renewal_duration: float | None = None,
        on_lock_renew_failure: OnFailure | None = None,
    ) -> None:
        """Keep the lock of a message or a session alive from now on.

        Args:
            receiver: The receiver of the message or the session.
            renewable: The message, or ``receiver.session``.
            max_lock_renewal_duration: For how long the lock is renewed, in seconds; the renewer's duration by default.
            on_lock_renew_failure: Called instead of the renewer's callback.

        Raises:
            TypeError: ``renewable`` is neither a received message nor a session.
            ValueError: The message is not locked, or belongs to a session, which has the lock.
            ServiceBusError: The renewer was closed.
        """
        self._check_open()
        if not isinstance(renewable, (ServiceBusReceivedMessage, ServiceBusSession)):
            raise TypeError(
                f"{type(renewable).__name__} has no lock to renew: register a message that a receiver returned, or its session"
            )
        if isinstance(renewable, ServiceBusReceivedMessage) and receipt_of(renewable).delivery.session:
            raise ValueError("the message is locked with its session: register receiver.session")
        if isinstance(renewable, ServiceBusReceivedMessage) and renewable.lock_token is None:
            raise ValueError(
                "the message is not locked, so there is nothing to renew: it was peeked, settled, or received with "
                "RECEIVE_AND_DELETE"
            )
        duration = self._duration if max_lock_renewal_duration is None else max_lock_renewal_duration
        failure = self._on_failure if on_lock_renew_failure is None else on_lock_renew_failure
        self._schedule(_Registration(engine_of(receiver), renewable, time.monotonic() + duration, duration, failure))

    @guard
    def close(self, wait: bool = True) -> None:
        """Stop renewing; locks are left to expire.

        Args:
            wait: Whether to wait for a renewal that is under way.
        """
        self._closed = True
        self._bell.ring()
        worker = self._worker
        if wait and worker is not None:
            worker.join()

    def _check_open(self) -> None:
        if self._closed:
            raise ServiceBusError("this AutoLockRenewer was closed: make another")

    def _schedule(self, registration: _Registration, wait: float | None = None) -> None:
        if wait is None:
            left = registration.seconds_left
            wait = max(0.0, left - min(LAST_SECONDS, left / 2))
        at = min(time.monotonic() + wait, registration.until)
        with self._guard:
            heapq.heappush(self._due, (at, next(self._order), registration))
            if self._worker is None:
                self._worker = Worker(self._work)
            elif self._due[0][2] is registration:
                self._bell.ring()

    def _work(self) -> None:
        """Renew locks when they are due, until none is left to renew."""
        while True:
            with self._guard:
                if self._closed or not self._due:
                    self._worker = None
                    return
                now = time.monotonic()
                wait = self._due[0][0] - now
                due: list[_Registration] = []
                while self._due and self._due[0][0] <= now:
                    due.append(heapq.heappop(self._due)[2])
            if due:
                self._renew(self._not_waiting([registration for registration in due if not registration.is_ended]))
            else:
                self._bell.wait(wait)

    def _renew(self, due: Sequence[_Registration]) -> None:
        by_engine: dict[ReceiverEngine, list[_Registration]] = defaultdict(list)
        for registration in due:
            if registration.until <= time.monotonic():
                self._give_up(registration)
            elif isinstance(registration.what, ServiceBusSession):
                self._renew_session(registration, registration.what)
            else:
                by_engine[registration.engine].append(registration)
        for engine, together in by_engine.items():
            try:
                messages = [
                    registration.what
                    for registration in together
                    if isinstance(registration.what, ServiceBusReceivedMessage)
                ]
                lost = set(engine.settler.renew(by_delivery(messages)))
            except Exception as error:  # noqa: BLE001 - the others are renewed whatever happens to these
                LOGGER.warning("renew entity=%s count=%d error=%s", engine.scope.entity_path, len(together), error)
                for registration in together:
                    self._try_again(registration, error)
                continue
            for registration in together:
                self._schedule_next(registration, lost=registration.what in lost)

    def _not_waiting(self, due: Sequence[_Registration]) -> list[_Registration]:
        """Return the registrations that no transaction is about to settle; schedule the others for a moment later."""
        waiting = [registration for registration in due if registration.waits]
        for registration in waiting:
            self._schedule(registration, RETRY_AFTER)
        return [registration for registration in due if registration not in waiting]

    def _schedule_next(self, registration: _Registration, *, lost: bool) -> None:
        if registration.waits:
            self._schedule(registration, RETRY_AFTER)
        elif not lost:
            self._schedule(registration)
        elif not registration.is_ended:
            self._fail(registration, None)

    def _renew_session(self, registration: _Registration, session: ServiceBusSession) -> None:
        try:
            session.renew_lock()
        except SessionLockLostError:
            if not registration.is_ended:
                self._fail(registration, None)
        except Exception as error:  # noqa: BLE001 - the others are renewed whatever happens to this one
            LOGGER.warning("renew entity=%s session=%r error=%s", registration.entity_path, session.session_id, error)
            self._try_again(registration, error)
        else:
            self._schedule(registration)

    def _give_up(self, registration: _Registration) -> None:
        registration.what.auto_renew_error = AutoLockRenewTimeout(
            f"the lock was renewed for {registration.duration:g} s, as long as was asked for: give more time with "
            "max_lock_renewal_duration"
        )
        if registration.seconds_left <= 0:
            self._tell(registration)

    def _try_again(self, registration: _Registration, error: Exception) -> None:
        left = registration.seconds_left
        if left > 0:
            self._schedule(registration, min(RETRY_AFTER, left))
        else:
            self._fail(registration, error)

    def _fail(self, registration: _Registration, error: Exception | None) -> None:
        registration.what.auto_renew_error = AutoLockRenewFailed(
            f"the lock of {registration.name} was lost: it expired, or the message was settled elsewhere", error=error
        )
        self._tell(registration)

    def _tell(self, registration: _Registration) -> None:
        what = registration.what
        LOGGER.warning("lock_lost entity=%s error=%s", registration.entity_path, what.auto_renew_error)
        if registration.on_failure is None or registration.is_ended or self._closed:
            return
        if self._executor is not None:
            try:
                self._executor.submit(registration.on_failure, what, what.auto_renew_error)
            except RuntimeError as error:
                LOGGER.warning("on_lock_renew_failure error=%s: called in the renewer's own thread", error)
            else:
                return
        try:
            registration.on_failure(what, what.auto_renew_error)
        except CALLBACK_ERRORS:
            LOGGER.exception("on_lock_renew_failure entity=%s", registration.entity_path)
