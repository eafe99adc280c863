"""The type of passwords, and of texts that contain a password."""

from __future__ import annotations

from typing import Final

_MASK: Final = "**********"


class Secret:
    """A text that errors, logs and representations do not show; ``reveal`` returns it.

    Pydantic's ``SecretStr`` does the same, but its import takes longer than ``kafkabus status`` takes to run.

    Args:
        text: The text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the library that needs it."""
        return self._text

    def __str__(self) -> str:
        return _MASK

    def __repr__(self) -> str:
        return f"Secret({_MASK!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def reveal_text(value: str | Secret) -> str:
    """Return the text of a value that may be a secret."""
    return value.reveal() if isinstance(value, Secret) else value
