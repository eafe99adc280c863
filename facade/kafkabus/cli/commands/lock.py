"""``kafkabus lock``: who has locked messages and sessions, and ending a lock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus.cli.connection import explain_missing_entity, open_administration
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.options import (
    DeadLetterOption,
    JsonOption,
    SourceArgument,
    TransferDeadLetterOption,
    YesOption,
    sub_queue,
)
from kafkabus.cli.terminal import escape_controls, is_interactive, say, write, write_json, write_table
from kafkabus_mapping.names import EntityPath, SubQueue

if TYPE_CHECKING:
    from kafkabus._core.message_lock import MessageLock

app = typer.Typer(name="lock", no_args_is_help=True, help="List and break locks of messages and sessions.")


@app.command("list")
def list_locks(
    context: typer.Context,
    entity: SourceArgument,
    *,
    dead_letter: DeadLetterOption = False,
    transfer_dead_letter: TransferDeadLetterOption = False,
    json: JsonOption = False,
) -> None:
    """List which messages and sessions are locked, by whom, since when and until when.

    If there are no locks, the exit status is 3.
    """
    path = _path_of(entity, dead_letter, transfer_dead_letter)
    with explain_missing_entity(context, entity), open_administration(context) as administration:
        locks = list(administration.list_locks(path))
    if json:
        write_json([_fields(lock) for lock in locks])
    elif locks:
        write_table(
            {"MESSAGES": False, "COUNT": True, "SESSION": False, "HELD BY": False, "SINCE": False, "UNTIL": False},
            [
                [
                    _ranges(lock.sequence_numbers),
                    f"{lock.message_count:,}",
                    escape_controls(lock.session_id or ""),
                    escape_controls(lock.client_identifier or ""),
                    "" if lock.locked_since_utc is None else _moment(lock.locked_since_utc),
                    _moment(lock.locked_until_utc),
                ]
                for lock in locks
            ],
        )
    if not locks:
        say("nothing is locked")
        raise typer.Exit(ExitCode.NOTHING)


@app.command("break")
def break_lock(
    context: typer.Context,
    entity: SourceArgument,
    number: Annotated[
        int | None,
        typer.Argument(metavar="[NUMBER]", help="The message's sequence number.", show_default=False),
    ] = None,
    *,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="The session to take from its receiver, with its messages.")
    ] = None,
    dead_letter: DeadLetterOption = False,
    transfer_dead_letter: TransferDeadLetterOption = False,
    yes: YesOption = False,
) -> None:
    """End the lock of a message or of a session, as if it had expired.

    A delivery is counted, other receivers may get the message, and the one that had the lock can settle nothing of it any more.
    """
    if (number is None) == (session is None):
        raise typer.BadParameter("give the sequence number of a message, or --session ID")
    what = f"message {number}" if session is None else f"session {session!r}"
    path = _path_of(entity, dead_letter, transfer_dead_letter)
    with explain_missing_entity(context, entity), open_administration(context) as administration:
        if not yes and is_interactive():
            typer.confirm(f"Break the lock of {what} of {path}?", abort=True, err=True)
        administration.break_lock(path, number, session_id=session)
    write(f"broke the lock of {what} of {path}")


def _path_of(entity: str, dead_letter: bool, transfer_dead_letter: bool) -> str:
    chosen = sub_queue(dead_letter, transfer_dead_letter)
    return entity if chosen is None else str(EntityPath(entity, SubQueue(chosen.value)))


def _ranges(numbers: Sequence[tuple[int, int]], shown: int = 3) -> str:
    """Return ranges of numbers as a text, the first few of them."""
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in numbers[:shown]]
    return ", ".join([*texts, "…"] if len(numbers) > shown else texts)


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _fields(lock: MessageLock) -> dict[str, object]:
    fields: dict[str, object] = {
        "session_id": lock.session_id,
        "sequence_numbers": [list(run) for run in lock.sequence_numbers],
        "message_count": lock.message_count,
        "client_identifier": lock.client_identifier,
        "locked_since_utc": None if lock.locked_since_utc is None else lock.locked_since_utc.isoformat(),
        "locked_until_utc": lock.locked_until_utc.isoformat(),
    }
    return {name: value for name, value in fields.items() if value is not None}
