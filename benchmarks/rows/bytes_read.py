"""Bytes that the clients of a queue read from Kafka, against the bytes of the messages that they receive."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psutil

from benchmarks.results import Budget, Result
from benchmarks.rounds import Scale
from benchmarks.workbench import BODY_SIZE, PARTITIONS, Workbench
from kafkabus import ServiceBusReceiver

BATCH = 500
_MESSAGES = 60_000
_ACQUAINTED = 3.0
"""The time after which each client knows all others, in seconds."""
_RECEIVED_AT = 128
"""The offset of ``tcpi_bytes_received``, a field of 8 bytes, in Linux's ``struct tcp_info``."""


def bytes_read(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure clients with one receiver each that empty a queue together with ``receive_messages(500)``.

    The clients wait at the empty queue first, until they know each other. The bytes read are those that their connections to
    Kafka received, as the system counts them: records, their framing, and data that was fetched and discarded. The bytes
    delivered are those of the bodies.
    """
    for receivers, partitions, budget in ((PARTITIONS, PARTITIONS, 1.3), (10, 1, 3)):
        count = scale.count(_MESSAGES, multiple_of=BATCH)
        delivered = count * BODY_SIZE
        with bench.queue(partitions=partitions) as queue:
            read = _read_by(bench, queue, receivers, count)
        plural = "s" if partitions > 1 else ""
        yield Result(
            f"bytes read, {receivers} receivers on {partitions} partition{plural}: bytes of the bodies",
            read / 1e6,
            "MB",
            delivered / 1e6,
            read / delivered,
            Budget(budget, at_most=True),
        )


def _read_by(bench: Workbench, queue: str, receivers: int, count: int) -> int:
    """Return how many bytes the clients read until all messages are completed."""
    left, counting = count, threading.Lock()

    def wait(receiver: ServiceBusReceiver) -> None:
        receiver.receive_messages(BATCH, max_wait_time=_ACQUAINTED)

    def receive(receiver: ServiceBusReceiver) -> None:
        nonlocal left
        while left:
            messages = receiver.receive_messages(BATCH)
            receiver.complete_messages(messages)
            with counting:
                left -= len(messages)

    port = int(str(bench.reference_options["bootstrap.servers"]).rpartition(":")[2])
    with ExitStack() as stack, ThreadPoolExecutor(receivers) as pool:
        handles: list[ServiceBusReceiver] = []
        for _ in range(receivers):
            client = stack.enter_context(bench.client())
            handles.append(stack.enter_context(client.get_queue_receiver(queue, max_wait_time=1)))
        list(pool.map(wait, handles))
        before = bytes_from(port)
        bench.fill(queue, messages=count)
        list(pool.map(receive, handles))
        return bytes_from(port) - before


def bytes_from(port: int) -> int:
    """Return how many bytes this process's open connections received from a port."""
    received = 0
    for connection in psutil.Process().net_connections("tcp4"):
        if tuple(connection.raddr)[1:] == (port,):
            with socket.socket(fileno=os.dup(connection.fd)) as copy:
                status = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + 8)
            received += struct.unpack_from("=Q", status, _RECEIVED_AT)[0]
    return received
