"""The workbench of all rows: one Kafka and one Redis, and queues with messages in them."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import redis

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import EmbeddedRuntime, scratch_folder
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, topic_name

NAMESPACE = "benchmarks"
PARTITIONS = 16
BODY_SIZE = 1024
BODY = random.Random(20_240_607).randbytes(BODY_SIZE)
"""The body of all messages; random, so that it cannot be compressed on the way."""

_FILLING_BATCH = 100


class Workbench:
    """A private namespace; ``open_workbench`` creates one.

    Attributes:
        connection_string: The namespace's connection string, for clients.
        reference_options: The options of all the references' Kafka clients: the address, and few log messages.
        redis_url: The address of Redis.
        scratch: A folder for data that need not outlive the run.
        in_memory: Whether that folder is in memory.
    """

    def __init__(self, runtime: EmbeddedRuntime, scratch: Path) -> None:
        self.connection_string = runtime.connection_string
        self.reference_options: dict[str, str | int | float | bool] = {
            "bootstrap.servers": runtime.bootstrap_servers,
            "log_level": 2,
        }
        self.redis_url = runtime.redis_url
        self.scratch = scratch
        self.in_memory = scratch.is_relative_to("/dev/shm")  # noqa: S108 - the name is compared, nothing is opened
        self._numbers = itertools.count(1)

    def client(self) -> ServiceBusClient:
        """Return a client of the namespace, which the caller closes."""
        return ServiceBusClient.from_connection_string(self.connection_string)

    @contextmanager
    def queue(
        self, messages: int = 0, *, partitions: int = PARTITIONS, sessions: int = 0, detecting: bool = False
    ) -> Generator[str]:
        """Create a new queue, and delete it afterwards.

        Args:
            messages: How many messages of 1 KB it holds at first, spread over all partitions.
            partitions: 16, for a partitioned queue, or 1.
            sessions: The number of sessions that the messages belong to in turn; 0 for a queue without sessions.
            detecting: Whether the queue detects duplicates.

        Yields:
            The queue's name.
        """
        name = f"queue-{next(self._numbers)}"
        with ServiceBusAdministrationClient.from_connection_string(self.connection_string) as administration:
            administration.create_queue(
                name,
                enable_partitioning=partitions > 1,
                lock_duration=timedelta(minutes=5),
                requires_session=sessions > 0,
                requires_duplicate_detection=detecting,
            )
            try:
                self.fill(name, messages=messages, sessions=sessions)
                yield name
            finally:
                administration.delete_queue(name)

    def redis_memory(self) -> int:
        """Return how many bytes Redis uses."""
        with redis.Redis.from_url(self.redis_url) as server:
            server.memory_purge()
            return int(server.info("memory")["used_memory"])

    def topic(self, queue: str) -> str:
        """Return the Kafka topic of a queue, which references may use directly."""
        return topic_name(NAMESPACE, EntityPath(queue))

    def fill(self, *queues: str, messages: int, sessions: int = 0) -> None:
        """Send messages of 1 KB to each of the queues; they belong to the sessions in turn."""
        with self.client() as client:
            for queue in queues:
                with client.get_queue_sender(queue) as sender:
                    for begin in range(0, messages, _FILLING_BATCH):
                        batch = batch_of(min(_FILLING_BATCH, messages - begin))
                        for number, message in enumerate(batch if sessions else (), begin):
                            message.session_id = str(number % sessions)
                        sender.send_messages(batch)


def batch_of(count: int, body: bytes = BODY) -> list[ServiceBusMessage]:
    """Return a list of messages, of 1 KB if no other body is given."""
    return [ServiceBusMessage(body) for _ in range(count)]


@contextmanager
def open_workbench() -> Generator[Workbench]:
    """Start Kafka and Redis, with their data in memory if the machine allows it, and stop them afterwards."""
    scratch = scratch_folder("kafkabus-benchmarks-")
    try:
        with EmbeddedRuntime(scratch / "runtime", namespace=NAMESPACE) as runtime:
            yield Workbench(runtime, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
