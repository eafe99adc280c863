"""``kafkabus purge``."""

from __future__ import annotations

import typer

from kafkabus.cli.connection import explain_missing_entity, open_client, receiver_of
from kafkabus.cli.options import DeadLetterOption, SourceArgument, TransferDeadLetterOption, YesOption, sub_queue
from kafkabus.cli.terminal import is_interactive, say, write

app = typer.Typer()


@app.command()
def purge(
    context: typer.Context,
    entity: SourceArgument,
    *,
    dead_letter: DeadLetterOption = False,
    transfer_dead_letter: TransferDeadLetterOption = False,
    yes: YesOption = False,
) -> None:
    """Delete all waiting messages; locked and deferred ones stay.

    Deleted messages stay readable in Kafka for as long as settled ones.
    """
    with explain_missing_entity(context, entity), open_client(context) as client:
        receiver = receiver_of(client, entity, sub_queue=sub_queue(dead_letter, transfer_dead_letter))
        if not yes and is_interactive():
            typer.confirm(f"Delete all messages that wait in {receiver.entity_path}?", abort=True, err=True)
        try:
            count = receiver.purge_messages()
        except (KeyboardInterrupt, SystemExit):
            say(f"interrupted: some or all messages that waited in {receiver.entity_path} may be purged")
            raise
    write(f"purged {count} message{'' if count == 1 else 's'} from {receiver.entity_path}")
