"""Failed attempts to prove a key, counted by address, so that no client can guess keys."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from kafkabus._runtime.networks import network_of

WINDOW: Final = 60.0
"""For how long failures count, in seconds from the first of them on."""
MOST_OF_POLICY: Final = 20
"""After how many failures with a policy an address has to wait for the end of the window to use that policy."""
MOST_OF_ADDRESS: Final = 200
"""After how many failures an address has to wait for the end of the window to use any policy."""
MOST_REMEMBERED: Final = 10_000
"""How many counts are kept; the oldest is given up for a new one."""

_LONGEST: Final = 64
"""The most characters that are kept of an address that is no IP address."""

_Key = tuple[str, "str | None"]


class FailedAttempts:
    """Counts of failed attempts: of each address, and of each address with each policy."""

    def __init__(self) -> None:
        self._counts: OrderedDict[_Key, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def are_too_many(self, address: str, policy: str, now: float) -> bool:
        """Return whether an address has to wait before its next attempt.

        Args:
            address: The client's address.
            policy: The policy; empty for policies that do not exist, which are counted as one.
            now: The time in seconds since 1970.
        """
        source = _source(address)
        return (
            self._count((source, policy), now) >= MOST_OF_POLICY or self._count((source, None), now) >= MOST_OF_ADDRESS
        )

    def add(self, address: str, policy: str, now: float) -> None:
        """Count a failure; arguments as for ``are_too_many``."""
        source = _source(address)
        for key in ((source, policy), (source, None)):
            count = self._count(key, now)
            began = self._counts[key][0] if count else now
            self._counts[key] = (began, count + 1)
        while len(self._counts) > MOST_REMEMBERED:
            self._counts.popitem(last=False)

    def _count(self, key: _Key, now: float) -> int:
        began, count = self._counts.get(key, (now, 0))
        # A clock that was set back ends a window as well.
        if 0 <= now - began < WINDOW:
            return count
        del self._counts[key]
        return 0


def _source(address: str) -> str:
    return network_of((address,)) or address[:_LONGEST]
