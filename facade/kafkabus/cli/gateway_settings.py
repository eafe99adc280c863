"""The settings of ``kafkabus gateway``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from kafkabus.cli.exits import CommandError, ExitCode
from kafkabus.cli.setting_sources import OFF, HttpAddress, LogFormat, LogLevel, Setting, read_address


def _read_port(text: str) -> int | None:
    if text.lower() == OFF:
        return None
    if not text.isdigit() or int(text) > 65_535:
        raise ValueError(f"write a port, 1 to 65535, 0 for any that is free, or {OFF}")
    return int(text)


def _read_number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"write a number from {least} to {most}")
        return int(text)

    return read


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The settings of the gateway.

    Attributes:
        host: The address or name to listen on; empty for all addresses.
        amqp_port: The port for AMQP without TLS; None: there is none.
        tls_cert: The file with the certificate and those that it was signed with; None: there is no TLS.
        tls_key: The file with its key; None: the same file has it.
        tls_port: The port for AMQP with TLS, if there is a certificate.
        http_port: The port of the administration without TLS; None: there is none.
        https_port: The port of the administration with TLS, if there is a certificate; None: there is none.
        policies: The file with the policies that clients' tokens are checked against; None: they are not checked.
        workers: How many processes share the ports.
        metrics: The address of health and metrics; None: there are none.
        max_connections: The most connections of a process.
        idle_timeout: After how many seconds without a frame a client is taken for gone.
        log_format: ``text`` or ``json``.
        log_level: The lowest level of log lines.
        connection: The origin of the connection string in the file of settings, and the string or the file that holds it.

    Raises:
        CommandError: Settings do not fit together.
    """

    host: Annotated[
        str,
        Setting(
            "KAFKABUS_GATEWAY_HOST",
            "HOST",
            "Listen at this address; default {default}, 0.0.0.0 for all.",
            str,
            "127.0.0.1",
        ),
    ]
    amqp_port: Annotated[
        int | None,
        Setting(
            "KAFKABUS_AMQP_PORT",
            "PORT",
            "The port for AMQP without TLS; default {default}, or 'off'.",
            _read_port,
            "5672",
        ),
    ]
    tls_cert: Annotated[
        Path | None,
        Setting("KAFKABUS_TLS_CERT", "FILE", "Serve TLS with this certificate; see 'kafkabus certificate'.", Path),
    ]
    tls_key: Annotated[
        Path | None,
        Setting("KAFKABUS_TLS_KEY", "FILE", "The certificate's key, unless the same file has it.", Path),
    ]
    tls_port: Annotated[
        int | None,
        Setting("KAFKABUS_TLS_PORT", "PORT", "The port for AMQP with TLS; default {default}.", _read_port, "5671"),
    ]
    http_port: Annotated[
        int | None,
        Setting(
            "KAFKABUS_HTTP_PORT",
            "PORT",
            "The port of the administration; default {default}, or 'off'.",
            _read_port,
            "5300",
        ),
    ]
    https_port: Annotated[
        int | None,
        Setting(
            "KAFKABUS_HTTPS_PORT",
            "PORT",
            "The port of the administration with TLS; default none. Most SDKs know only 443.",
            _read_port,
            OFF,
        ),
    ]
    policies: Annotated[
        Path | None,
        Setting(
            "KAFKABUS_POLICIES",
            "FILE",
            "Check clients' keys against the policies in this file; by default, they are not checked.",
            Path,
        ),
    ]
    workers: Annotated[
        int,
        Setting(
            "KAFKABUS_WORKERS",
            "N",
            "How many processes share the ports; default {default}.",
            _read_number(1, 256),
            "1",
        ),
    ]
    metrics: Annotated[
        HttpAddress | None,
        Setting(
            "KAFKABUS_METRICS",
            "HOST:PORT",
            "Answer /livez, /readyz and /metrics at this address; with several processes, each at the next port.",
            read_address,
            OFF,
        ),
    ]
    max_connections: Annotated[
        int,
        Setting(
            "KAFKABUS_MAX_CONNECTIONS",
            "N",
            "The most connections of a process; default {default}.",
            _read_number(1, 1_000_000),
            "10000",
        ),
    ]
    idle_timeout: Annotated[
        int,
        Setting(
            "KAFKABUS_IDLE_TIMEOUT",
            "SECONDS",
            "Expect a sign of each client in this time; default {default}.",
            _read_number(5, 86_400),
            "120",
        ),
    ]
    log_format: LogFormat
    log_level: LogLevel
    connection: Mapping[str, tuple[str, str]] = field(repr=False)

    def __post_init__(self) -> None:
        if self.tls_key is not None and self.tls_cert is None:
            raise CommandError("--tls-key without --tls-cert: give the certificate as well", ExitCode.USAGE)
        if self.amqp_port is None and (self.tls_cert is None or self.tls_port is None):
            raise CommandError(
                "--amqp-port=off, and no TLS: nothing would be served; give --tls-cert, or a port", ExitCode.USAGE
            )
