"""How much is done of what could be done for any time, such as kills, or stories that Hypothesis makes up.

Every change is tried with a little of it, and always the same: a seed decides. ``make test-all`` does more, and ``make
campaign`` goes on for as long as its option says.
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("KAFKABUS_SEED", "1"))
"""The environment variable ``KAFKABUS_SEED``, or 1."""
THOROUGH = bool(os.environ.get("KAFKABUS_THOROUGH"))
"""Whether the environment variable ``KAFKABUS_THOROUGH`` is set, as in ``make test-all``."""


def effort(usual: int, thorough: int) -> int:
    """How much to do: for every change, or in ``make test-all``."""
    return thorough if THOROUGH else usual
