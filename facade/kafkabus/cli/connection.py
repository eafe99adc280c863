"""The namespace that a command uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kafkabus.cli.exits import CommandError, ExitCode
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from kafkabus_mapping.names import SUBSCRIPTIONS, split_subscription

if TYPE_CHECKING:
    from kafkabus._core.settings import Settings
    from kafkabus._sync.handles.client import ServiceBusClient
    from kafkabus._sync.handles.receiver import ServiceBusReceiver
    from kafkabus.management import (
        QueueRuntimeProperties,
        ServiceBusAdministrationClient,
        SubscriptionRuntimeProperties,
    )

CONNECTION_STRING_FILE_VARIABLE = "KAFKABUS_CONNECTION_STRING_FILE"
"""The environment's variable with the path of a file that holds the connection string, as containers mount secrets."""
ADDRESSES = "KAFKABUS_BOOTSTRAP_SERVERS", "KAFKABUS_REDIS_URL"
"""Environment variables that complement ``CONNECTION_STRING_VARIABLE``."""


@dataclass
class GlobalOptions:
    """The options given before the command.

    Attributes:
        connection_string: The connection string of the namespace, or None.
        connection_string_file: The path of a file that holds it, or None.
        configured: Origin and connection string in the command's file of settings, which count if no option and no variable
            names a namespace; or None.
        debug: Whether an error shows its traceback.
    """

    connection_string: str | None = field(default=None, repr=False)
    connection_string_file: str | None = None
    configured: tuple[str, str] | None = field(default=None, repr=False)
    debug: bool = False


def open_client(context: typer.Context) -> ServiceBusClient:
    """Return a client of the namespace that the command uses.

    Raises:
        CommandError: No namespace is named, or its connection string is malformed.
    """
    from kafkabus._sync.handles.client import ServiceBusClient

    origin, connection_string = _find(context)
    with _name_origin(origin):
        return ServiceBusClient.from_connection_string(connection_string)


def open_administration(context: typer.Context) -> ServiceBusAdministrationClient:
    """Return an administration client of the namespace that the command uses.

    Raises:
        CommandError: No namespace is named, or its connection string is malformed.
    """
    from kafkabus.management import ServiceBusAdministrationClient

    origin, connection_string = _find(context)
    with _name_origin(origin):
        return ServiceBusAdministrationClient.from_connection_string(connection_string)


def receiver_of(client: ServiceBusClient, entity: str, **settings: Any) -> ServiceBusReceiver:
    """Return a receiver of a queue, or of a subscription if ``entity`` is ``<topic>/Subscriptions/<subscription>``.

    Args:
        client: The client.
        entity: The path of the queue or subscription.
        **settings: Arguments of ``ServiceBusClient.get_queue_receiver``.
    """
    names = split_subscription(entity)
    if names is None:
        return client.get_queue_receiver(entity, **settings)
    return client.get_subscription_receiver(*names, **settings)


def counts_of(
    administration: ServiceBusAdministrationClient, entity: str
) -> QueueRuntimeProperties | SubscriptionRuntimeProperties:
    """Return the counts of a queue, or of a subscription if ``entity`` is ``<topic>/Subscriptions/<subscription>``.

    Raises:
        MessagingEntityNotFoundError: The entity does not exist.
    """
    names = split_subscription(entity)
    if names is None:
        return administration.get_queue_runtime_properties(entity)
    return administration.get_subscription_runtime_properties(*names)


def open_settings(context: typer.Context) -> Settings:
    """Return the settings of the namespace that the command uses.

    Raises:
        CommandError: No namespace is named, or its connection string is malformed.
    """
    from kafkabus._core.settings import parse_settings

    origin, connection_string = _find(context)
    with _name_origin(origin):
        return parse_settings(connection_string)


def find_connection_string(context: typer.Context) -> str:
    """Return the connection string of the namespace that the command uses.

    Raises:
        CommandError: No namespace is named, or its connection string is malformed.
    """
    open_settings(context)
    return _find(context)[1]


