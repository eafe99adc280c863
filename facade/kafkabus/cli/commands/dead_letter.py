"""``kafkabus dead-letter``: looking at dead letters and sending them again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus.cli.commands.receive import receive_next
from kafkabus.cli.connection import counts_of, existing_entity, open_administration, open_client, receiver_of
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.messages import body_of, json_text
from kafkabus.cli.options import JsonLinesOption, SourceArgument
from kafkabus.cli.stopping import stopping
from kafkabus.cli.terminal import counting, printable, say, write, write_table
from kafkabus.enums import ServiceBusSubQueue
from kafkabus_mapping.names import split_subscription

if TYPE_CHECKING:
    from kafkabus.client import ServiceBusClient
    from kafkabus.message import ServiceBusReceivedMessage
    from kafkabus.sender import ServiceBusSender

app = typer.Typer(no_args_is_help=True, help="Look at dead letters, send them again.")

TransferOption = Annotated[bool, typer.Option("--transfer", help="Those that could not be forwarded.")]

AT_ONCE = 100
"""How many messages are sent again at a time."""
WAIT_S = 5.0
"""How long, in seconds, it waits for one that is there but locked."""
LONGEST_BODY = 40
"""How much of a body a table shows."""


@app.command("list")
def list_messages(
    context: typer.Context,
    entity: SourceArgument,
    *,
    limit: Annotated[int, typer.Option("--max", "-m", min=1, metavar="N", help="Stop after so many.")] = 100,
    transfer: TransferOption = False,
    json: JsonLinesOption = False,
) -> None:
    """List dead letters and why they are there; none is locked. With none, the exit status is 3."""
    messages: list[ServiceBusReceivedMessage] = []
    with (
        existing_entity(context, entity),
        open_client(context) as client,
        receiver_of(client, entity, sub_queue=_which(transfer)) as receiver,
    ):
        while len(messages) < limit and (more := receiver.peek_messages(limit - len(messages))):
            messages += more
    if not messages:
        say("there is no dead letter")
        raise typer.Exit(ExitCode.NOTHING)
    if json:
        for message in messages:
            write(json_text(message))
        return
    write_table(
        {"SEQUENCE NUMBER": True, "ENQUEUED (UTC)": False, "REASON": False, "DESCRIPTION": False, "BODY": False},
        [_row(message) for message in messages],
    )


@app.command()
def resubmit(
    context: typer.Context,
    entity: SourceArgument,
    *,
    limit: Annotated[
        int | None, typer.Option("--max", "-m", min=1, metavar="N", help="Stop after so many; default: all there are.")
    ] = None,
    transfer: TransferOption = False,
) -> None:
    """Send dead letters to where they came from again, oldest first, and take them off the dead-letter queue.

    Those of a subscription go to that subscription alone, whatever its rules say. Each is sent as a new message with the same
    id and properties, and completed once it is stored: if this is cut off, one may be there twice, none is lost.
    """
    with existing_entity(context, entity), open_administration(context) as administration:
        counts = counts_of(administration, entity)
    there = counts.transfer_dead_letter_message_count if transfer else counts.dead_letter_message_count
    left = there if limit is None else min(limit, there)
    sent = 0
    with (
        open_client(context) as client,
        receiver_of(client, entity, sub_queue=_which(transfer)) as receiver,
        _sender_of(client, entity) as sender,
        counting("sent again", left) as advance,
        stopping() as stop,
    ):
        # No more than there were: what fails again comes back meanwhile.
        while sent < left and (messages := receive_next(receiver, min(AT_ONCE, left - sent), WAIT_S, stop)):
            waiting = deque(messages)
            try:
                while waiting and not stop.requested():
                    sender.send_messages(waiting[0])
                    receiver.complete_message(waiting.popleft())
                    sent += 1
                    advance(1)
            finally:
                # Those that an error or a signal left.
                if waiting:
                    receiver.abandon_messages(waiting)
    write(f"sent {sent} message{'' if sent == 1 else 's'} to {entity} again")
    stop.end()
    if not sent:
        raise typer.Exit(ExitCode.NOTHING)


def _sender_of(client: ServiceBusClient, entity: str) -> ServiceBusSender:
    names = split_subscription(entity)
    if names is None:
        return client.get_queue_sender(entity)
    sender = client.get_topic_sender(names[0])
    sender._address_to(entity)
    return sender


def _which(transfer: bool) -> ServiceBusSubQueue:
    return ServiceBusSubQueue.TRANSFER_DEAD_LETTER if transfer else ServiceBusSubQueue.DEAD_LETTER


def _row(message: ServiceBusReceivedMessage) -> list[str]:
    body = printable(body_of(message)).replace("\n", " ")
    return [
        str(message.sequence_number),
        f"{message.enqueued_time_utc:%Y-%m-%d %H:%M:%S}",
        message.dead_letter_reason or "",
        message.dead_letter_error_description or "",
        body if len(body) <= LONGEST_BODY else f"{body[: LONGEST_BODY - 1]}…",
    ]
