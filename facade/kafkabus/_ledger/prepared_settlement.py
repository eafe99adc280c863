"""Settlements that a transaction prepared in a ledger, as intents describe them; without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from kafkabus._ledger.layout import PREPARED
from kafkabus._ledger.verbs import PreparedVerb

_INTENT = PREPARED.regex


@dataclass(frozen=True, slots=True)
class Prepared:
    """A settlement that waits for the outcome of its transaction; see ``lua/transaction.lua``.

    Attributes:
        verb: How the message is to be settled.
        deferred: Whether the message was set aside before it was locked.
        transaction: The transaction's name.
    """

    verb: PreparedVerb
    deferred: bool
    transaction: str

    @classmethod
    def from_text(cls, intent: str) -> Prepared | None:
        """Read an intent; return None if it is a transfer's."""
        found = _INTENT.fullmatch(intent)
        return None if found is None else cls(cast("PreparedVerb", found[1]), found[3] == "d", found[5])
