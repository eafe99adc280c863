"""Searching among the messages that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result
from benchmarks.rounds import Scale
from benchmarks.rows.send import BATCH
from benchmarks.workbench import BODY, Workbench
from kafkabus import ServiceBusMessage, ServiceBusReceiver

_MESSAGES = 100_000
_WANTED = 50_000
"""The target: how many messages are examined per second."""
_FILTER = "color = 'red' AND amount > 990"


def search(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Search through the waiting messages of a partitioned queue, 1 KB with two application properties each.

    A filter on both properties finds 4 in 1,000 of them; calls with the default bound examine all. The best of three
    searches counts, as the first one opens the consumers. The reference is the project's own target.
    """
    messages = scale.count(_MESSAGES, multiple_of=BATCH)
    with bench.queue() as queue, bench.client() as client, client.get_queue_sender(queue) as sender:
        for first in range(0, messages, BATCH):
            sender.send_messages([_message(number) for number in range(first, first + BATCH)])
        with client.get_queue_receiver(queue) as receiver:
            best = max(_examine(receiver, messages) for _ in range(3))
    name = f"search, a filter on two properties, 1 KB: {_WANTED:,} messages examined a second"
    yield Result(name, best, MESSAGES_PER_SECOND, _WANTED, best / _WANTED, Budget(1.0))


def _examine(receiver: ServiceBusReceiver, messages: int) -> float:
    """Search through all messages; return how many were examined per second."""
    began, found = time.perf_counter(), 0
    at: int | None = 0
    while at is not None:
        answer = receiver.peek_messages(1_000, sequence_number=at, filter=_FILTER)
        found, at = found + len(answer), answer.next_sequence_number
    took = time.perf_counter() - began
    expected = sum(_is_found(number) for number in range(messages))
    if found != expected:
        raise AssertionError(f"{found} messages were found, {expected} are there")
    return messages / took


def _message(number: int) -> ServiceBusMessage:
    color = "blue" if number % 2 else "red"
    return ServiceBusMessage(BODY, application_properties={"color": color, "amount": number % 1_000})


def _is_found(number: int) -> bool:
    return number % 2 == 0 and number % 1_000 > 990
