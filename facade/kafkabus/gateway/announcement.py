"""A starting gateway's words: the connection string that applications use."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

POLICY = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
"""A key, where keys are not checked: Azure's SDKs want one."""
AMQP_PORT = 5_672
HTTP_PORT = 5_300
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - recognized, not listened on


@dataclass(frozen=True)
class Bound:
    """The ports that a gateway listens on.

    Attributes:
        amqp: The port for AMQP without TLS; None: there is none.
        tls: The port for AMQP with TLS; None: there is none.
        http: The port of the administration without TLS; None: there is none.
        https: The port of the administration with TLS; None: there is none.
    """

    amqp: int | None
    tls: int | None
    http: int | None = None
    https: int | None = None


def connection_string(host: str, bound: Bound, *, checked: bool = False) -> str:
    """Return the connection string for applications on this machine; for others, replace the host.

    Args:
        host: The host that the gateway listens on.
        bound: The ports.
        checked: Whether keys are checked.
    """
    name = "localhost" if host in EVERYWHERE else host
    if ":" in name:
        name = f"[{name}]"
    key = "<key>" if checked else KEY
    policy = "<policy>" if checked else POLICY
    if bound.amqp is None:
        return f"Endpoint=sb://{name}/;SharedAccessKeyName={policy};SharedAccessKey={key}"
    port = "" if bound.amqp == AMQP_PORT else f":{bound.amqp}"
    return f"Endpoint=sb://{name}{port};SharedAccessKeyName={policy};SharedAccessKey={key};UseDevelopmentEmulator=true;"


def hints(bound: Bound) -> str:
    """Return what a user may want to know beside the connection string."""
    lines = ["\nGive that connection string to applications that use Azure's SDKs."]
    if bound.amqp is not None:
        lines.append(f"AMQP without TLS:           port {bound.amqp}")
    if bound.tls is not None:
        lines.append(f"AMQP with TLS:              port {bound.tls}, without UseDevelopmentEmulator=true")
    for name, port in (("HTTP", bound.http), ("HTTPS", bound.https)):
        if port is not None:
            lines.append(f"{f'Administration over {name}:':<28}port {port}")
    lines.append("Stop it with:               Ctrl-C")
    return "\n".join(lines)


def unchecked_addresses(host: str, bound: Bound) -> list[str]:
    """Return the addresses of a gateway without policies that other machines may use without a key.

    Args:
        host: The host that the gateway listens on.
        bound: The ports.
    """
    if host == "localhost" or _is_loopback(host):
        return []
    names = ("AMQP", "AMQP with TLS", "administration", "administration with TLS")
    ports = (bound.amqp, bound.tls, bound.http, bound.https)
    shown = f"[{host}]" if ":" in host else host or "*"
    return [f"{shown}:{port} ({name})" for name, port in zip(names, ports, strict=True) if port is not None]


def warning(unchecked: Sequence[str], remedy: str) -> str:
    """Return the warning that addresses are open to each client that reaches them, in one line.

    Args:
        unchecked: The addresses, one or more.
        remedy: The remedy, as an imperative.
    """
    *first, last = unchecked
    addresses = f"{', '.join(first)} or {last}" if first else last
    return f"Warning: no key is checked: each client that can reach {addresses} has full rights; {remedy}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
