"""``kafkabus gateway``."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

import typer

from kafkabus.cli.connection import GlobalOptions, find_connection_string
from kafkabus.cli.exits import CommandError, ExitCode
from kafkabus.cli.gateway_settings import GatewayOptions
from kafkabus.cli.logs import configure_logs
from kafkabus.cli.setting_sources import configured_connection, take_settings
from kafkabus.cli.terminal import flush, say, write

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from kafkabus.gateway.announcement import Bound
    from kafkabus.gateway.process import Ports
    from kafkabus.gateway.server.settings import GatewaySettings

LOGGER = logging.getLogger("kafkabus.gateway")

app = typer.Typer()


@app.command()
@take_settings(GatewayOptions)
def gateway(context: typer.Context, wanted: GatewayOptions) -> None:
    """Let applications with Azure's SDKs use a namespace, until Ctrl-C: they connect over AMQP, as to Service Bus.

    Prints the connection string to give to them. Run upkeep beside it: 'kafkabus serve', or 'kafkabus up'.
    """
    options = context.ensure_object(GlobalOptions)
    options.configured = configured_connection(wanted.connection)
    connection_string = find_connection_string(context)
    configure_logs(wanted.log_format, wanted.log_level, debug=options.debug)
    ports, settings = _ports(wanted), _settings(wanted)
    _check_free(ports)
    if wanted.workers > 1:
        from kafkabus.gateway.workers import Workers

        shared = Workers(
            wanted.workers, partial(_work, wanted, debug=options.debug), connection_string, ports, settings
        )
        _announce(wanted, shared.bound)
        shared.run()
    else:
        _serve(connection_string, ports, settings, wanted, debug=options.debug)


def _work(
    wanted: GatewayOptions,
    connection_string: str,
    ports: Ports,
    settings: GatewaySettings,
    lifeline: Connection,
    *,
    debug: bool,
) -> None:
    """Be one of several processes."""
    configure_logs(wanted.log_format, wanted.log_level, debug=debug)
    _serve(connection_string, ports, settings, None, debug=debug, lifeline=lifeline.fileno())


def _serve(
    connection_string: str,
    ports: Ports,
    settings: GatewaySettings,
    announced: GatewayOptions | None,
    *,
    debug: bool,
    lifeline: int | None = None,
) -> None:
    """Be a gateway until a signal, or the end of its lifeline; print the connection string if the options are given."""
    from kafkabus.exceptions import ServiceBusError
    from kafkabus.gateway.process import serve

    on_ready = None if announced is None else partial(_announce, announced)
    try:
        asyncio.run(serve(connection_string, ports, settings, on_ready, lifeline))
    except (ServiceBusError, OSError) as error:
        if debug:
            raise
        LOGGER.error("gateway_failed error=%s", error)
        raise typer.Exit(ExitCode.FAILED) from error


def _ports(wanted: GatewayOptions) -> Ports:
    try:
        from kafkabus.gateway.process import Ports
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the gateway needs {error.name}, which is not installed: pip install 'kafkabus[gateway]'"
        ) from error
    ports = Ports(
        wanted.host,
        wanted.amqp_port,
        wanted.tls_port,
        wanted.http_port,
        wanted.https_port,
        wanted.tls_cert,
        wanted.tls_key,
        metrics=None if wanted.metrics is None else (wanted.metrics.host, wanted.metrics.port),
    )
    ports.context()
    return ports


def _check_free(ports: Ports) -> None:
    """Check that no port is that of the gateway of ``kafkabus up``, also while that one is being started again.

    Raises:
        CommandError: One is.
    """
    try:
        from kafkabus.embedded.state import live_states
    except ModuleNotFoundError:
        return  # The extra embedded is not installed.
    from kafkabus.gateway.announcement import EVERYWHERE

    wanted = {ports.amqp, ports.tls, ports.http, ports.https} - {None, 0}
    for state in live_states():
        if not (state.exposure or ports.host in {"127.0.0.1", "localhost", *EVERYWHERE}):
            continue  # That one listens on the loopback address alone.
        taken = sorted(wanted & {*state.gateway_ports}, key=str)
        if taken:
            raise CommandError(
                f"port {taken[0]} is that of the gateway that 'kafkabus up' runs, with its data in {state.data}. Applications "
                f"connect to that one with:\n{state.amqp}\nFor another gateway, choose ports with --amqp-port and --http-port"
            )


def _settings(wanted: GatewayOptions) -> GatewaySettings:
    from kafkabus.gateway.amqp.limits import Limits
    from kafkabus.gateway.sas_tokens import Policies
    from kafkabus.gateway.server.settings import GatewaySettings

    return GatewaySettings(
        limits=Limits(idle_ms=wanted.idle_timeout * 1000),
        connections=wanted.max_connections,
        policies=None if wanted.policies is None else Policies.load(wanted.policies),
    )


def _announce(wanted: GatewayOptions, bound: Bound) -> None:
    """Print the connection string that applications use."""
    from kafkabus.gateway.announcement import connection_string, hints, unchecked_addresses, warning

    write(connection_string(wanted.host, bound, checked=wanted.policies is not None))
    flush()
    say(hints(bound))
    unchecked = [] if wanted.policies is not None else unchecked_addresses(wanted.host, bound)
    if unchecked:
        say(warning(unchecked, "--policies has the gateway check keys"))
