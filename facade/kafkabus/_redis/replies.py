"""Reading Redis's replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_of(value: bytes | str | None) -> str:
    """Return a reply as text; an empty text if Redis has none."""
    return value.decode() if isinstance(value, bytes) else value or ""


def mode_of(info: Mapping[str, Any]) -> str:
    """Return how a server runs by its reply to INFO: ``standalone``, ``cluster`` or ``sentinel``.

    Valkey has another name for it than Redis.
    """
    return str(info.get("redis_mode") or info.get("server_mode") or "standalone")
