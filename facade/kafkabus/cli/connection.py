"""Which namespace a command is about."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

import typer

from kafkabus.cli.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from kafkabus.client import ServiceBusClient
    from kafkabus.connection_string import Settings
    from kafkabus.management import ServiceBusAdministrationClient

VARIABLE = "KAFKABUS_CONNECTION_STRING"
"""Environment variable that names the namespace where no option does."""
ADDRESSES = "KAFKABUS_BOOTSTRAP_SERVERS", "KAFKABUS_REDIS_URL"
"""Environment variables that go with it."""


@dataclass
class GlobalOptions:
    """What was said before the command.

    Attributes:
        connection_string: The namespace, or None.
        debug: Whether an error shows its traceback.
    """

    connection_string: str | None = None
    debug: bool = False


def open_client(context: typer.Context) -> ServiceBusClient:
    """A client of the namespace that the command is about.

    Raises:
        CommandError: It is not said which, or what says so is malformed.
    """
    from kafkabus.client import ServiceBusClient

    origin, connection_string = _find(context)
    with _blaming(origin):
        return ServiceBusClient.from_connection_string(connection_string)


def open_administration(context: typer.Context) -> ServiceBusAdministrationClient:
    """An administration client of the namespace that the command is about.

    Raises:
        CommandError: It is not said which, or what says so is malformed.
    """
    from kafkabus.management import ServiceBusAdministrationClient

    origin, connection_string = _find(context)
    with _blaming(origin):
        return ServiceBusAdministrationClient.from_connection_string(connection_string)


def open_settings(context: typer.Context) -> Settings:
    """Where the namespace is that the command is about.

    Raises:
        CommandError: It is not said which, or what says so is malformed.
    """
    from kafkabus.connection_string import parse_settings

    origin, connection_string = _find(context)
    with _blaming(origin):
        return parse_settings(connection_string)


@contextlib.contextmanager
def existing_queue(context: typer.Context, name: str) -> Generator[None, None, None]:
    """Say what to type where the queue that a command is about turns out not to exist.

    Raises:
        CommandError: There is no such queue.
    """
    from kafkabus.exceptions import MessagingEntityNotFoundError

    try:
        yield
    except MessagingEntityNotFoundError as error:
        with open_administration(context) as administration:
            names = [queue.name for queue in administration.list_queues()]
        near = get_close_matches(name, names, n=1)
        remedy = (
            f"did you mean {near[0]!r}?"
            if near
            else f"create it with 'kafkabus queue create {name}', or see what there is with 'kafkabus queue list'"
        )
        raise CommandError(f"there is no queue {name!r}: {remedy}", ExitCode.NOT_FOUND) from error


def _find(context: typer.Context) -> tuple[str, str]:
    """What says where the namespace is, and what it says."""
    given = context.find_object(GlobalOptions)
    if given is not None and given.connection_string is not None:
        return "--connection-string", given.connection_string
    variable = os.environ.get(VARIABLE)
    if variable:
        return VARIABLE, variable
    addresses = [name for name in ADDRESSES if os.environ.get(name)]
    if addresses:
        raise CommandError(
            f"{' and '.join(addresses)}: this says where Kafka and Redis are, and not which namespace is meant; set "
            f"{VARIABLE} too, or unset it to use what 'kafkabus up' runs"
        )
    running = _running()
    if running is not None:
        return "kafkabus up", running
    raise CommandError(
        "no namespace: none runs on this machine, none was named. Start one with 'kafkabus up --detach', or name one: "
        f"set {VARIABLE}, or write 'kafkabus --connection-string … COMMAND'"
    )


def _running() -> str | None:
    try:
        from kafkabus.embedded import default_data_folder, status
    except ModuleNotFoundError:
        # Without the embedded runtime's libraries nothing was started with them.
        return None
    running = status(default_data_folder())
    return None if running is None else running.connection_string


@contextlib.contextmanager
def _blaming(origin: str) -> Generator[None, None, None]:
    try:
        yield
    except ValueError as error:
        raise CommandError(f"{origin}: {error}") from error
