"""``kafkabus serve``."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus._runtime.log_format import JsonFormatter, TextFormatter
from kafkabus._runtime.repetitions import limit_repetitions
from kafkabus.cli.connection import GlobalOptions, given_connection, open_settings
from kafkabus.cli.exits import CommandError, ExitCode
from kafkabus.cli.serve_settings import CONNECTION_MEMBERS, ServeSettings, read_settings

if TYPE_CHECKING:
    from kafkabus.upkeep.endpoint import EndpointOptions

LOGGER = logging.getLogger("kafkabus.upkeep")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

app = typer.Typer()


@app.command()
def serve(
    context: typer.Context,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Answer /livez, /readyz and /metrics at this address, for example 0.0.0.0:9464; 'off', the default: nowhere.",
            show_default=False,
        ),
    ] = None,
    metrics_entities: Annotated[
        str | None,
        typer.Option(
            "--metrics-entities",
            metavar="WHICH",
            help="Entities with metrics of their own: a number, 'none', or a regular expression of their names. Default 1000.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            "--log-format", metavar="FORMAT", help="Write the log as text (the default) or json.", show_default=False
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level", metavar="LEVEL", help="debug, info (the default), warning or error.", show_default=False
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="A TOML file of settings, named as the options.", show_default=False
        ),
    ] = None,
) -> None:
    """Run the upkeep of a namespace until Ctrl-C: it handles messages that expired, were delivered too often or half moved.

    Each namespace needs one upkeep service, and may have several; 'kafkabus up' runs its own.

    An option overrides its environment variable, KAFKABUS_HTTP for --http, and a variable overrides the file.
    """
    from kafkabus.exceptions import ServiceBusError

    given = {"http": http, "metrics-entities": metrics_entities, "log-format": log_format, "log-level": log_level}
    wanted = read_settings(given, os.environ, config)
    options = context.ensure_object(GlobalOptions)
    options.configured = _configured(wanted)
    settings = open_settings(context)
    endpoint = _endpoint(wanted)
    _configure_logs(wanted, debug=options.debug)
    from kafkabus.upkeep import serve as tend

    LOGGER.info("serve_started namespace=%s kafka=%s", settings.namespace, settings.bootstrap_servers)
    try:
        asyncio.run(tend(settings, endpoint))
    except (ServiceBusError, OSError) as error:
        if options.debug:
            raise
        LOGGER.error("serve_failed namespace=%s error=%s", settings.namespace, error)
        raise typer.Exit(ExitCode.FAILED) from error
    LOGGER.info("serve_ended namespace=%s", settings.namespace)


def _configured(wanted: ServeSettings) -> tuple[str, str] | None:
    """Return the origin of the file's connection string, and the string; None if the file has none."""
    text, file = (wanted.connection.get(name, (name, None)) for name in CONNECTION_MEMBERS)
    return given_connection(text, file)


def _endpoint(wanted: ServeSettings) -> EndpointOptions | None:
    """Return the options of the HTTP endpoint; None if there is none.

    Raises:
        CommandError: The libraries of the endpoint are not installed.
    """
    if wanted.http is None:
        return None
    try:
        from kafkabus.upkeep.endpoint import EndpointOptions
    except ModuleNotFoundError as error:
        raise CommandError(
            f"--http: the HTTP endpoint needs {error.name}, which is not installed: pip install 'kafkabus[serve]'"
        ) from error
    entities = wanted.metrics_entities
    return EndpointOptions(wanted.http.host, wanted.http.port, entities.most, entities.pattern)


def _configure_logs(wanted: ServeSettings, *, debug: bool) -> None:
    """Write the log to stderr; of other libraries' lines at most warnings, unless all are wanted."""
    level = logging.DEBUG if debug else _LEVELS[wanted.log_level]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if wanted.log_format == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=level if debug else max(level, logging.WARNING), force=True)
    logging.getLogger("kafkabus").setLevel(level)
    if level > logging.DEBUG:
        limit_repetitions()
