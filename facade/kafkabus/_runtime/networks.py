"""The networks under which clients count if they are counted by their addresses."""

from __future__ import annotations

import ipaddress
from typing import Final

_NETWORK_BITS: Final = 64
"""The bits of an IPv6 address that its client cannot choose."""


def network_of(client: object) -> str:
    """Return what stands for a client in counts by address.

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
