"""``kafkabus dead-letter``: looking at dead letters and sending them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus._core.enums import ServiceBusSubQueue
from kafkabus.cli.commands.receive import receive_next
from kafkabus.cli.commands.send import PropertiesOption, SubjectOption
from kafkabus.cli.connection import counts_of, explain_missing_entity, open_administration, open_client, receiver_of
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.messages import body_of, json_text
from kafkabus.cli.options import JsonLinesOption, SourceArgument, given_values
from kafkabus.cli.stopping import note_signals
from kafkabus.cli.terminal import printable, say, show_progress, write, write_table
from kafkabus_mapping.names import split_subscription

if TYPE_CHECKING:
    from kafkabus._core.message import ServiceBusReceivedMessage
    from kafkabus._sync.handles.client import ServiceBusClient
    from kafkabus._sync.handles.sender import ServiceBusSender
    from kafkabus_mapping.properties import PropertyValue

app = typer.Typer(name="dead-letter", no_args_is_help=True, help="List dead letters and send them again.")

TransferOption = Annotated[bool, typer.Option("--transfer", help="Use the messages that could not be forwarded.")]

AT_ONCE = 100
"""The number of messages that are sent again at a time."""
WAIT_S = 5.0
"""How long the command waits for a locked dead letter, in seconds."""
LONGEST_BODY = 40
"""The number of a body's characters that a table shows."""


@app.command("list")
def list_messages(
    context: typer.Context,
    entity: SourceArgument,
    *,
    limit: Annotated[int, typer.Option("--max", "-m", min=1, metavar="N", help="Stop after N dead letters.")] = 100,
    transfer: TransferOption = False,
    json: JsonLinesOption = False,
) -> None:
    """List dead letters and their reasons, without locking them. If there are none, the exit status is 3."""
    messages: list[ServiceBusReceivedMessage] = []
    with (
        explain_missing_entity(context, entity),
        open_client(context) as client,
        receiver_of(client, entity, sub_queue=_sub_queue_of(transfer)) as receiver,
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
        int | None, typer.Option("--max", "-m", min=1, metavar="N", help="Stop after N; default: all dead letters.")
    ] = None,
    transfer: TransferOption = False,
    numbers: Annotated[
        list[int] | None,
        typer.Option(
            "--sequence-number",
            "-s",
            metavar="NUMBER",
            help="Send only this one, as 'dead-letter list' shows it. May be repeated.",
        ),
    ] = None,
    properties: PropertiesOption = None,
    removed: Annotated[
        list[str] | None,
        typer.Option("--remove-property", metavar="NAME", help="Remove this application property. May be repeated."),
    ] = None,
    subject: SubjectOption = None,
    body: Annotated[
        str | None, typer.Option("--body", metavar="TEXT", help="Replace the body of each message.")
    ] = None,
) -> None:
    """Send dead letters back to the entity they came from, oldest first, and remove them from the dead-letter queue.

    Dead letters of a subscription go only to that subscription, whatever its rules. Each is sent as a new message with the
    same id and properties, except those that options change, and completed once it is stored: if the command is interrupted,
    a message may be duplicated, but none is lost.
    """
    from kafkabus._sync.handles.lock_renewer import AutoLockRenewer

    edit = _Edit(given_values(properties or (), "--property"), removed or (), subject, body)
    wanted = None if numbers is None else set(numbers)
    with explain_missing_entity(context, entity), open_administration(context) as administration:
        counts = counts_of(administration, entity)
    there = counts.transfer_dead_letter_message_count if transfer else counts.dead_letter_message_count
    left = min(most for most in (limit, there, None if wanted is None else len(wanted)) if most is not None)
    sent, looked_at = 0, 0
    unwanted: list[ServiceBusReceivedMessage] = []
    waiting: deque[ServiceBusReceivedMessage] = deque()
    with (
        AutoLockRenewer() as renewer,
        open_client(context) as client,
        receiver_of(client, entity, sub_queue=_sub_queue_of(transfer)) as receiver,
        _sender_of(client, entity) as sender,
        show_progress("sent again", left) as advance,
        note_signals() as stop,
    ):
        try:
            # At most as many as there were at first: messages that fail again come back during the loop.
            while sent < left and looked_at < there and not stop.is_requested():
                most = min(AT_ONCE, there - looked_at if wanted else left - sent)
                waiting.extend(receive_next(receiver, most, WAIT_S, stop))
                if not waiting:
                    break
                looked_at += len(waiting)
                while waiting and not stop.is_requested():
                    if wanted is not None and waiting[0].sequence_number not in wanted:
                        # Kept locked, so that they are not delivered again before the wanted ones are found.
                        renewer.register(receiver, waiting[0])
                        unwanted.append(waiting.popleft())
                        continue
                    sender.send_messages(edit.make(waiting[0]))
                    receiver.complete_message(waiting.popleft())
                    sent += 1
                    advance(1)
        finally:
            # The messages left by an error or a signal, and those that were not asked for.
            if unwanted or waiting:
                receiver.abandon_messages([*unwanted, *waiting])
    write(f"sent {sent} message{'' if sent == 1 else 's'} to {entity} again")
    stop.end()
    if wanted is not None and sent < len(wanted):
        say(f"{len(wanted) - sent} of the {len(wanted)} sequence numbers name no dead letter that is available now")
    if not sent:
        raise typer.Exit(ExitCode.NOTHING)


class _Edit:
    """The changes to make to messages before they are sent again.

    Args:
        properties: Application properties to set.
        removed: Names of application properties to remove.
        subject: The new subject; None keeps the old one.
        body: The new body; None keeps the old one.
    """

    def __init__(
        self, properties: Mapping[str, PropertyValue], removed: Sequence[str], subject: str | None, body: str | None
    ) -> None:
        self._properties = properties
        self._removed = {*removed, *properties}
        self._subject = subject
        self._body = body

    def make(self, message: ServiceBusReceivedMessage) -> ServiceBusReceivedMessage:
        """Change a message, and return it."""
        if self._removed:
            # Convert texts back to str, since received properties hold them as bytes.
            sent = message._envelope.application_properties or {}
            kept = {name: value for name, value in sent.items() if name not in self._removed}
            message.application_properties = {**kept, **dict(self._properties.items())}
        if self._subject is not None:
            message.subject = self._subject
        if self._body is not None:
            message._replace_body(self._body.encode(errors="surrogateescape"))
        return message


def _sender_of(client: ServiceBusClient, entity: str) -> ServiceBusSender:
    names = split_subscription(entity)
    if names is None:
        return client.get_queue_sender(entity)
    sender = client.get_topic_sender(names[0])
    sender._address_to(entity)
    return sender


def _sub_queue_of(transfer: bool) -> ServiceBusSubQueue:
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
