"""The states of connections, sessions and links: the drawn tables are those of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from kafkabus.gateway.amqp.connection import Connection
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.session import Session

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "states.md"


@pytest.mark.parametrize(
    ("name", "transitions"),
    [("Connection", Connection.TRANSITIONS), ("Session", Session.TRANSITIONS), ("Link", Link.TRANSITIONS)],
)
def test_the_drawn_transitions_are_those_of_the_code(
    name: str, transitions: Mapping[tuple[Enum, Enum], tuple[Any, Enum]]
) -> None:
    """In their order."""
    _, _, table = PAGE.read_text().partition(f"| {name} | Input | Action | Then |\n|---|---|---|---|\n")
    rows = re.findall(r"\| (.+?) \| (.+?) \| .+? \| (.+?) \|", table.partition("\n\n")[0])
    assert rows == [(state.value, given.value, then.value) for (state, given), (_, then) in transitions.items()]
