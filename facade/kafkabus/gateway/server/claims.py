"""The claims of one client: tokens that say what it may do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from kafkabus.gateway.amqp.conditions import UNAUTHORIZED_ACCESS, AmqpError
from kafkabus.gateway.claims import Claim, Policies, Right, UnauthorizedError, claim_of, scope_of

MOST_CLAIMS: Final = 10_000
"""The most claims of a client; each is for an audience of its own."""
LONGEST_TIMER: Final = 1e6
"""The longest time that a timer runs, in seconds; claims that last longer are looked at again then."""


class Claims:
    """The claims of a client.

    Args:
        policies: The policies that tokens are checked against; None: they are carried, and not checked.
        on_end: Called when a claim has ended.
    """

    def __init__(self, policies: Policies | None, on_end: Callable[[], None]) -> None:
        self._policies = policies
        self._on_end = on_end
        self._claims: dict[str, Claim] = {}
        self._alarm: asyncio.TimerHandle | None = None

    def put(self, audience: str, token: str) -> None:
        """Take a claim; it replaces an earlier one for the same audience.

        Raises:
            UnauthorizedError: The token is malformed, or the policies refuse it.
        """
        claim = claim_of(self._policies, token, time.time())
        if self._policies is None:
            return
        scope = scope_of(audience)
        if len(self._claims) >= MOST_CLAIMS and scope not in self._claims:
            raise UnauthorizedError(f"a connection has at most {MOST_CLAIMS} claims")
        self._claims[scope] = claim
        self._set_alarm()

    def check(self, path: str, *rights: Right) -> None:
        """Check that the client may do one of several things with an entity.

        Raises:
            AmqpError: No claim allows it.
        """
        if self._policies is None:
            return
        now = time.time()
        refusals = [_refusal(claim, right, path, now) for claim in self._claims.values() for right in rights]
        if None in refusals:
            return
        problem = (
            next(filter(None, reversed(refusals)), "") or f"no claim was put for {path!r}: put a token to $cbs first"
        )
        raise AmqpError(UNAUTHORIZED_ACCESS, problem)

    def close(self) -> None:
        """Forget the claims."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _set_alarm(self) -> None:
        self.close()
        left = min((claim.expires_at for claim in self._claims.values()), default=0.0) - time.time()
        self._alarm = asyncio.get_running_loop().call_later(min(max(left, 0.0), LONGEST_TIMER), self._ended)

    def _ended(self) -> None:
        now = time.time()
        self._claims = {scope: claim for scope, claim in self._claims.items() if claim.expires_at > now}
        self._on_end()
        if self._claims:
            self._set_alarm()


def _refusal(claim: Claim, right: Right, path: str, now: float) -> str | None:
    """Return why a claim does not allow something; None if it does."""
    try:
        claim.require(right, path, now)
    except UnauthorizedError as error:
        return str(error)
    return None
