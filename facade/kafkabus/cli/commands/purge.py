"""``kafkabus purge``."""

from __future__ import annotations

import typer

from kafkabus.cli.connection import existing_queue, open_client
from kafkabus.cli.options import DeadLetterOption, QueueArgument, TransferDeadLetterOption, YesOption, sub_queue
from kafkabus.cli.terminal import interactive, write

app = typer.Typer()


@app.command()
def purge(
    context: typer.Context,
    queue: QueueArgument,
    *,
    dead_letter: DeadLetterOption = False,
    transfer_dead_letter: TransferDeadLetterOption = False,
    yes: YesOption = False,
) -> None:
    """Throw away all messages of a queue that wait; locked and deferred ones stay.

    They stay readable in Kafka for as long as settled messages do.
    """
    with existing_queue(context, queue), open_client(context) as client:
        receiver = client.get_queue_receiver(queue, sub_queue=sub_queue(dead_letter, transfer_dead_letter))
        if not yes and interactive():
            typer.confirm(f"Throw away what waits in {receiver.entity_path}?", abort=True, err=True)
        count = receiver.purge_messages()
    write(f"purged {count} message{'' if count == 1 else 's'} from {receiver.entity_path}")
