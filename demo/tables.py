"""The tables that the demo prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from kafkabus_spark.reports import HOT_OVER

if TYPE_CHECKING:
    from demo.analysis import Partition
    from demo.outcome import Outcome


def partition_table(partitions: list[Partition]) -> Table:
    """Return a table of the messages in each entity partition."""
    table = Table(
        title="Entity partitions, as Spark reads them",
        caption=f"hot: more than {HOT_OVER:g} times the mean of all partitions",
    )
    for name in ("partition", "messages", "share", "MB", "mean delay"):
        table.add_column(name, justify="right")
    table.add_column("hot", justify="center")
    table.add_column("keys")
    for partition in partitions:
        delay = "" if partition.mean_delay is None else f"{partition.mean_delay:.1f} min"
        table.add_row(
            str(partition.number),
            f"{partition.messages:,}",
            f"{partition.share:.1%}",
            f"{partition.size / 1e6:.1f}",
            delay,
            "hot" if partition.hot else "",
            ", ".join(f"{key} {count:,}" for key, count in partition.keys),
            style="bold red" if partition.hot else None,
        )
    return table


def totals_table(outcome: Outcome) -> Table:
    """Return a table of the numbers of messages sent and settled, and the rates."""
    table = Table(title="Messages")
    for name in ("", "messages", "per second"):
        table.add_column(name, justify="left" if not name else "right")
    counts = outcome.counts
    table.add_row("sent", f"{outcome.sent:,}", f"{outcome.sent / outcome.send_seconds:,.0f}")
    table.add_row("completed", f"{counts.completed:,}", f"{counts.completed / outcome.settle_seconds:,.0f}")
    table.add_row("dead-lettered", f"{counts.dead_lettered:,}", f"{counts.dead_lettered / outcome.settle_seconds:,.0f}")
    table.add_row("redelivered", f"{counts.redelivered:,}", "")
    table.add_section()
    for number, receiver in enumerate(outcome.each, start=1):
        table.add_row(
            f"settled by receiver {number}",
            f"{receiver.settled:,}",
            f"{receiver.settled / outcome.settle_seconds:,.0f}",
        )
    return table
