"""``kafkabus schedule`` and ``kafkabus cancel``."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Annotated

import typer

from kafkabus.cli.commands.send import (
    MessageIdOption,
    PartitionKeyOption,
    PropertiesOption,
    SessionIdOption,
    SubjectOption,
    message_maker,
)
from kafkabus.cli.connection import explain_missing_entity, open_client
from kafkabus.cli.options import DestinationArgument, JsonOption, duration_option, moment_option
from kafkabus.cli.terminal import write, write_json

app = typer.Typer()

LONGEST = timedelta(days=365_000)
"""The longest time for ``--in``; the date of longer ones could not be represented."""


@app.command()
def schedule(
    context: typer.Context,
    entity: DestinationArgument,
    bodies: Annotated[list[str], typer.Argument(metavar="BODY", help="One message each.", show_default=False)],
    *,
    at: Annotated[
        datetime | None,
        moment_option(
            "Time of delivery: 2030-01-31T12:00:00, in UTC unless it names a zone; or 'in 5 minutes'.", "--at"
        ),
    ] = None,
    after: Annotated[timedelta | None, duration_option("Time until delivery: 30s, 1h30m.", "--in")] = None,
    partition_key: PartitionKeyOption = None,
    session_id: SessionIdOption = None,
    message_id: MessageIdOption = None,
    subject: SubjectOption = None,
    properties: PropertiesOption = None,
    json: JsonOption = False,
) -> None:
    """Send messages that can be received only from a given time on. Prints their sequence numbers, for 'kafkabus cancel'."""
    due = _moment(at, after)
    message = message_maker(
        partition_key=partition_key,
        session_id=session_id,
        message_id=message_id,
        subject=subject,
        properties=properties,
    )
    messages = [message(body.encode(errors="surrogateescape")) for body in bodies]
    with (
        explain_missing_entity(context, entity, may_create=True),
        open_client(context) as client,
        client.get_queue_sender(entity) as sender,
    ):
        numbers = sender.schedule_messages(messages, due)
    if json:
        write_json(numbers)
    for number in () if json else numbers:
        write(str(number))


@app.command()
def cancel(
    context: typer.Context,
    entity: DestinationArgument,
    numbers: Annotated[
        list[int], typer.Argument(metavar="NUMBER", help="As 'schedule' printed them.", show_default=False)
    ],
) -> None:
    """Cancel scheduled messages. If some are not scheduled any more, the others are cancelled nevertheless."""
    with (
        explain_missing_entity(context, entity),
        open_client(context) as client,
        client.get_queue_sender(entity) as sender,
    ):
        sender.cancel_scheduled_messages(numbers)
    write(f"cancelled {len(numbers)} {'message' if len(numbers) == 1 else 'messages'} of {entity}")


def _moment(at: datetime | None, after: timedelta | None) -> datetime:
    if at is not None and after is None:
        return at
    if after is not None and at is None:
        return datetime.now(timezone.utc) + min(after, LONGEST)
    raise typer.BadParameter("give exactly one time: --at 2030-01-31T12:00:00, --at 'in 5 minutes' or --in 1h30m")
