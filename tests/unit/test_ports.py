"""Ports that are reserved for servers."""

from __future__ import annotations

import sys

import pytest

from kafkabus.embedded.ports import ReservedPort
from tests.ports import free_ports


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is merely found free")
def test_a_port_is_reserved_once() -> None:
    """Two runtimes that begin at the same time, whose servers do not listen yet, do not get the same port."""
    (port,) = free_ports(1)
    first, second = ReservedPort(port), ReservedPort(port)
    try:
        assert (first.number, second.number == port) == (port, False)
    finally:
        first.release()
        second.release()
    again = ReservedPort(port)
    again.release()
    assert again.number == port


def test_no_runtime_chooses_a_port_of_the_tests() -> None:
    """A test finds a free port, then starts its server. No runtime chooses it in between."""
    chosen = ReservedPort()
    chosen.release()
    assert max(free_ports(20)) < 20_000 <= chosen.number
