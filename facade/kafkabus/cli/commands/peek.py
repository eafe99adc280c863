"""``kafkabus peek``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from kafkabus.cli.connection import explain_missing_entity, open_client, receiver_of
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.messages import body_text, json_text
from kafkabus.cli.options import DeadLetterOption, JsonLinesOption, SourceArgument, TransferDeadLetterOption, sub_queue
from kafkabus.cli.terminal import say, write

app = typer.Typer()


@app.command()
def peek(
    context: typer.Context,
    entity: SourceArgument,
    *,
    limit: Annotated[int, typer.Option("--max", "-m", min=1, metavar="N", help="Stop after N messages.")] = 100,
    number: Annotated[
        int, typer.Option("--from", min=0, metavar="NUMBER", help="Begin at this sequence number.", show_default=False)
    ] = 0,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The session to read, of an entity with sessions; it stays locked until the command ends.",
        ),
    ] = None,
    dead_letter: DeadLetterOption = False,
    transfer_dead_letter: TransferDeadLetterOption = False,
    json: JsonLinesOption = False,
) -> None:
    """Print messages without locking them: waiting, locked, postponed and deferred ones.

    Prints their bodies, one per line, partition by partition; then, if any are postponed, how many and until when. If there
    are none, the exit status is 3.
    """
    text_of = json_text if json else body_text
    seen = 0
    postponed: list[datetime] = []
    with (
        explain_missing_entity(context, entity, may_create=True),
        open_client(context) as client,
        receiver_of(
            client, entity, session_id=session, sub_queue=sub_queue(dead_letter, transfer_dead_letter)
        ) as receiver,
    ):
        while seen < limit:
            messages = receiver.peek_messages(limit - seen, sequence_number=0 if seen else number)
            if not messages:
                break
            for message in messages:
                write(text_of(message))
                if message.postponed_until_utc is not None:
                    postponed.append(message.postponed_until_utc)
            seen += len(messages)
            number = 0
    if postponed:
        first, last = (f"{moment:%Y-%m-%d %H:%M:%S}" for moment in (min(postponed), max(postponed)))
        until = f"until {last} UTC" if first == last else f"until {first} to {last} UTC; --json has the time of each"
        say(f"postponed: {len(postponed)} of {seen}, {until}")
    if not seen:
        say("there is no message")
        raise typer.Exit(ExitCode.NOTHING)
