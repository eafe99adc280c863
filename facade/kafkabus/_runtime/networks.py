"""Addresses: the networks under which clients are counted, and addresses that mean something else in a container."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Final

_NETWORK_BITS: Final = 64
"""The bits of an IPv6 address that its client cannot choose."""
_LOOPBACK: Final = re.compile(r"(?:^|//|[@,])(localhost|127\.[\d.]+|\[::1\])(?=[:/,]|$)", re.IGNORECASE)
_MARKS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman leave in their containers."""


def is_in_container() -> bool:
    """Return whether this program seems to run in a container of Docker, Podman or Kubernetes."""
    return any(mark.exists() for mark in _MARKS) or "KUBERNETES_SERVICE_HOST" in os.environ


def loopback_hint(addresses: str) -> str:
    """Return what to add to an error about servers that cannot be reached; empty unless one is at the container's own address.

    Args:
        addresses: Addresses as settings have them: a URL, or hosts with ports, joined by commas.
    """
    found = _LOOPBACK.search(addresses)
    if found is None or not is_in_container():
        return ""
    return (
        f" In a container, {found.group(1)} is the container itself: give the server's name in the containers' network, or "
        "host.docker.internal for the machine that runs them."
    )


def network_of(client: object) -> str:
    """Return what represents a client in counts by address.

    Args:
        client: The address of its socket: a tuple that begins with an IP address. Anything else is one client.

    Returns:
        The IPv4 address, or the network of 64 bits of an IPv6 address, in which a client can choose any; else an empty text.
    """
    if not isinstance(client, (tuple, list)) or not client:
        return ""
    try:
        address = ipaddress.ip_address(str(client[0]).partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
