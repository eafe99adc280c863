"""``kafkabus session``: sessions, and receiving from one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from kafkabus.cli.commands.receive import (
    AbandonOption,
    CompleteOption,
    DelayOption,
    DeleteOption,
    LimitOption,
    WaitOption,
    receive_from,
)
from kafkabus.cli.connection import explain_missing_entity, open_client
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.options import JsonLinesOption, JsonOption, SourceArgument, moment_option
from kafkabus.cli.terminal import printable, say, write, write_json
from kafkabus_mapping.names import split_subscription

app = typer.Typer(name="session", no_args_is_help=True, help="List sessions and receive from one.")


@app.command("list")
def list_sessions(
    context: typer.Context,
    entity: SourceArgument,
    *,
    state_since: Annotated[
        datetime | None,
        moment_option("Only sessions whose state was set after this time, in UTC unless it names a zone."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the sessions that have waiting messages, are locked, or have state. If there are none, the exit status is 3."""
    with explain_missing_entity(context, entity), open_client(context) as client:
        names = list(
            client.list_queue_sessions(entity, state_updated_after=state_since)
            if (subscription := split_subscription(entity)) is None
            else client.list_subscription_sessions(*subscription, state_updated_after=state_since)
        )
    if json:
        write_json(names)
    for name in () if json else names:
        write(printable(name.encode()))
    if not names:
        say("there is no session")
        raise typer.Exit(ExitCode.NOTHING)


@app.command()
def receive(
    context: typer.Context,
    entity: SourceArgument,
    session: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="The session; default: the next one available.", show_default=False),
    ] = None,
    *,
    limit: LimitOption = None,
    wait: WaitOption = 5.0,
    complete: CompleteOption = False,
    abandon: AbandonOption = False,
    delay: DelayOption = None,
    delete: DeleteOption = False,
    json: JsonLinesOption = False,
) -> None:
    """Receive the messages of one session in order and print their bodies, one per line.

    The session stays locked until the command ends. If no session is available, or no message comes in time, the exit status is
    3.
    """
    receive_from(
        context,
        entity,
        session=(session,),
        limit=limit,
        wait=wait,
        complete=complete,
        abandon=abandon,
        delay=delay,
        delete=delete,
        json=json,
    )
