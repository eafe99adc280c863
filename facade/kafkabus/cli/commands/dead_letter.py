"""``kafkabus dead-letter``: looking at dead letters and sending them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus._core.enums import ServiceBusSubQueue
from kafkabus._core.exceptions import MessageNotFoundError, ServiceBusError
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
    from kafkabus._sync.handles.receiver import ServiceBusReceiver
    from kafkabus._sync.handles.sender import ServiceBusSender
    from kafkabus.cli.stopping import Stop
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
    edit = _Edit(given_values(properties or (), "--property"), removed or (), subject, body)
    with explain_missing_entity(context, entity), open_administration(context) as administration:
        counts = counts_of(administration, entity)
    there = counts.transfer_dead_letter_message_count if transfer else counts.dead_letter_message_count
    chosen = None if numbers is None else list(dict.fromkeys(numbers))
    most = min(count for count in (limit, there, None if chosen is None else len(chosen)) if count is not None)
    with (
        open_client(context) as client,
        receiver_of(client, entity, sub_queue=_sub_queue_of(transfer)) as receiver,
        _sender_of(client, entity) as sender,
        show_progress("sent again", most) as advance,
        note_signals() as stop,
    ):
        sending = _Resubmission(receiver, sender, edit, advance, stop)
        if chosen is None:
            sending.send_all(most)
        else:
            sending.send_chosen(chosen, most)
    write(f"sent {sending.sent} message{'' if sending.sent == 1 else 's'} to {entity} again")
    stop.end()
    if sending.missing:
        say(f"{sending.missing} of the {len(chosen or ())} sequence numbers name no dead letter that is available now")
    if not sending.sent:
        raise typer.Exit(ExitCode.NOTHING)


class _Resubmission:
    """Sends dead letters again.

    Args:
        receiver: A receiver of the dead letters.
        sender: A sender to their queue or subscription.
        edit: The changes to make to them.
        advance: Called with the number of messages that were sent.
        stop: Whether a signal asked to stop.

    Attributes:
        sent: How many were sent.
        missing: How many sequence numbers named none that was available.
    """

    def __init__(
        self,
        receiver: ServiceBusReceiver,
        sender: ServiceBusSender,
        edit: _Edit,
        advance: Callable[[int], None],
        stop: Stop,
    ) -> None:
        self._receiver = receiver
        self._sender = sender
        self._edit = edit
        self._advance = advance
        self._stop = stop
        self.sent = self.missing = 0

    def send_all(self, most: int) -> None:
        """Send the oldest ones: at most as many as there were at first, as messages that fail again come back."""
        waiting: deque[ServiceBusReceivedMessage] = deque()
        try:
            while self.sent < most and not self._stop.is_requested():
                waiting.extend(receive_next(self._receiver, min(AT_ONCE, most - self.sent), WAIT_S, self._stop))
                if not waiting:
                    return
                while waiting and not self._stop.is_requested():
                    self._send(waiting[0])
                    waiting.popleft()
        finally:
            # The messages left by an error or a signal.
            if waiting:
                self._receiver.abandon_messages(list(waiting))

    def send_chosen(self, numbers: Sequence[int], most: int) -> None:
        """Send those of some sequence numbers; of others, no delivery is counted."""
        for number in numbers:
            if self._stop.is_requested() or self.sent >= most:
                return
            try:
                (message,) = self._receiver.receive_messages_by_sequence_number(number)
            except MessageNotFoundError:
                self.missing += 1
                continue
            try:
                self._send(message)
            except BaseException:
                with suppress(ServiceBusError):
                    self._receiver.abandon_message(message)
                raise

    def _send(self, message: ServiceBusReceivedMessage) -> None:
        self._sender.send_messages(self._edit.make(message))
        self._receiver.complete_message(message)
        self.sent += 1
        self._advance(1)


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
