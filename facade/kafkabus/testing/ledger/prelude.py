"""Operations on a ledger in memory, and what all of them share; see ``lua/prelude.lua``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkabus.testing.ledger.layout import MemoryLedger

Arguments = dict[str, Any]
"""An operation as the script reads it: ``op``, its name, and its own arguments."""
Reply = dict[str, Any]
"""The script's reply to an operation."""
Run = Callable[[MemoryLedger, Arguments], Reply]
"""A function that carries out an operation on a ledger, and returns the reply."""


def refused_copies(ledger: MemoryLedger) -> list[tuple[int, int]]:
    """Return the offsets of messages whose copies their destinations refuse, and the copies' sizes in bytes."""
    return [(offset, size) for offset, size in ledger.late.items() if size]
