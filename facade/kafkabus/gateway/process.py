"""A process that is a gateway, or one of several that share their ports: what it listens on, its signals and its end."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kafkabus._runtime.ending import stop_on_signals
from kafkabus._runtime.files import raise_limit
from kafkabus._runtime.garbage import collect_rarely
from kafkabus._runtime.memory import limit_arenas, returning_memory
from kafkabus.gateway.administration import create_app
from kafkabus.gateway.administration import serve as serve_http
from kafkabus.gateway.announcement import Bound
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.settings import GatewaySettings

LOGGER = logging.getLogger("kafkabus.gateway")

END_WITHIN = 8.0
"""How many seconds a process takes at most to end when asked to, even if clients, Kafka or Redis do not answer."""
OTHER_FILES = 1_500
"""How many files a process may need beside its clients' connections: for Kafka, Redis and the administration."""
LATE = "clients, Kafka or Redis did not answer; locks that clients held end by themselves"


@dataclass(frozen=True)
class Ports:
    """The ports of a gateway.

    Attributes:
        host: The address or name; empty for all addresses.
        amqp: The port for AMQP without TLS; None: there is none.
        tls: The port for AMQP with TLS; None: there is none.
        http: The port of the administration without TLS; None: there is none.
        https: The port of the administration with TLS; None: there is none.
        certificate: The file with the certificate and those that it was signed with; None: there is no TLS.
        key: The file with its key; None: the same file has it.
        shared: Whether other processes listen on the same ports.
        metrics: The address and the port of health and metrics; None: there are none.
    """

    host: str
    amqp: int | None
    tls: int | None
    http: int | None = None
    https: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    shared: bool = False
    metrics: tuple[str, int] | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return what encrypts connections; None if there is no certificate.

        Raises:
            OSError: A file cannot be read, or holds no certificate or no key.
        """
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        files = " and ".join(str(file) for file in (self.certificate, self.key) if file is not None)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            raise OSError(
                f"{files}: no certificate with its key, in PEM: {error.reason}; 'kafkabus certificate' makes one"
            ) from error
        except OSError as error:
            raise OSError(
                f"{files}: cannot be read: {error.strerror}; 'kafkabus certificate' makes a certificate"
            ) from error
        return context


async def serve(
    connection_string: str,
    ports: Ports,
    settings: GatewaySettings,
    on_ready: Callable[[Bound], None] | None = None,
    lifeline: int | None = None,
) -> None:
    """Be a gateway until SIGINT or SIGTERM; then close the clients' connections, and end.

    Args:
        connection_string: The namespace, with the addresses of Kafka and Redis.
        ports: The ports to listen on.
        settings: The gateway's settings.
        on_ready: Called with the ports once they are listened on.
        lifeline: The descriptor of a pipe's end: the gateway also ends once the other end is closed.

    Raises:
        OSError: A port cannot be listened on, or a certificate cannot be read.
        ServiceBusError: Kafka or Redis cannot be used.
    """
    limit_arenas()
    settings = replace(settings, connections=_connections(settings.connections))
    stop = stop_on_signals(LOGGER, "gateway", within=END_WITHIN, late=LATE, lifeline=lifeline)
    async with run_gateway(connection_string, ports, settings) as bound, returning_memory():
        collect_rarely()
        LOGGER.info(
            "gateway_started host=%s amqp=%s tls=%s http=%s https=%s",
            ports.host or "*",
            bound.amqp,
            bound.tls,
            bound.http,
            bound.https,
        )
        if on_ready is not None:
            on_ready(bound)
        await stop.wait()
    LOGGER.info("gateway_stopped")


def _connections(wanted: int) -> int:
    """Return how many connections of clients this process may have; if it cannot have all that are wanted, the log says so."""
    files = raise_limit()
    most = max(1, files - min(OTHER_FILES, files // 2))
    if wanted > most:
        LOGGER.warning(
            "few_files limit=%d connections=%d: the system allows no more open files ('ulimit -n'), so no more connections are "
            "taken, although --max-connections is %d",
            files,
            most,
            wanted,
        )
    return min(wanted, most)


@asynccontextmanager
async def run_gateway(connection_string: str, ports: Ports, settings: GatewaySettings) -> AsyncGenerator[Bound]:
    """Run a gateway until the block ends.

    Args:
        connection_string: The namespace, with the addresses of Kafka and Redis.
        ports: The ports to listen on.
        settings: The gateway's settings.

    Raises:
        OSError: A port cannot be listened on, or a certificate cannot be read.
        ValueError: The connection string is malformed.
    """
    tls = ports.context()
    async with AsyncExitStack() as open_ones:
        gateway = await open_ones.enter_async_context(Gateway(connection_string, settings))
        bound: dict[str, int | None] = {}
        for name, port, encrypted in (("amqp", ports.amqp, None), ("tls", ports.tls, tls)):
            is_wanted = port is not None and (name == "amqp" or tls is not None)
            bound[name] = await _listen(gateway, ports, port or 0, encrypted) if is_wanted else None
        for name, port, encrypted in (("http", ports.http, None), ("https", ports.https, tls)):
            is_wanted = port is not None and (name == "http" or tls is not None)
            if is_wanted:
                app = create_app(connection_string, settings.policies)
                server = serve_http(app, ports.host, port or 0, encrypted, share_port=ports.shared)
                bound[name] = (await open_ones.enter_async_context(server)).port
        if ports.metrics is not None:
            await open_ones.enter_async_context(_endpoint(gateway, *ports.metrics))
        yield Bound(**bound)


@asynccontextmanager
async def _endpoint(gateway: Gateway, host: str, port: int) -> AsyncGenerator[None]:
    """Serve health and metrics until the block ends."""
    from prometheus_client import disable_created_metrics

    from kafkabus._runtime.health_endpoint import HealthEndpoint
    from kafkabus.gateway.health import NamespaceHealth
    from kafkabus.gateway.metrics import GatewayMetrics, reasons_of

    # A series for each counter that says when it began, which nothing reads.
    disable_created_metrics()
    metrics, health = GatewayMetrics(gateway), NamespaceHealth(gateway.namespace.administration)
    try:
        async with HealthEndpoint(
            host, port, reasons=lambda: reasons_of(gateway, health), metrics=metrics, option="--metrics", logger=LOGGER
        ):
            yield
    finally:
        metrics.close()


async def _listen(gateway: Gateway, ports: Ports, port: int, tls: ssl.SSLContext | None) -> int:
    try:
        return await gateway.listen(ports.host or None, port, tls, share_port=ports.shared)
    except OSError as error:
        raise OSError(
            f"{ports.host}:{port}: cannot listen there: {error.strerror or error}; choose another address or port"
        ) from error
