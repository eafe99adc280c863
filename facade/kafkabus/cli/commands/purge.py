"""``kafkabus purge``."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkabus.cli.connection import existing_queue, open_client
from kafkabus.cli.options import QueueArgument, YesOption
from kafkabus.cli.terminal import interactive, write

app = typer.Typer()


@app.command()
def purge(
    context: typer.Context,
    queue: QueueArgument,
    *,
    dead_letter: Annotated[bool, typer.Option("--dead-letter", help="Purge the queue's dead-letter queue.")] = False,
    yes: YesOption = False,
) -> None:
    """Throw away all messages of a queue that wait; locked and deferred ones stay.

    They stay readable in Kafka for as long as settled messages do.
    """
    with existing_queue(context, queue), open_client(context) as client:
        receiver = client.get_queue_receiver(queue, sub_queue="deadletter" if dead_letter else None)
        if not yes and interactive():
            typer.confirm(f"Throw away what waits in {receiver.entity_path}?", abort=True, err=True)
        count = receiver.purge_messages()
    write(f"purged {count} message{'' if count == 1 else 's'} from {receiver.entity_path}")
