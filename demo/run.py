"""The demo from start to end."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from demo.flights import QUEUE, load_flights, messages
from demo.interrupt import Interrupt
from demo.outcome import Outcome
from demo.tables import partition_table, totals_table
from demo.workers import Receivers
from kafkabus import ServiceBusClient
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import RuleProperties, ServiceBusAdministrationClient, SqlRuleFilter

RECEIVERS: Final = 2
LIST_SIZE: Final = 500
"""The number of flights in a send: some 200 KB, while the namespace allows 256."""
ALERTS: Final = "hot"
"""The subscription that gets the messages of hot partitions."""
STALL_S: Final = 90.0
"""How long the receivers may settle nothing before the demo gives up, in seconds; longer than the lock duration."""


def run(console: Console, interrupt: Interrupt, *, limit: int | None, plot: Path) -> int:
    """Run the demo.

    Args:
        console: The console to print to.
        interrupt: The handler of Ctrl-C, which says when to stop.
        limit: The number of flights; None for all.
        plot: The file of the picture.

    Returns:
        The exit status: 0, or 1 if the counts differ.
    """
    with _progress(console) as progress:
        with _step(progress, "load flights"):
            rows = load_flights(limit)
        start = progress.add_task("start Kafka and Redis", total=1)
        with EmbeddedRuntime(on_progress=lambda text: progress.update(start, description=text)) as runtime:
            progress.update(start, description="start Kafka and Redis", completed=1)
            connection = runtime.connection_string
            with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
                administration.create_queue(QUEUE, enable_partitioning=True)
            outcome = send_and_receive(connection, rows, progress, interrupt)
            del rows
            from demo.analysis import REPORTS, analyse

            with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
                administration.create_topic(REPORTS)
                hot = RuleProperties(
                    "hot", filter=SqlRuleFilter("hot = TRUE"), action=None, created_at_utc=datetime.now(timezone.utc)
                )
                administration.create_subscription(REPORTS, ALERTS, default_rule=hot)
            partitions, seen = analyse(connection, runtime.data, progress, interrupt)
            with _step(progress, "receive the alerts"):
                alerts = _receive_alerts(connection, REPORTS)
    differences = outcome.differences()
    differences += seen.differences(outcome.sent, outcome.counts.dead_lettered)
    if alerts != {partition.number for partition in partitions if partition.hot}:
        differences.append(f"alerts came of the partitions {sorted(alerts)}")
    from demo.plot import draw

    draw(partitions, plot)
    console.print(partition_table(partitions))
    console.print(totals_table(outcome))
    console.print(f"Alerts received of hot partitions: {', '.join(map(str, sorted(alerts))) or 'none'}")
    console.print(f"Picture: {plot}")
    for difference in differences:
        console.print(f"[bold red]DIFFERS[/] {difference}")
    return 1 if differences else 0


def send_and_receive(connection: str, rows: list[dict[str, Any]], progress: Progress, interrupt: Interrupt) -> Outcome:
    """Send flights while receivers settle them; return what both counted."""
    sending = progress.add_task("send", total=len(rows))
    settling = progress.add_task("receive and settle", total=len(rows))
    with Receivers(connection, RECEIVERS) as receivers:
        started = time.monotonic()

        def show() -> int:
            interrupt.check()
            counts = receivers.total
            done = f"receive and settle ({counts.dead_lettered:,} dead-lettered)"
            progress.update(settling, completed=counts.settled, description=done)
            return counts.settled

        sent = 0
        with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_sender(QUEUE) as sender:
            waiting = messages(rows)
            while batch := list(islice(waiting, LIST_SIZE)):
                sender.send_messages(batch)
                sent += len(batch)
                progress.update(sending, completed=sent)
                show()
        send_seconds = time.monotonic() - started
        last, moved = -1, time.monotonic()
        while (settled := show()) < sent and receivers.ended() is None and time.monotonic() - moved < STALL_S:
            if settled != last:
                last, moved = settled, time.monotonic()
            time.sleep(0.05)
        settle_seconds = time.monotonic() - started
        trouble = receivers.ended()
    if trouble:
        progress.console.print(f"[bold red]{trouble}[/]")
    show()
    with ServiceBusAdministrationClient.from_connection_string(connection) as administration:
        state = administration.get_queue_runtime_properties(QUEUE)
    return Outcome(
        sent,
        receivers.total,
        state.active_message_count or 0,
        state.dead_letter_message_count or 0,
        send_seconds,
        settle_seconds,
        receivers.each,
    )


def _receive_alerts(connection: str, topic: str) -> set[int]:
    """Receive and complete the messages that Spark sent of hot partitions; return the numbers of these."""
    found: set[int] = set()
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_subscription_receiver(topic, ALERTS) as receiver,
    ):
        while messages := receiver.receive_messages(100, max_wait_time=2):
            found |= {json.loads(str(message))["partition_id"] for message in messages}
            receiver.complete_messages(messages)
    return found


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


@contextmanager
def _step(progress: Progress, name: str) -> Generator[None]:
    task = progress.add_task(name, total=1)
    yield
    progress.update(task, completed=1)
