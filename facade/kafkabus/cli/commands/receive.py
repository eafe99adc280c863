"""``kafkabus receive``."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus._core.enums import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue
from kafkabus.cli.connection import explain_missing_entity, open_client, receiver_of
from kafkabus.cli.durations import format_duration
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.messages import body_text, json_text
from kafkabus.cli.options import (
    DeadLetterOption,
    JsonLinesOption,
    SourceArgument,
    TransferDeadLetterOption,
    duration_option,
    sub_queue,
)
from kafkabus.cli.printout import Printout
from kafkabus.cli.stopping import Stop, note_signals
from kafkabus.cli.terminal import say
from kafkabus.exceptions import OperationTimeoutError
from kafkabus_mapping.entities import LONGEST_DELAY

if TYPE_CHECKING:
    from kafkabus._core.message import ServiceBusReceivedMessage
    from kafkabus._sync.handles.receiver import ServiceBusReceiver
    from kafkabus._sync.handles.session import ServiceBusSession

app = typer.Typer()

BATCH = 200
"""The maximum number of messages in one receive: few enough to be printed well before their locks expire."""
SLICE_S = 0.5
"""The longest single wait, and so the longest delay before a signal is noticed, in seconds."""
ABANDONED = 100
"""The number of messages that ``--abandon`` receives without ``--max``."""


class _Outcome(str, Enum):
    COMPLETE = "completed"
    ABANDON = "abandoned"
    DELETE = "deleted"


LimitOption = Annotated[
    int | None, typer.Option("--max", "-m", min=1, metavar="N", help="Stop after N messages; default: all that wait.")
]
WaitOption = Annotated[
    float, typer.Option("--wait", "-w", min=0.1, metavar="SECONDS", help="Exit after this time without a message.")
]
CompleteOption = Annotated[
    bool, typer.Option("--complete", help="Complete each message once it is printed; the default.")
]
AbandonOption = Annotated[
    bool,
    typer.Option(
        "--abandon", help=f"Abandon all messages at the end; counts a delivery, and --max is then {ABANDONED}."
    ),
]
DelayOption = Annotated[
    timedelta | None,
    duration_option(
        "With --abandon: the messages come again after this time, up to 7d; default: as the retry policy says."
    ),
]
DeleteOption = Annotated[
    bool, typer.Option("--delete", help="Delete each message when it is received: if printing fails, it is lost.")
]


@app.command()
def receive(
    context: typer.Context,
    entity: SourceArgument,
    *,
    limit: LimitOption = None,
    wait: WaitOption = 5.0,
    dead_letter: DeadLetterOption = False,
    transfer_dead_letter: TransferDeadLetterOption = False,
    complete: CompleteOption = False,
    abandon: AbandonOption = False,
    delay: DelayOption = None,
    delete: DeleteOption = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, or until --max.")] = False,
    json: JsonLinesOption = False,
) -> None:
    """Receive messages and print their bodies, one per line.

    Messages are completed once they are printed. If none arrives in time, the exit status is 3.

    To receive only a few, use --max: a program like 'head' closes the output only after more messages were printed. For an
    entity with sessions, use 'kafkabus session receive'.
    """
    receive_from(
        context,
        entity,
        which=sub_queue(dead_letter, transfer_dead_letter),
        limit=limit,
        wait=wait,
        complete=complete,
        abandon=abandon,
        delay=delay,
        delete=delete,
        follow=follow,
        json=json,
    )


def receive_from(
    context: typer.Context,
    entity: str,
    *,
    session: tuple[str | None] | None = None,
    which: ServiceBusSubQueue | None = None,
    limit: int | None,
    wait: float,
    complete: bool,
    abandon: bool,
    delay: timedelta | None,
    delete: bool,
    follow: bool = False,
    json: bool,
) -> None:
    """Receive, print and settle messages; ``session`` holds a session's id, or None for the next available one.

    Raises:
        typer.Exit: No message came.
    """
    outcome = _outcome(complete, abandon, delete)
    if delay is not None:
        _check_delay(delay, outcome)
    if outcome is _Outcome.ABANDON:
        if follow:
            raise typer.BadParameter("--abandon with --follow would print the same messages for ever: use one of them")
        limit = ABANDONED if limit is None else limit
    with explain_missing_entity(context, entity, may_create=True), open_client(context) as client:
        receiver = receiver_of(
            client,
            entity,
            session_id=None if session is None else NEXT_AVAILABLE_SESSION if session[0] is None else session[0],
            sub_queue=which,
            receive_mode="receiveanddelete" if outcome is _Outcome.DELETE else "peeklock",
            max_wait_time=wait,
        )
        # Until the receiver is open, a signal ends the program at once: it holds no messages.
        with receiver if session is None else nullcontext(), note_signals() as stop:
            received = _receive_all(
                receiver,
                Printout(json_text if json else body_text),
                outcome,
                stop,
                limit=limit,
                wait=wait,
                delay=delay,
                follow=follow,
            )
    stop.end()
    if not received:
        say(f"no message came within {wait:g} s")
        raise typer.Exit(ExitCode.NOTHING)


def _outcome(complete: bool, abandon: bool, delete: bool) -> _Outcome:
    if complete + abandon + delete > 1:
        raise typer.BadParameter("--complete, --abandon and --delete exclude each other: choose one")
    return _Outcome.ABANDON if abandon else _Outcome.DELETE if delete else _Outcome.COMPLETE


def _check_delay(delay: timedelta, outcome: _Outcome) -> None:
    given = format_duration(delay)
    if outcome is not _Outcome.ABANDON:
        raise typer.BadParameter(
            f"--delay {given} without --abandon: only abandoned messages come again; add --abandon, or leave it out"
        )
    if delay > LONGEST_DELAY:
        raise typer.BadParameter(
            f"--delay {given}: a message is postponed by up to {format_duration(LONGEST_DELAY)}; choose a shorter delay"
        )


def _lock_session(receiver: ServiceBusReceiver, session: ServiceBusSession, stop: Stop) -> None:
    """Lock a receiver's session, unless a signal comes before one is available.

    Raises:
        typer.Exit: No session was available in time.
    """
    from kafkabus._sync.engine.held_session import held_session_of
    from kafkabus._sync.engine.receiver_engine import engine_of

    try:
        held_session_of(session).open(None, stop.is_requested, engine_of(receiver).scope.holder)
    except OperationTimeoutError as error:
        stop.end()
        say(str(error))
        raise typer.Exit(ExitCode.NOTHING) from error
    stop.end()


def receive_next(receiver: ServiceBusReceiver, count: int, wait: float, stop: Stop) -> list[ServiceBusReceivedMessage]:
    """Receive up to ``count`` messages; return none if none came within ``wait`` seconds, or if a signal came."""
    deadline = time.monotonic() + wait
    while not stop.is_requested() and (left := deadline - time.monotonic()) > 0:
        messages = receiver.receive_messages(count, min(left, SLICE_S))
        if messages:
            return messages
    return []


def _receive_all(
    receiver: ServiceBusReceiver,
    printout: Printout,
    outcome: _Outcome,
    stop: Stop,
    *,
    limit: int | None,
    wait: float,
    delay: timedelta | None,
    follow: bool,
) -> int:
    """Receive, print and settle messages until there were enough, none came, or a signal came; return their number."""
    if receiver.session is not None:
        _lock_session(receiver, receiver.session, stop)
    deletes = outcome is _Outcome.DELETE
    most = 1 if deletes and printout.may_close else BATCH
    received = 0
    kept: list[ServiceBusReceivedMessage] = []
    try:
        while not stop.is_requested() and (limit is None or received < limit):
            messages = receive_next(receiver, most if limit is None else min(limit - received, most), wait, stop)
            if not messages and not follow:
                break
            received += len(messages)
            if not deletes:
                kept += messages
            printout.print(messages)
            if outcome is _Outcome.COMPLETE:
                printed, kept = kept, []
                receiver.complete_messages(printed)
    finally:
        printout.tell_unread(kept)
        if kept:
            # This includes messages not printed because of a closed output or a signal: other receivers may get them at once,
            # whatever the entity's retry policy says.
            receiver.abandon_messages(kept, delay=delay if outcome is _Outcome.ABANDON else 0)
    return received
