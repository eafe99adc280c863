"""The settings of ``kafkabus gateway``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkabus.cli.exits import CommandError, ExitCode
from kafkabus.cli.setting_sources import LOG_SETTINGS, OFF, HttpAddress, Setting, http_address, read_values

AMQP_PORT = 5_672
TLS_PORT = 5_671
HTTP_PORT = 5_300
HTTPS_PORT = 443


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The settings of the gateway.

    Attributes:
        host: The address or name to listen on; empty for all addresses.
        amqp_port: The port for AMQP without TLS; None: there is none.
        tls_port: The port for AMQP with TLS, if there is a certificate.
        http_port: The port of the administration without TLS; None: there is none.
        https_port: The port of the administration with TLS, if there is a certificate; None: there is none.
        tls_cert: The file with the certificate and those that it was signed with; None: there is no TLS.
        tls_key: The file with its key; None: the same file has it.
        policies: The file with the policies that clients' tokens are checked against; None: they are not checked.
        workers: How many processes share the ports.
        metrics: The address of health and metrics; None: there are none.
        max_connections: The most connections of a process.
        idle_timeout: After how many seconds without a frame a client is taken for gone.
        log_format: ``text`` or ``json``.
        log_level: The lowest level of log lines.
        connection: The origin of the connection string in the file of settings, and the string or the file that holds it.
    """

    host: str
    amqp_port: int | None
    tls_port: int | None
    http_port: int | None
    https_port: int | None
    tls_cert: Path | None
    tls_key: Path | None
    policies: Path | None
    workers: int
    metrics: HttpAddress | None
    max_connections: int
    idle_timeout: int
    log_format: str
    log_level: str
    connection: Mapping[str, tuple[str, str]]


def _port(text: str) -> int | None:
    if text.lower() == OFF:
        return None
    if not text.isdigit() or int(text) > 65_535:
        raise ValueError(f"write a port, 1 to 65535, 0 for any that is free, or {OFF}")
    return int(text)


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"write a number from {least} to {most}")
        return int(text)

    return read


SETTINGS: Mapping[str, Setting] = {
    "host": Setting("KAFKABUS_GATEWAY_HOST", "127.0.0.1", str),
    "amqp-port": Setting("KAFKABUS_AMQP_PORT", str(AMQP_PORT), _port),
    "tls-port": Setting("KAFKABUS_TLS_PORT", str(TLS_PORT), _port),
    "http-port": Setting("KAFKABUS_HTTP_PORT", str(HTTP_PORT), _port),
    "https-port": Setting("KAFKABUS_HTTPS_PORT", OFF, _port),
    "tls-cert": Setting("KAFKABUS_TLS_CERT", None, Path),
    "tls-key": Setting("KAFKABUS_TLS_KEY", None, Path),
    "policies": Setting("KAFKABUS_POLICIES", None, Path),
    "workers": Setting("KAFKABUS_WORKERS", "1", _number(1, 256)),
    "metrics": Setting("KAFKABUS_METRICS", OFF, http_address),
    "max-connections": Setting("KAFKABUS_MAX_CONNECTIONS", "10000", _number(1, 1_000_000)),
    "idle-timeout": Setting("KAFKABUS_IDLE_TIMEOUT", "120", _number(5, 86_400)),
    **LOG_SETTINGS,
}
"""The settings by their names in the file, which are those of the options."""


def read_options(
    options: Mapping[str, str | None], environment: Mapping[str, str], file: Path | None = None
) -> GatewayOptions:
    """Return the settings; see ``read_values``.

    Raises:
        CommandError: A value breaks its rule, the file cannot be read, a member or a variable is misspelt, or settings do not
            fit together.
    """
    values, connection = read_values(SETTINGS, options, environment, file)
    found = GatewayOptions(**values, connection=connection)
    if found.tls_key is not None and found.tls_cert is None:
        raise CommandError("--tls-key without --tls-cert: give the certificate as well", ExitCode.USAGE)
    if found.amqp_port is None and (found.tls_cert is None or found.tls_port is None):
        raise CommandError(
            "--amqp-port=off, and no TLS: nothing would be served; give --tls-cert, or a port", ExitCode.USAGE
        )
    return found
