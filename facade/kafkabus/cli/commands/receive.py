"""``kafkabus receive``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus.cli.connection import existing_entity, open_client, receiver_of
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.messages import print_body, print_json
from kafkabus.cli.options import DeadLetterOption, JsonLinesOption, SourceArgument, TransferDeadLetterOption, sub_queue
from kafkabus.cli.terminal import flush, say
from kafkabus.enums import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue
from kafkabus.exceptions import OperationTimeoutError

if TYPE_CHECKING:
    from kafkabus.message import ServiceBusReceivedMessage
    from kafkabus.receiver import ServiceBusReceiver

app = typer.Typer()

BATCH = 200
"""Most messages that are received together: few enough to be printed well before their locks expire."""
ABANDONED = 100
"""How many messages ``--abandon`` looks at where nobody says how many."""


class _Outcome(str, Enum):
    COMPLETE = "completed"
    ABANDON = "abandoned"
    DELETE = "deleted"


LimitOption = Annotated[
    int | None, typer.Option("--max", "-m", min=1, metavar="N", help="Stop after so many; default: all that wait.")
]
WaitOption = Annotated[
    float, typer.Option("--wait", "-w", min=0.1, metavar="SECONDS", help="End after so long without a message.")
]
CompleteOption = Annotated[bool, typer.Option("--complete", help="Complete each message once printed; the default.")]
AbandonOption = Annotated[
    bool, typer.Option("--abandon", help=f"Give all back at the end, a delivery counted; --max is {ABANDONED} then.")
]
DeleteOption = Annotated[
    bool, typer.Option("--delete", help="Delete each message as it is received: if printing fails, it is gone.")
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
    delete: DeleteOption = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, or until --max.")] = False,
    json: JsonLinesOption = False,
) -> None:
    """Receive messages and print their bodies, one per line.

    Messages are completed once they were printed. With none in time, the exit status is 3.

    To look at a few, use --max: a program like 'head' lets go of the output only after more was printed. Of what has
    sessions, 'kafkabus session receive' receives.
    """
    receive_from(
        context,
        entity,
        which=sub_queue(dead_letter, transfer_dead_letter),
        limit=limit,
        wait=wait,
        complete=complete,
        abandon=abandon,
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
    delete: bool,
    follow: bool = False,
    json: bool,
) -> None:
    """Receive, print, settle; ``session`` holds the id of one, or None for the next one available.

    Raises:
        typer.Exit: Nothing came.
    """
    outcome = _outcome(complete, abandon, delete)
    if outcome is _Outcome.ABANDON:
        if follow:
            raise typer.BadParameter("--abandon with --follow would print the same messages for ever: use one of them")
        limit = ABANDONED if limit is None else limit
    with existing_entity(context, entity), open_client(context) as client:
        try:
            receiver = receiver_of(
                client,
                entity,
                session_id=None if session is None else NEXT_AVAILABLE_SESSION if session[0] is None else session[0],
                sub_queue=which,
                receive_mode="receiveanddelete" if outcome is _Outcome.DELETE else "peeklock",
                max_wait_time=wait,
            )
            with receiver:
                batches = _batches(receiver, limit, wait, follow)
                received = _print_all(receiver, batches, outcome, print_json if json else print_body)
        except OperationTimeoutError as error:
            say(str(error))
            raise typer.Exit(ExitCode.NOTHING) from error
    if not received:
        say(f"no message came within {wait:g} s")
        raise typer.Exit(ExitCode.NOTHING)


def _outcome(complete: bool, abandon: bool, delete: bool) -> _Outcome:
    if complete + abandon + delete > 1:
        raise typer.BadParameter("--complete, --abandon and --delete exclude each other: choose one")
    return _Outcome.ABANDON if abandon else _Outcome.DELETE if delete else _Outcome.COMPLETE


def _batches(
    receiver: ServiceBusReceiver, limit: int | None, wait: float, follow: bool
) -> Iterator[list[ServiceBusReceivedMessage]]:
    """Messages as they come, until there were enough or no more come."""
    left = limit
    while left is None or left > 0:
        batch = receiver.receive_messages(BATCH if left is None else min(left, BATCH), wait)
        if batch:
            yield batch
            left = None if left is None else left - len(batch)
        elif not follow:
            return


def _print_all(
    receiver: ServiceBusReceiver,
    batches: Iterator[list[ServiceBusReceivedMessage]],
    outcome: _Outcome,
    show: Callable[[ServiceBusReceivedMessage], None],
) -> int:
    """Print messages and settle them; returns how many."""
    received = 0
    kept: list[ServiceBusReceivedMessage] = []
    try:
        for batch in batches:
            received += len(batch)
            if outcome is not _Outcome.DELETE:
                kept += batch
            for message in batch:
                show(message)
            flush()
            if outcome is _Outcome.COMPLETE:
                receiver.complete_messages(kept)
                kept = []
    finally:
        # Also what a closed pipe or Ctrl-C kept from being printed: another receiver may have it at once.
        if kept:
            receiver.abandon_messages(kept)
    return received
