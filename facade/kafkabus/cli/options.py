"""Arguments and options that several commands have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated

import typer

from kafkabus._core.enums import ServiceBusSubQueue
from kafkabus.cli.durations import parse_duration, parse_moment

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY", help="Name of the queue, or TOPIC/Subscriptions/SUBSCRIPTION.", show_default=False
    ),
]

DestinationArgument = Annotated[
    str, typer.Argument(metavar="ENTITY", help="Name of the queue or topic.", show_default=False)
]

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON; --output json does the same.")]

JsonLinesOption = Annotated[
    bool,
    typer.Option("--json", help="Print a JSON object per message, with its properties; --output json does the same."),
]

DeadLetterOption = Annotated[bool, typer.Option("--dead-letter", help="Use the queue's dead-letter queue.")]

TransferDeadLetterOption = Annotated[
    bool, typer.Option("--transfer-dead-letter", help="Use the queue of messages that could not be forwarded.")
]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation, not even in a terminal.")]


def given_values(texts: Sequence[str], option: str) -> dict[str, str | int | float | bool]:
    """Return names and values: ``NAME=TEXT``, or ``NAME:=JSON`` for a number, true or false.

    Args:
        texts: The arguments of the option.
        option: The option, for errors.

    Raises:
        typer.BadParameter: An argument is not a name with a value.
    """
    values: dict[str, str | int | float | bool] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in {"", ":"}:
            raise typer.BadParameter(f"{option} {text!r}: write NAME=TEXT, or NAME:=VALUE for a number, true or false")
        values[name.removesuffix(":")] = _json_value(value, option, text) if name.endswith(":") else value
    return values


def _json_value(value: str, option: str, text: str) -> str | int | float | bool:
    try:
        read = json.loads(value)
    except ValueError:
        read = None
    if not isinstance(read, (str, int, float)):
        raise typer.BadParameter(
            f"{option} {text!r}: {value!r} is no number, no quoted text, and neither true nor false"
        )
    return read


def sub_queue(dead_letter: bool, transfer_dead_letter: bool) -> ServiceBusSubQueue | None:
    """Return the sub-queue that two options select.

    Raises:
        typer.BadParameter: Both options are given.
    """
    if dead_letter and transfer_dead_letter:
        raise typer.BadParameter("--dead-letter and --transfer-dead-letter are different queues: choose one")
    if dead_letter:
        return ServiceBusSubQueue.DEAD_LETTER
    return ServiceBusSubQueue.TRANSFER_DEAD_LETTER if transfer_dead_letter else None


def duration_option(text: str, *names: str) -> object:
    """Return an option that takes a duration.

    Args:
        text: The help text.
        *names: The option's names; by default from the parameter's name.
    """
    return typer.Option(*names, parser=_duration, metavar="DURATION", help=text, show_default=False)


def moment_option(text: str, *names: str) -> object:
    """Return an option that takes a time.

    Args:
        text: The help text.
        *names: The option's names; by default from the parameter's name.
    """
    return typer.Option(*names, parser=_moment, metavar="TIME", help=text, show_default=False)


def _moment(text: str) -> datetime:
    try:
        return parse_moment(text, datetime.now(timezone.utc))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
