"""Processes fork, as in Celery, gunicorn and multiprocessing: a client that was opened before works in the child, too."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus.testing import InMemoryNamespace
from tests.queues import new_queue

WITHIN = 60
"""Longest time, in seconds, that the programs may take; they need three."""

PROGRAM = """
import os, sys
from kafkabus import ServiceBusClient, ServiceBusMessage

connection_string, queue = sys.argv[1:]
client = ServiceBusClient.from_connection_string(connection_string)
sender = client.get_queue_sender(queue)
receiver = client.get_queue_receiver(queue, prefetch_count=10, max_wait_time=20)
sender.send_messages([ServiceBusMessage(f"parent {number}") for number in range(4)])
(held,) = receiver.receive_messages(1)
child = os.fork()
if not child:
    sender.send_messages(ServiceBusMessage("child"))
    (message,) = receiver.receive_messages(1)
    receiver.complete_message(message)
    receiver.complete_message(held)
    client.close()
    print("child:", message, held, flush=True)
    # As gunicorn's workers end: all objects are freed.
    sys.exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
waiting = [str(receiver.next()) for _ in range(3)]
client.close()
print("parent:", *waiting, "status", status)
"""


def test_a_client_of_the_parent_works_in_the_child(runtime: RunningNamespace) -> None:
    """It sends, receives messages that are not locked, settles ones that the parent locked, and ends.

    The parent goes on. The test needs 3 s.
    """
    queue = new_queue(runtime.connection_string)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), runtime.connection_string, queue],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "child: child parent 0",
        "parent: parent 1 parent 2 parent 3 status 0",
    ]


def test_a_namespace_in_memory_is_not_shared_with_a_child() -> None:
    """A copy of the namespace would take messages that no receiver sees, so it is refused."""
    with InMemoryNamespace() as namespace:
        queue = new_queue(namespace.connection_string)
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            sender = client.get_queue_sender(queue)
            sender.send_messages(ServiceBusMessage("kept"))
            child = os.fork()
            if not child:
                status = 1
                try:
                    sender.send_messages(ServiceBusMessage("lost"))
                except ValueError as error:
                    status = 0 if "not open in this process" in str(error) else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
