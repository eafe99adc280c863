"""Exceptions from a signal handler at any moment of a blocking call: nothing is lost, and the next call works."""

from __future__ import annotations

import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec, TypeVar

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from kafkabus.embedded import RunningNamespace
from kafkabus.testing import InMemoryNamespace
from tests.contract.receiving import receive_all
from tests.queues import new_queue

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPTS = {"memory": 1_000, "servers": 300}
"""How many interrupts there are; each call in memory takes a fraction of a millisecond."""
PAUSE = {"memory": 0.002, "servers": 0.01}
"""Longest time between two of them, in seconds."""
WITHIN = 120.0
"""Longest time, in seconds, in which so many interrupts come; they take five."""


class Interrupted(BaseException):
    """An exception as Ctrl-C raises it."""


class Storm:
    """A thread that interrupts the main thread again and again, wherever it is in a call."""

    def __init__(self, seed: int, pause: float) -> None:
        self.dice = random.Random(seed)
        self.count = 0
        self._pause = pause
        self._armed = False
        self._over = threading.Event()

    @contextmanager
    def blowing(self) -> Generator[None]:
        """Interrupt the main thread during this block."""
        before = signal.signal(signal.SIGUSR1, self._handle)
        thread = threading.Thread(
            target=self._blow, args=(threading.main_thread().ident, random.Random(self.dice.random()))
        )
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            signal.signal(signal.SIGUSR1, before)

    def through(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Return the result of a call; nothing if it was interrupted."""
        results: list[T] = []
        try:
            self._armed = True
            results += [call(*args, **kwargs)]
            self._armed = False
        except Interrupted:
            return []
        return results

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            self.count += 1
            raise Interrupted

    def _blow(self, main: int, dice: random.Random) -> None:
        while not self._over.wait(dice.uniform(0, self._pause)):
            signal.pthread_kill(main, signal.SIGUSR1)


# Python loses an exception that comes while it frees an object, whatever the object belongs to.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", list(ServiceBusReceiveMode))
@pytest.mark.parametrize("where", ["memory", pytest.param("servers", marks=pytest.mark.servers)])
def test_interrupted_calls_lose_nothing_and_break_nothing(
    request: pytest.FixtureRequest, where: str, mode: ServiceBusReceiveMode
) -> None:
    """Only delivered messages were granted, and no lock stays taken. Many interrupts make this take seconds."""
    if where == "memory":
        with InMemoryNamespace() as namespace:
            _weather(namespace.connection_string, where, mode)
    else:
        runtime: RunningNamespace = request.getfixturevalue("runtime")
        _weather(runtime.connection_string, where, mode)


def _weather(connection_string: str, where: str, mode: ServiceBusReceiveMode) -> None:
    takes = mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
    queue = new_queue(connection_string, enable_partitioning=True)
    storm, deadline = Storm(len(where), PAUSE[where]), time.monotonic() + WITHIN
    sent: set[str] = set()
    seen: list[ServiceBusReceivedMessage] = []
    completed: set[str] = set()
    with ServiceBusClient.from_connection_string(connection_string) as client:
        sender, receiver = client.get_queue_sender(queue), client.get_queue_receiver(queue, receive_mode=mode)
        with storm.blowing():
            while storm.count < INTERRUPTS[where]:
                assert time.monotonic() < deadline, f"{storm.count} interrupts came"
                messages = [ServiceBusMessage(b"", message_id=uuid.uuid4().hex) for _ in range(3)]
                if storm.through(sender.send_messages, messages):
                    sent.update(str(message.message_id) for message in messages)
                for got in storm.through(receiver.receive_messages, 5, max_wait_time=0.05):
                    seen += got
                    done = [] if takes else storm.through(receiver.complete_messages, got)
                    completed.update(str(message.message_id) for message in got if done)
        # An interrupted send may have stored its messages, and an interrupted completion may have settled them.
        rest = receive_all(receiver, len(sent - {str(message.message_id) for message in seen}), settle=not takes)
    counts = Counter(str(message.message_id) for message in [*seen, *rest])
    assert sent <= counts.keys()
    assert set(counts.values()) == {1}
    assert completed.isdisjoint(str(message.message_id) for message in rest)
    assert [message.delivery_count for message in [*seen, *rest] if message.delivery_count] == []
