"""Free ports, for servers that are started with a given port."""

from __future__ import annotations

import itertools
import os
import secrets

from kafkabus.embedded.ports import ReservedPort

_LOWEST = 10_000
"""Runtimes that choose their ports choose from 20,000 on."""
_PORTS_OF_A_PROCESS = 600
_PROCESSES = 16
_STEP = 4
"""A cluster's brokers take the ports that follow the one that is given."""

_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
_begin = _STEP * secrets.randbelow(_PORTS_OF_A_PROCESS // _STEP)
_candidates = (
    _LOWEST + _process * _PORTS_OF_A_PROCESS + (_begin + _STEP * number) % _PORTS_OF_A_PROCESS
    for number in itertools.count()
)


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now, and that no runtime chooses and no outgoing connection gets.

    Each process of the tests has its own, and takes the longest unused ones first.
    """
    return [_free_port() for _ in range(count)]


def _free_port() -> int:
    for candidate, _ in zip(_candidates, range(_PORTS_OF_A_PROCESS // _STEP), strict=False):
        reserved = ReservedPort(candidate)
        reserved.release()
        if reserved.number == candidate:
            return candidate
    raise RuntimeError("None of this process's ports is free: end what listens there.")
