"""One transaction with every kind of step, the state before and after it, and a process that dies in the middle of it.

Usage: ``python -m tests.faults.transacting SOURCE DESTINATION STEP`` kills itself right after a step; the namespace is
that of ``KAFKABUS_CONNECTION_STRING``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from kafkabus._sync.dispositions.transaction_commit import TransactionCommit
from kafkabus._sync.engine.receiver_engine import engine_of
from kafkabus.exceptions import MessageNotFoundError
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

STEPS = ("_produce", "_prepare", "_decide", "_settle")
BODIES = ("complete a", "complete b", "abandon", "defer", "dead-letter")
SENT = ("sent 1", "sent 2")


class State(NamedTuple):
    """The messages that can be received.

    Attributes:
        source: Bodies in the source, in the order of their names.
        deferred: Whether the message that is to be deferred is deferred.
        dead: Bodies in its dead-letter queue.
        destination: Bodies in the destination.
    """

    source: tuple[str, ...]
    deferred: bool
    dead: tuple[str, ...]
    destination: tuple[str, ...]


NOTHING = State(tuple(sorted(BODIES)), False, (), ())
ALL = State(("abandon",), True, ("dead-letter",), SENT)


def fill(client: ServiceBusClient, source: str) -> int:
    """Send the messages to settle, each with its own key; return the sequence number of the one to defer."""
    with client.get_queue_sender(source) as sender:
        sender.send_messages([ServiceBusMessage(body, partition_key=body) for body in BODIES])
    with client.get_queue_receiver(source) as receiver:
        found: list[ServiceBusReceivedMessage] = []
        while more := receiver.peek_messages(10):
            found += more
    (number,) = (message.sequence_number for message in found if str(message) == "defer")
    assert number is not None
    return number


def transact(client: ServiceBusClient, source: str, destination: str) -> None:
    """Receive all messages, and settle them in one transaction with the sends."""
    with client.get_queue_receiver(source) as receiver, client.get_queue_sender(destination) as sender:
        messages: dict[str, ServiceBusReceivedMessage] = {}
        while len(messages) < len(BODIES):
            messages |= {str(message): message for message in receiver.receive_messages(10, max_wait_time=20)}
        with client.transaction() as transaction:
            sender.send_messages([ServiceBusMessage(body, partition_key="k") for body in SENT], transaction=transaction)
            receiver.complete_messages([messages["complete a"], messages["complete b"]], transaction=transaction)
            receiver.abandon_message(messages["abandon"], transaction=transaction)
            receiver.defer_message(messages["defer"], transaction=transaction)
            receiver.dead_letter_message(messages["dead-letter"], "why", transaction=transaction)


def bodies(client: ServiceBusClient, queue: str, sub_queue: str | None = None) -> tuple[str, ...]:
    """Return the messages that can be received now; they are available again afterwards."""
    found: list[ServiceBusReceivedMessage] = []
    with client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
        while more := receiver.receive_messages(10, max_wait_time=0.5):
            found += more
        # Not abandoned: that would count a delivery each time.
        engine_of(receiver).release(found)
    return tuple(sorted(str(message) for message in found))


def state(client: ServiceBusClient, source: str, destination: str, number: int) -> State:
    """Return the bodies that can be received now."""
    with client.get_queue_receiver(source) as receiver:
        try:
            engine_of(receiver).release(receiver.receive_deferred_messages(number))
            deferred = True
        except MessageNotFoundError:
            deferred = False
    return State(bodies(client, source), deferred, bodies(client, source, "deadletter"), bodies(client, destination))


def after(step: str, act: Callable[[], object]) -> Callable[..., Any]:
    """A step of a transaction, after which something happens."""
    original = getattr(TransactionCommit, step)

    def do(self: TransactionCommit, *arguments: object) -> object:
        result = original(self, *arguments)
        act()
        return result

    return do


def main() -> None:
    """Die in the middle of a transaction."""
    source, destination, step = sys.argv[1:]
    setattr(TransactionCommit, step, after(step, lambda: os.kill(os.getpid(), signal.SIGKILL)))
    with ServiceBusClient.from_connection_string(os.environ[CONNECTION_STRING_VARIABLE]) as client:
        transact(client, source, destination)


if __name__ == "__main__":
    main()
