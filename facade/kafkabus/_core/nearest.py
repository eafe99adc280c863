"""The name of an entity that is nearest to a name that none has; without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from kafkabus_mapping.names import SUBSCRIPTIONS

MOST_NAMES = 1_000
"""Among how many names the nearest one is looked for; among more it would take long."""


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the entity that is meant by a name that no entity has; None if none is near.

    Args:
        name: The name; a subscription's may have a slash alone between its topic and itself.
        names: The names that there are.
    """
    by_short = {_short(candidate): candidate for candidate in names}
    if len(by_short) > MOST_NAMES:
        return None
    near = get_close_matches(_short(name), by_short, n=1)
    return by_short[near[0]] if near else None


def _short(name: str) -> str:
    return name.lower().replace(SUBSCRIPTIONS.lower(), "/")
