"""A receiver process: completes flights, dead-letters the cancelled ones, and reports its counts.

Its standard input is its lifeline: the first line is the connection string, and the end of the input means that the process
that started it is done or gone. Its standard output is one JSON object per batch.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence

from demo.flights import CANCELLED, QUEUE, is_cancelled
from kafkabus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver
from kafkabus.exceptions import MessageLockLostError

BATCH = 500
WAIT_S = 1.0
"""How long a receive waits for a first message, and so the longest delay of a stop, in seconds."""
PATIENCE_S = 10.0
"""How long a process may take to end after its lifeline was cut, in seconds."""


def main() -> int:
    """Receive until the lifeline ends."""
    connection = sys.stdin.readline().strip()
    if not connection:
        return 0
    done = threading.Event()
    threading.Thread(target=_watch_lifeline, args=(done,), daemon=True).start()
    client = ServiceBusClient.from_connection_string(connection)
    with client, client.get_queue_receiver(QUEUE) as receiver:
        while not done.is_set():
            batch = receiver.receive_messages(BATCH, max_wait_time=WAIT_S)
            if batch:
                _report(_handle(receiver, batch))
    return 0


def _handle(receiver: ServiceBusReceiver, batch: Sequence[ServiceBusReceivedMessage]) -> dict[str, int]:
    """Settle a batch; a message whose lock was lost is delivered again, so it does not count."""
    cancelled: list[ServiceBusReceivedMessage] = []
    flown: list[ServiceBusReceivedMessage] = []
    for message in batch:
        (cancelled if is_cancelled(b"".join(message.body or ())) else flown).append(message)
    try:
        receiver.complete_messages(flown)
    except MessageLockLostError as error:
        print(f"receiver {os.getpid()}: {error}", file=sys.stderr)
    try:
        receiver.dead_letter_messages(cancelled, reason=CANCELLED, error_description="no departure time")
    except MessageLockLostError as error:
        print(f"receiver {os.getpid()}: {error}", file=sys.stderr)
    return {
        "completed": _settled(flown),
        "dead_lettered": _settled(cancelled),
        "redelivered": sum(bool(message.delivery_count) for message in batch),
    }


def _settled(messages: Sequence[ServiceBusReceivedMessage]) -> int:
    return sum(message.lock_token is None for message in messages)


def _report(counts: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(counts) + "\n")
    sys.stdout.flush()


def _watch_lifeline(done: threading.Event) -> None:
    # Read from the raw descriptor: a thread that waits in the lock of sys.stdin would keep Python from ending.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    done.set()
    threading.Event().wait(PATIENCE_S)
    os._exit(1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
