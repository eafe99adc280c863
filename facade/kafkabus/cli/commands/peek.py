"""``kafkabus peek``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkabus.cli.connection import explain_missing_entity, open_client, receiver_of
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.messages import body_text, json_text
from kafkabus.cli.options import DeadLetterOption, JsonLinesOption, SourceArgument, TransferDeadLetterOption, sub_queue
from kafkabus.cli.terminal import say, write

if TYPE_CHECKING:
    from kafkabus._core.message import ServiceBusReceivedMessage
    from kafkabus._sync.handles.receiver import ServiceBusReceiver

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
            help="Only the messages of this session, which stays locked until the command ends.",
        ),
    ] = None,
    dead_letter: DeadLetterOption = False,
    transfer_dead_letter: TransferDeadLetterOption = False,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Only messages for which this filter is true, such as \"color = 'red' AND sys.DeliveryCount > 2\".",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only active, waiting, locked, postponed, deferred or scheduled messages."),
    ] = None,
    body: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only messages whose body contains this text.")
    ] = None,
    json: JsonLinesOption = False,
) -> None:
    """Print messages without locking them: waiting, locked, postponed and deferred ones.

    Prints their bodies, one per line, partition by partition; then, if any are postponed, how many and until when. If there
    are none, the exit status is 3. With --where, --state and --body it prints those for which all that are given hold.
    """
    text_of = json_text if json else body_text
    wanted = {"filter": where, "state": state, "body_contains": body}
    looks = any(value is not None for value in wanted.values())
    if looks:
        _check_search(where, state, body)
    seen = 0
    postponed: list[datetime] = []
    with (
        explain_missing_entity(context, entity, may_create=True),
        open_client(context) as client,
    ):
        # It is not opened: without a session, it searches through the messages of all sessions.
        receiver = receiver_of(
            client, entity, session_id=session, sub_queue=sub_queue(dead_letter, transfer_dead_letter)
        )
        for message in _found(receiver, limit, number, wanted) if looks else _all(receiver, limit, number):
            write(text_of(message))
            seen += 1
            if message.postponed_until_utc is not None:
                postponed.append(message.postponed_until_utc)
    if postponed:
        first, last = (f"{moment:%Y-%m-%d %H:%M:%S}" for moment in (min(postponed), max(postponed)))
        until = f"until {last} UTC" if first == last else f"until {first} to {last} UTC; --json has the time of each"
        say(f"postponed: {len(postponed)} of {seen}, {until}")
    if not seen:
        say("there is no such message" if looks else "there is no message")
        raise typer.Exit(ExitCode.NOTHING)


def _check_search(where: str | None, state: str | None, body: str | None) -> None:
    """Refuse a filter or a state that there is not, before anything is opened.

    Raises:
        typer.BadParameter: There is none.
    """
    from kafkabus._core.message_search import MessageSearch

    try:
        MessageSearch(where, state, body, 1)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _all(receiver: ServiceBusReceiver, limit: int, number: int) -> Iterator[ServiceBusReceivedMessage]:
    """Yield messages, up to so many, from a number on."""
    left = limit
    while left and (messages := receiver.peek_messages(left, sequence_number=number)):
        yield from messages
        left -= len(messages)
        number = 0


def _found(
    receiver: ServiceBusReceiver, limit: int, number: int, wanted: dict[str, Any]
) -> Iterator[ServiceBusReceivedMessage]:
    """Yield messages that are searched for, up to so many, from a number on; report those that the filter cannot judge."""
    left, failed, failure = limit, 0, None
    at: int | None = number
    while left and at is not None:
        answer = receiver.peek_messages(left, sequence_number=at, **wanted)
        yield from answer
        left -= len(answer)
        at, failed, failure = answer.next_sequence_number, failed + answer.failed_count, failure or answer.first_failure
    if failed:
        say(f"left out, as the filter could not be evaluated: {failed:,}; the first: {failure}")
