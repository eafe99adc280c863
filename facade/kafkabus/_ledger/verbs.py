"""Ways to settle messages of a lease, by the names that scripts and intents have for them; without I/O."""

from __future__ import annotations

from typing import Literal

PreparedVerb = Literal["complete", "abandon", "defer"]
"""A way that a transaction can prepare."""
SettlementVerb = Literal[PreparedVerb, "release", "renew", "begin_transfer"]
"""A way to take messages out of a lease, or to renew their locks; see ``lua/settle.lua`` and ``lua/transfer.lua``."""
