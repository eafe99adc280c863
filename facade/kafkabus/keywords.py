"""Keywords that ``azure.servicebus`` takes, or swallows, and that mean nothing here."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from types import FrameType

from kafkabus import interrupts

MEANINGLESS = frozenset(
    {
        "api_version",
        "logging_enable",
        "retry_backoff_factor",
        "retry_backoff_max",
        "retry_mode",
        "retry_total",
        "try_timeout",
        "user_agent",
    }
)
"""Nobody misses anything where these do nothing: what cannot be reached is tried again for as long as an operation may take."""


def warn_of(unsupported: Mapping[str, object]) -> None:
    """Name keywords that do nothing to whoever called the caller, so that misspelt ones are noticed."""
    names = sorted(unsupported.keys() - MEANINGLESS)
    if names:
        warn(f"Unsupported keyword args: {', '.join(names)}")


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn the one who called this package, whichever thread does the call."""
    frame = interrupts.origin() or sys._getframe(1)
    while _is_ours(frame) and frame.f_back is not None:
        frame = frame.f_back
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, names.get("__name__"), registry)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "kafkabus"


def check_timeout(timeout: float | None) -> None:
    """Refuse a timeout that leaves no time.

    Raises:
        ValueError: It is not positive.
    """
    if timeout is not None and timeout <= 0:
        raise ValueError(f"timeout {timeout}: give seconds, more than 0, or None")
