"""``kafkabus stats``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from kafkabus.cli.connection import existing_queue, open_administration
from kafkabus.cli.options import JsonOption, QueueArgument
from kafkabus.cli.terminal import write_json, write_table

if TYPE_CHECKING:
    from kafkabus.management import PartitionRuntimeProperties, QueueRuntimeProperties

app = typer.Typer()


@app.command()
def stats(
    context: typer.Context,
    queue: QueueArgument,
    json: JsonOption = False,
) -> None:
    """Count a queue's messages, per partition and in all.

    Active messages wait or are locked by a receiver; scheduled ones wait for their time; transfer dead letters could not be
    forwarded.
    """
    with existing_queue(context, queue), open_administration(context) as administration:
        counts = administration.get_queue_runtime_properties(queue)
    if json:
        partitions = [
            {
                "partition": one.partition,
                "active": one.active_message_count,
                "scheduled": one.scheduled_message_count,
                "dead_letter": one.dead_letter_message_count,
                "transfer_dead_letter": one.transfer_dead_letter_message_count,
            }
            for one in counts.partitions
        ]
        write_json(
            {
                "queue": counts.name,
                "active": counts.active_message_count,
                "scheduled": counts.scheduled_message_count,
                "dead_letter": counts.dead_letter_message_count,
                "transfer": counts.transfer_message_count,
                "transfer_dead_letter": counts.transfer_dead_letter_message_count,
                "partitions": partitions,
            }
        )
        return
    columns = {"PARTITION": True, "ACTIVE": True, "SCHEDULED": True, "DEAD-LETTER": True}
    forwarding = counts.transfer_dead_letter_message_count > 0
    write_table(
        columns | {"TRANSFER DEAD-LETTER": True} if forwarding else columns,
        [[str(one.partition), *_counts(one, forwarding)] for one in counts.partitions],
        total=["all", *_counts(counts, forwarding)],
    )


def _counts(one: QueueRuntimeProperties | PartitionRuntimeProperties, forwarding: bool) -> list[str]:
    counts = [one.active_message_count, one.scheduled_message_count, one.dead_letter_message_count]
    if forwarding:
        counts.append(one.transfer_dead_letter_message_count)
    return [f"{count:,}" for count in counts]
