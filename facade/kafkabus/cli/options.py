"""Arguments and options that several commands have."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from kafkabus.cli.durations import parse_duration
from kafkabus.enums import ServiceBusSubQueue

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)]

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]

JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print a JSON object per message, with its properties.")]

DeadLetterOption = Annotated[bool, typer.Option("--dead-letter", help="Of the queue's dead-letter queue.")]

TransferDeadLetterOption = Annotated[
    bool, typer.Option("--transfer-dead-letter", help="Of the queue of messages that could not be forwarded.")
]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, also in a terminal.")]


def sub_queue(dead_letter: bool, transfer_dead_letter: bool) -> ServiceBusSubQueue | None:
    """Which queue two options ask for.

    Raises:
        typer.BadParameter: Both are given.
    """
    if dead_letter and transfer_dead_letter:
        raise typer.BadParameter("--dead-letter and --transfer-dead-letter are different queues: choose one")
    if dead_letter:
        return ServiceBusSubQueue.DEAD_LETTER
    return ServiceBusSubQueue.TRANSFER_DEAD_LETTER if transfer_dead_letter else None


def duration_option(text: str, *names: str) -> object:
    """An option that takes a duration.

    Args:
        text: What is said of it.
        *names: Where they are others than the parameter's.
    """
    return typer.Option(*names, parser=_duration, metavar="DURATION", help=text, show_default=False)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
