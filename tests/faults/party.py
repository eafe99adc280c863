"""A sender or a receiver in a process of its own, which may be killed at any moment; it writes down what it did.

Usage: ``python -m tests.faults.party send|receive CONNECTION_STRING QUEUE NAME``. Each line of its standard output is an event:
``try``, ``sent``, ``got``, ``done`` and a list of messages, the received ones as ``body@sequence number``. A line that is not
complete did not happen.
"""

from __future__ import annotations

import random
import sys
import time

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.exceptions import ServiceBusError

BATCH = 20
PACE = 0.02
"""How long, in seconds, a sender rests between two batches, so that receivers keep up."""
WORK = 0.2
"""For how long, in seconds, a receiver works on its messages at the most: it is likely to be killed while it holds some."""


def tell(event: str, *words: str) -> None:
    """Write an event down; it is in the file when this returns."""
    sys.stdout.write(f"{event} {' '.join(words)}\n")
    sys.stdout.flush()


def send(client: ServiceBusClient, queue: str, name: str) -> None:
    """Send numbered messages, half of them with keys, for ever."""
    sender, number = client.get_queue_sender(queue), 0
    while True:
        bodies = [f"{name}-{number + index}" for index in range(BATCH)]
        number += BATCH
        tell("try", *bodies)
        try:
            key = f"key-{number // BATCH % 7}" if number // BATCH % 2 else None
            sender.send_messages([ServiceBusMessage(body, partition_key=key) for body in bodies])
        except ServiceBusError as error:
            tell("failed", type(error).__name__)
        else:
            tell("sent", *bodies)
        time.sleep(PACE)


def receive(client: ServiceBusClient, queue: str) -> None:
    """Receive and complete for ever."""
    receiver = client.get_queue_receiver(queue)
    while True:
        try:
            messages = receiver.receive_messages(10 * BATCH, max_wait_time=1)
            if not messages:
                continue
            copies = [f"{message}@{message.sequence_number}" for message in messages]
            tell("got", *copies)
            time.sleep(random.uniform(0, WORK))
            receiver.complete_messages(messages)
        except ServiceBusError as error:
            tell("failed", type(error).__name__)
        else:
            tell("done", *copies)


def main() -> None:
    """Be a sender or a receiver."""
    role, connection_string, queue, name = sys.argv[1:]
    with ServiceBusClient.from_connection_string(connection_string) as client:
        if role == "send":
            send(client, queue, name)
        else:
            receive(client, queue)


if __name__ == "__main__":
    main()
