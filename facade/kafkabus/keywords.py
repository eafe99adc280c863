"""Keywords that ``azure.servicebus`` takes, or swallows, and that mean nothing here."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

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
        warnings.warn(f"Unsupported keyword args: {', '.join(names)}", stacklevel=3)


def check_timeout(timeout: float | None) -> None:
    """Refuse a timeout that leaves no time.

    Raises:
        ValueError: It is not positive.
    """
    if timeout is not None and timeout <= 0:
        raise ValueError(f"timeout {timeout}: give seconds, more than 0, or None")
