"""What a transaction prepared in a ledger, as its intents say it; without I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

_INTENT = re.compile(r"prepared:([a-z]+):([0-9a-f]+):([nds]):(\d+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A settlement that waits until it is known what became of its transaction; see ``lua/transaction.lua``.

    Attributes:
        verb: ``complete``, ``abandon`` or ``defer``.
        deferred: Whether the message was set aside before it was locked.
        transaction: What names the transaction.
    """

    verb: str
    deferred: bool
    transaction: str

    @classmethod
    def from_text(cls, intent: str) -> Prepared | None:
        """Read an intent; None where it is one of a transfer."""
        found = _INTENT.fullmatch(intent)
        return None if found is None else cls(found[1], found[3] == "d", found[5])
