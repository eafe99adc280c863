"""``kafkabus session``: sessions, and receiving from one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
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
from kafkabus.cli.connection import explain_missing_entity, open_administration, open_client
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.options import JsonLinesOption, JsonOption, SourceArgument, YesOption, moment_option
from kafkabus.cli.terminal import is_interactive, printable, say, write, write_json
from kafkabus_mapping.names import split_subscription

app = typer.Typer(
    name="session", no_args_is_help=True, help="List sessions, receive from one, and end what is left of one."
)

SessionArgument = Annotated[str, typer.Argument(metavar="ID", help="The session.", show_default=False)]


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


@app.command()
def state(
    context: typer.Context,
    entity: SourceArgument,
    session: SessionArgument,
    *,
    text: Annotated[str | None, typer.Option("--set", metavar="TEXT", help="Set the state to this text.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", dir_okay=False, exists=True, help="Set it to a file's content."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Clear the state.")] = False,
) -> None:
    """Print the state of a session, set it or clear it, whether a receiver has the session or not.

    If the session has no state, the exit status is 3.
    """
    if (text is not None) + (file is not None) + clear > 1:
        raise typer.BadParameter("--set, --file and --clear exclude each other: choose one")
    with explain_missing_entity(context, entity), open_administration(context) as administration:
        if text is None and file is None and not clear:
            found = administration.get_session_state(entity, session)
            if found is None:
                say(f"session {session!r} has no state")
                raise typer.Exit(ExitCode.NOTHING)
            write(printable(found))
            return
        administration.set_session_state(entity, session, text if file is None else file.read_bytes())
    say(f"{'cleared' if clear else 'set'} the state of session {session!r} of {entity}")


@app.command("dead-letter")
def dead_letter(
    context: typer.Context,
    entity: SourceArgument,
    session: SessionArgument,
    *,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why.")] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, in more words.")] = None,
    yes: YesOption = False,
) -> None:
    """Dead-letter all messages that wait in a session; deferred and scheduled ones stay.

    If a receiver has the session, the command fails: 'kafkabus lock break' takes it away.
    """
    with explain_missing_entity(context, entity), open_administration(context) as administration:
        _confirm("Dead-letter", session, entity, yes)
        count = administration.dead_letter_session(entity, session, reason=reason, error_description=description)
    _report("dead-lettered", count, session, entity)


@app.command()
def purge(
    context: typer.Context,
    entity: SourceArgument,
    session: SessionArgument,
    *,
    yes: YesOption = False,
) -> None:
    """Delete all messages that wait in a session; deferred and scheduled ones stay.

    If a receiver has the session, the command fails: 'kafkabus lock break' takes it away.
    """
    with explain_missing_entity(context, entity), open_administration(context) as administration:
        _confirm("Delete", session, entity, yes)
        count = administration.purge_session(entity, session)
    _report("deleted", count, session, entity)


def _confirm(verb: str, session: str, entity: str, yes: bool) -> None:
    if not yes and is_interactive():
        typer.confirm(f"{verb} all messages that wait in session {session!r} of {entity}?", abort=True, err=True)


def _report(verb: str, count: int, session: str, entity: str) -> None:
    write(f"{verb} {count} message{'' if count == 1 else 's'} of session {session!r} of {entity}")
    if not count:
        raise typer.Exit(ExitCode.NOTHING)
