"""Reading Redis's replies."""

from __future__ import annotations


def text_of(value: bytes | str | None) -> str:
    """Return a reply as text; an empty text if Redis has none."""
    return value.decode() if isinstance(value, bytes) else value or ""