@contextlib.contextmanager
def explain_missing_entity(
    context: typer.Context, name: str, *, may_create: bool = False
) -> Generator[None, None, None]:
    """If the command's queue, topic or subscription does not exist, raise an error that says what to type.

    Args:
        context: The command's context.
        name: The entity's name, as it was typed.
        may_create: Whether to create it is a remedy, as it is not for a command that deletes or counts.

    Raises:
        CommandError: The entity does not exist.
        MessagingEntityNotFoundError: The entity exists, but something else that the command names does not.
    """
    from kafkabus._core.nearest import nearest_name
    from kafkabus.exceptions import MessagingEntityNotFoundError

    try:
        yield
    except MessagingEntityNotFoundError as error:
        with open_administration(context) as administration:
            topics = [topic.name for topic in administration.list_topics()]
            kinds = {queue.name.lower(): "queue" for queue in administration.list_queues()}
            kinds |= dict.fromkeys(map(str.lower, topics), "topic")
            subscriptions = [
                f"{topic}{SUBSCRIPTIONS}{subscription.name}"
                for topic in topics
                for subscription in administration.list_subscriptions(topic)
            ]
        names = [*kinds, *subscriptions]
        near, of_topic = nearest_name(name, names), SUBSCRIPTIONS.lower() in name.lower()
        group, kind = context.parent.info_name if context.parent else None, kinds.get(name.lower())
        if kind is not None and group in {"queue", "topic"} and group != kind:
            raise CommandError(
                f"{name!r} is a {kind} and no {group}: 'kafkabus {kind} {context.info_name} {name}'", ExitCode.NOT_FOUND
            ) from error
        if name.lower() in {known.lower() for known in names}:
            raise
        shown = "see what there is with 'kafkabus queue list' and 'kafkabus topic list'"
        if near is not None:
            remedy = f"did you mean {near!r}?"
        elif of_topic:
            remedy = f"see what there is with 'kafkabus subscription list {name.partition('/')[0]}'"
        elif may_create:
            remedy = f"create it with 'kafkabus queue create {name}' or 'kafkabus topic create {name}', or {shown}"
        else:
            remedy = shown
        kind = "subscription" if of_topic else "queue or topic"
        raise CommandError(f"there is no {kind} {name!r}: {remedy}", ExitCode.NOT_FOUND) from error


def given_connection(text: tuple[str, str | None], file: tuple[str, str | None]) -> tuple[str, str] | None:
    """Return the origin of a connection string, for errors, and the string; None if neither it nor a file is given.

    Args:
        text: The name of what gives the string, and the string.
        file: The name of what gives a file that holds the string, and the file's path.

    Raises:
        CommandError: Both are given, or the file cannot be read or is empty.
    """
    (name, string), (file_name, path) = text, file
    if string is not None and path is not None:
        raise CommandError(f"{name} and {file_name} both name a namespace: give one of them", ExitCode.USAGE)
    if string is not None:
        return name, string
    return None if path is None else (f"{file_name}={path!r}", _read_secret(file_name, path))


def _read_secret(name: str, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CommandError(
            f"{name}={path!r}: cannot be read: {error.strerror}; check the path and its rights"
        ) from error
    except UnicodeDecodeError:
        # Its message and its cause would show the bytes.
        raise CommandError(
            f"{name}={path!r}: is no UTF-8 text: write the connection string there, and no more"
        ) from None
    if not text:
        raise CommandError(f"{name}={path!r}: is empty: write the connection string there")
    return text


def _find(context: typer.Context) -> tuple[str, str]:
    """Return the source of the connection string, for errors, and the connection string."""
    given = context.find_object(GlobalOptions) or GlobalOptions()
    named = (
        given_connection(
            ("--connection-string", given.connection_string), ("--connection-string-file", given.connection_string_file)
        )
        or given_connection(
            (CONNECTION_STRING_VARIABLE, os.environ.get(CONNECTION_STRING_VARIABLE) or None),
            (CONNECTION_STRING_FILE_VARIABLE, os.environ.get(CONNECTION_STRING_FILE_VARIABLE) or None),
        )
        or given.configured
    )
    if named is not None:
        return named
    addresses = [name for name in ADDRESSES if os.environ.get(name)]
    if addresses:
        raise CommandError(
            f"{' and '.join(addresses)}: these give the addresses of Kafka and Redis, but name no namespace; set "
            f"{CONNECTION_STRING_VARIABLE} too, or unset it to use what 'kafkabus up' runs"
        )
    running = _find_running()
    if running is not None:
        return "kafkabus up", running
    raise CommandError(
        "no namespace: none runs on this machine, and none was named. Start one with 'kafkabus up --detach', or name one: "
        f"set {CONNECTION_STRING_VARIABLE}, or write 'kafkabus --connection-string … COMMAND'"
    )


def _find_running() -> str | None:
    try:
        from kafkabus.embedded import default_data_folder, status
    except ModuleNotFoundError:
        # If the embedded runtime's libraries are missing, no namespace was started with them.
        return None
    running = status(default_data_folder())
    return None if running is None else running.connection_string


@contextlib.contextmanager
def _name_origin(origin: str) -> Generator[None, None, None]:
    try:
        yield
    except ValueError as error:
        raise CommandError(f"{origin}: {error}") from error
