"""The outcome of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(str, Enum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check.

    Attributes:
        state: How it ended.
        found: The facts that decided, or why there are none.
        remedy: The advice; empty if the state is ``OK``, or to use the check's remedy.
    """

    state: State
    found: str
    remedy: str = ""


def ok(found: str) -> Finding:
    """Return a finding of something as it should be."""
    return Finding(State.OK, found)


def warning(found: str, remedy: str = "") -> Finding:
    """Return a finding of something that works, and may not for long."""
    return Finding(State.WARNING, found, remedy)


def failure(found: str, remedy: str = "") -> Finding:
    """Return a finding of something that does not work."""
    return Finding(State.FAILURE, found, remedy)
