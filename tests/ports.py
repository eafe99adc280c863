"""Free ports, for servers that are told their port."""

from __future__ import annotations

from kafkabus.embedded.ports import ReservedPort


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now, and that no outgoing connection gets."""
    reserved = [ReservedPort() for _ in range(count)]
    for port in reserved:
        port.release()
    return [port.number for port in reserved]
