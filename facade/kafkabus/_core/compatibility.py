"""Keywords that ``azure.servicebus`` takes, or swallows, and that mean nothing here."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from types import FrameType

from kafkabus._runtime import interrupts

MEANINGLESS = frozenset(
    {
        *("api_version", "logging_enable", "user_agent", "try_timeout"),
        *("retry_backoff_factor", "retry_backoff_max", "retry_mode", "retry_total"),
        *(
            "transport_type",
            "uamqp_transport",
            "http_proxy",
            "custom_endpoint_address",
            "connection_verify",
            "ssl_context",
        ),
        *("socket_timeout", "keep_alive", "idle_timeout", "max_message_size", "prefetch"),
    }
)
"""Keywords that are ignored without a warning, because an application misses nothing: the connection string has the addresses
and TLS options of Kafka and Redis, and clients retry servers that they cannot reach for as long as an operation may take."""


def warn_unsupported(unsupported: Mapping[str, object]) -> None:
    """Warn the caller's caller of keywords that do nothing, with the nearest that the caller takes: they may be misspelt."""
    names = sorted(unsupported.keys() - MEANINGLESS)
    if names:
        code = sys._getframe(1).f_code
        known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        close = {name: get_close_matches(name, known, 1) for name in names}
        shown = [f"{name} (did you mean {found[0]}?)" if found else name for name, found in close.items()]
        warn(f"Unsupported keyword args: {', '.join(shown)}")


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the code that called this package, whichever thread runs the call."""
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
