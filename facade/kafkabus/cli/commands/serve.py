"""``kafkabus serve``."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import typer

from kafkabus.cli.connection import GlobalOptions, open_settings
from kafkabus.cli.exits import CommandError, ExitCode
from kafkabus.cli.logs import configure_logs
from kafkabus.cli.serve_settings import ServeSettings
from kafkabus.cli.setting_sources import configured_connection, take_settings

if TYPE_CHECKING:
    from kafkabus.upkeep.endpoint import EndpointOptions

LOGGER = logging.getLogger("kafkabus.upkeep")

app = typer.Typer()


@app.command()
@take_settings(ServeSettings)
def serve(context: typer.Context, wanted: ServeSettings) -> None:
    """Run the upkeep of a namespace until Ctrl-C: it handles messages that expired, were delivered too often or half moved.

    Each namespace needs one upkeep service, and may have several; 'kafkabus up' runs its own.

    An option overrides its environment variable, KAFKABUS_HTTP for --http, and a variable overrides the file.
    """
    from kafkabus.exceptions import ServiceBusError

    options = context.ensure_object(GlobalOptions)
    options.configured = configured_connection(wanted.connection)
    settings = open_settings(context)
    endpoint = _endpoint(wanted)
    configure_logs(wanted.log_format, wanted.log_level, debug=options.debug)
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
