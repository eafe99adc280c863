"""Texts of errors that carry, as data, the arguments and calls of the SDK that they name.

To users of the SDK they are plain texts. The command line puts the names of its options and commands in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Term:
    """Words of an error's text that each interface has its own for.

    Attributes:
        name: The argument or the call that the words are about, such as ``session_id``.
        text: The SDK's words; None: the name.
        entity: The path of the entity that the words are about, if they depend on it.
    """

    name: str
    text: str | None = None
    entity: str = ""

    def __str__(self) -> str:
        return self.name if self.text is None else self.text


class ErrorText(str):
    """An error's text, as the SDK's users read it.

    Args:
        *parts: Texts and terms in their order; a part that is an ``ErrorText`` keeps its terms.

    Attributes:
        parts: The texts and terms in their order, without nested texts.
    """

    parts: tuple[str | Term, ...]

    def __new__(cls, *parts: str | Term) -> ErrorText:
        """Return the text of these parts."""
        made = super().__new__(cls, "".join(map(str, parts)))
        flat = [part.parts if isinstance(part, ErrorText) else (part,) for part in parts]
        made.parts = tuple(part for group in flat for part in group)
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments and calls that the text is about."""
        return tuple(part.name for part in self.parts if isinstance(part, Term))

    def with_words(self, find_words: Callable[[Term], str]) -> str:
        """Return the text with other words in place of the SDK's.

        Args:
            find_words: Returns the words for a term.
        """
        return "".join(find_words(part) if isinstance(part, Term) else part for part in self.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.parts


def text_of_error(error: BaseException) -> str:
    """Return an error's text; an ``ErrorText`` if it has one."""
    text = error.args[0] if len(error.args) == 1 else None
    return text if isinstance(text, ErrorText) else str(error)
