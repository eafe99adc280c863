"""One module for each measured piece of work, and the table of all by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from benchmarks.results import Result
from benchmarks.rounds import Scale
from benchmarks.rows.backlog import backlog
from benchmarks.rows.bytes_read import bytes_read
from benchmarks.rows.command_line import command_line
from benchmarks.rows.complete_one_by_one import complete_one_by_one
from benchmarks.rows.duplicates import duplicates
from benchmarks.rows.emulator import emulator
from benchmarks.rows.entities import entities
from benchmarks.rows.gateway import gateway
from benchmarks.rows.idle import idle
from benchmarks.rows.latency import latency
from benchmarks.rows.postponed import come_late
from benchmarks.rows.processor_time import processor_time
from benchmarks.rows.rabbitmq import rabbitmq
from benchmarks.rows.rebuild import rebuild
from benchmarks.rows.receive_and_complete import receive_and_complete
from benchmarks.rows.receive_and_delete import receive_and_delete
from benchmarks.rows.receivers import first_message, receivers
from benchmarks.rows.redis_memory import redis_memory
from benchmarks.rows.redis_memory_each import redis_memory_each
from benchmarks.rows.search import search
from benchmarks.rows.send import send
from benchmarks.rows.sessions import sessions
from benchmarks.rows.soak import soak
from benchmarks.rows.spark_decode import spark_decode
from benchmarks.rows.spark_write import spark_write
from benchmarks.rows.topics import topics
from benchmarks.rows.transactions import transact
from benchmarks.rows.upkeep import enqueue_scheduled, forward
from benchmarks.workbench import Workbench

Work = Callable[[Workbench, Scale], Iterator[Result]]

WORKS: Mapping[str, Work] = {
    # First, because this process keeps the memory that the others use.
    "soak": soak,
    "send": send,
    "duplicates": duplicates,
    "receive": receive_and_complete,
    "rabbitmq": rabbitmq,
    "gateway": gateway,
    "delete": receive_and_delete,
    "sessions": sessions,
    "scheduled": enqueue_scheduled,
    "postponed": come_late,
    "search": search,
    "forward": forward,
    "rebuild": rebuild,
    "transactions": transact,
    "topics": topics,
    "bytes": bytes_read,
    "latency": latency,
    "complete": complete_one_by_one,
    "spark": spark_decode,
    "spark-write": spark_write,
    "memory": redis_memory,
    "memory-each": redis_memory_each,
    "backlog": backlog,
    "processor-time": processor_time,
    "idle": idle,
    "entities": entities,
    "receivers": receivers,
    "first-message": first_message,
    "command-line": command_line,
    "emulator": emulator,
}
"""All pieces of work, in the order of measurement, by the name that ``--only`` takes."""
