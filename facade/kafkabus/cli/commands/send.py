"""``kafkabus send``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus.cli.connection import existing_entity, open_client
from kafkabus.cli.exits import CommandError
from kafkabus.cli.options import DestinationArgument, given_values
from kafkabus.cli.terminal import counting, say, write

if TYPE_CHECKING:
    from kafkabus._core.message import ServiceBusMessage
    from kafkabus._sync.handles.sender import ServiceBusSender
    from kafkabus_mapping.properties import PropertyValue

app = typer.Typer()

BATCH = 500
"""Most messages that are sent together."""
_CHUNK = 1 << 18


PartitionKeyOption = Annotated[
    str | None,
    typer.Option("--partition-key", "-k", metavar="KEY", help="Equal keys share a partition and keep order."),
]
SessionIdOption = Annotated[
    str | None, typer.Option("--session-id", metavar="ID", help="The session; it is the partition key too.")
]
MessageIdOption = Annotated[str | None, typer.Option("--message-id", metavar="ID", help="Made up by default.")]
SubjectOption = Annotated[str | None, typer.Option("--subject", metavar="TEXT", help="What the message is about.")]
PropertiesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-p",
        metavar="NAME=TEXT",
        help="An application property; NAME:=5 for a number, true or false. May be repeated.",
    ),
]


@app.command()
def send(
    context: typer.Context,
    entity: DestinationArgument,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BODY",
            help="One message each; '-' or none: the lines of the standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="PATH", help="Send each line of a file; '-': of the standard input."),
    ] = None,
    partition_key: PartitionKeyOption = None,
    session_id: SessionIdOption = None,
    message_id: MessageIdOption = None,
    subject: SubjectOption = None,
    properties: PropertiesOption = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, metavar="N", help="Send each BODY so many times.")] = 1,
) -> None:
    """Send messages to a queue or a topic: the arguments, or one for each line of a file or of the standard input.

    What was sent is stored when the command returns.
    """
    chunks, total = _what_to_send(bodies or [], file, count)
    message = message_maker(
        partition_key=partition_key,
        session_id=session_id,
        message_id=message_id,
        subject=subject,
        properties=properties,
    )
    # An argument that no message can carry is told before anything is sent.
    message(b"")
    with (
        existing_entity(context, entity),
        open_client(context) as client,
        client.get_queue_sender(entity) as sender,
        counting("sending", total) as advance,
    ):
        shipment = _Shipment(sender, advance)
        with _counted(shipment):
            for chunk in chunks:
                for body in chunk:
                    shipment.add(message(body))
                # More may be long in coming, as behind 'tail -f'.
                shipment.send()
    write(f"sent {shipment.sent} {'message' if shipment.sent == 1 else 'messages'} to {entity}")


def message_maker(
    *,
    partition_key: str | None,
    session_id: str | None,
    message_id: str | None,
    subject: str | None,
    properties: list[str] | None,
) -> Callable[[bytes], ServiceBusMessage]:
    """What makes messages of bodies, all with what the options say.

    Raises:
        typer.BadParameter: A property is none.
    """
    from kafkabus._core.message import ServiceBusMessage

    given: dict[str | bytes, PropertyValue] = dict(given_values(properties or (), "--property").items())

    def message(body: bytes) -> ServiceBusMessage:
        return ServiceBusMessage(
            body,
            application_properties=given or None,
            session_id=session_id,
            message_id=message_id,
            subject=subject,
            partition_key=partition_key,
        )

    return message


class _Shipment:
    """Messages on their way, in batches.

    Args:
        sender: Where they go.
        advance: Told how many more were sent.

    Attributes:
        sent: How many were sent so far.
    """

    def __init__(self, sender: ServiceBusSender, advance: Callable[[int], None]) -> None:
        self.sent = 0
        self._sender = sender
        self._advance = advance
        self._batch = sender.create_message_batch()

    def add(self, message: ServiceBusMessage) -> None:
        """Put a message into the batch, after sending this where it is full.

        Raises:
            MessageSizeExceededError: The message is too large by itself.
        """
        from kafkabus.exceptions import MessageSizeExceededError

        try:
            self._batch.add_message(message)
        except MessageSizeExceededError:
            if not len(self._batch):
                raise
            self.send()
            self._batch.add_message(message)
        if len(self._batch) >= BATCH:
            self.send()

    def send(self) -> None:
        """Send what is in the batch."""
        count = len(self._batch)
        if count:
            self._sender.send_messages(self._batch)
            self.sent += count
            self._batch = self._sender.create_message_batch()
            self._advance(count)


@contextmanager
def _counted(shipment: _Shipment) -> Generator[None, None, None]:
    """Say how many were sent before an error or a signal, so that nobody sends them twice."""
    from kafkabus.exceptions import ServiceBusError

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say(f"interrupted: {shipment.sent} messages are known to be sent")
        raise
    except (ServiceBusError, ValueError) as error:
        if not shipment.sent:
            raise
        raise CommandError(f"{error} ({shipment.sent} messages before it were sent)") from error


def _what_to_send(bodies: list[str], file: str | None, count: int) -> tuple[Iterator[list[bytes]], int | None]:
    """The bodies, in chunks as they come, and how many they are where that is known."""
    if bodies and file is not None:
        raise typer.BadParameter("give messages as arguments or with --file, not both")
    if bodies and bodies != ["-"]:
        return _repeated([body.encode(errors="surrogateescape") for body in bodies], count), len(bodies) * count
    if count != 1:
        raise typer.BadParameter("--count repeats messages given as arguments; lines are sent once")
    if file is not None and file != "-":
        # Opened here, so that a missing file is told before anything is asked of a broker.
        return _lines(os.open(Path(file), os.O_RDONLY)), None
    if not bodies and file is None and sys.stdin.isatty():
        raise typer.BadParameter("nothing to send: give messages as arguments, or '-' to type one on each line")
    return _lines(sys.stdin.fileno()), None


def _repeated(bodies: list[bytes], count: int) -> Iterator[list[bytes]]:
    # In few chunks, because each is sent by itself; and never all at once, because a count may be millions.
    rounds = max(1, BATCH // len(bodies))
    for start in range(0, count, rounds):
        yield bodies * min(rounds, count - start)


def _lines(descriptor: int) -> Iterator[list[bytes]]:
    """Lines of a file or a pipe without their ends, those that came together in one list."""
    rest = b""
    while chunk := os.read(descriptor, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]
