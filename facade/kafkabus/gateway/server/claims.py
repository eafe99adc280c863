"""The claims of one client: the policies and tokens that say what it may do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

from kafkabus.gateway.amqp.conditions import UNAUTHORIZED_ACCESS, AmqpError
from kafkabus.gateway.claims import Claim, Policies, Right, UnauthorizedError, claim_of
from kafkabus.gateway.scopes import ScopeError, covers, scope_of_audience, scope_of_path

MOST_CLAIMS: Final = 10_000
"""The most claims of a client; each is for an audience of its own."""
LONGEST_TIMER: Final = 60.0
"""The longest time until claims are looked at again, in seconds: the clock may be set meanwhile."""
LONGEST_AUDIENCE: Final = 2_048
"""The longest audience, in characters."""
LONGEST_TOKEN: Final = 8_192
"""The longest token, in characters."""
MOST_CHARACTERS: Final = 1_000_000
"""The most characters that the audiences of a client have together."""


class Claims:
    """The claims of a client.

    Args:
        policies: The policies that tokens and keys are checked against; None: they are carried, and not checked.
        on_change: Called when a claim has ended, or was replaced by a weaker one.
    """

    def __init__(self, policies: Policies | None, on_change: Callable[[], None]) -> None:
        self._policies = policies
        self._on_change = on_change
        self._claims: dict[str, Claim] = {}
        self._login: tuple[Claim, ...] = ()
        self._alarm: asyncio.TimerHandle | None = None
        self._is_closed = False

    def log_in(self, name: str, key: str, address: str) -> None:
        """Take the claims of a policy; they last as long as the connection, whatever tokens are put.

        Raises:
            UnauthorizedError: There is no policy with that name and key, or the address has made too many attempts.
        """
        if self._policies is not None:
            self._login = self._policies.log_in(name, key, time.time(), address)

    def put(self, audience: str, token: str, address: str = "") -> None:
        """Take a token's claim; it replaces an earlier one for the same audience, also for links that are open.

        Args:
            audience: The URI that the client has put it for.
            token: The token.
            address: The client's address, by which wrong signatures are counted.

        Raises:
            UnauthorizedError: The token or the audience is malformed, or the policies refuse it.
        """
        if len(audience) > LONGEST_AUDIENCE or len(token) > LONGEST_TOKEN:
            raise UnauthorizedError(
                f"an audience of {len(audience)} and a token of {len(token)} characters: they have at most {LONGEST_AUDIENCE} "
                f"and {LONGEST_TOKEN}"
            )
        claim = claim_of(self._policies, token, time.time(), address)
        if self._policies is None:
            return
        try:
            scope = scope_of_audience(audience)
        except ScopeError as error:
            raise UnauthorizedError(f"name: {error}") from error
        if len(self._claims) >= MOST_CLAIMS and scope not in self._claims:
            raise UnauthorizedError(f"a connection has at most {MOST_CLAIMS} claims")
        if scope not in self._claims and len(scope) + sum(map(len, self._claims)) > MOST_CHARACTERS:
            raise UnauthorizedError(f"the audiences of a connection have at most {MOST_CHARACTERS} characters together")
        before = self._claims.get(scope)
        self._claims[scope] = claim
        self._set_alarm()
        if before is not None and not _includes(claim, before):
            self._on_change()

    @property
    def has_any(self) -> bool:
        """Whether the client has a claim, or needs none."""
        return self._policies is None or bool(self._claims or self._login)

    def check(self, path: str | None, *rights: Right) -> None:
        """Check that the client may do something now.

        Args:
            path: The path of the entity that it concerns; None if it concerns none.
            rights: The rights of which the client needs one.

        Raises:
            AmqpError: No claim allows it.
        """
        if self._policies is None:
            return
        now, problem = time.time(), ""
        for claim in self._nearest_first(path):
            refusal = _refusal(claim, path, now, rights)
            if refusal is None:
                return
            problem = problem or refusal
        raise AmqpError(
            UNAUTHORIZED_ACCESS,
            problem
            or f"no claim was put for {path or 'any entity'!r}: put a token to $cbs first, or log in by SASL PLAIN",
        )

    def _nearest_first(self, path: str | None) -> Iterator[Claim]:
        """Yield the claims, first those whose audience is that of a path; some of them twice."""
        yield from self._login
        audience = "" if path is None else scope_of_path(path)
        while audience:
            if audience in self._claims:
                yield self._claims[audience]
            audience = audience.rpartition("/")[0]
        yield from self._claims.values()

    def close(self) -> None:
        """Look at the claims no more; those that are put from now on, too, are not looked at."""
        self._is_closed = True
        self._cancel_alarm()

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _set_alarm(self) -> None:
        self._cancel_alarm()
        if self._is_closed:
            return
        left = min((claim.expires_at for claim in self._claims.values()), default=0.0) - time.time()
        self._alarm = asyncio.get_running_loop().call_later(min(max(left, 0.0), LONGEST_TIMER), self._look)

    def _look(self) -> None:
        """Forget the claims that have ended."""
        now = time.time()
        ended = [audience for audience, claim in self._claims.items() if claim.expires_at <= now]
        try:
            if ended:
                self._on_change()
        finally:
            for audience in ended:
                del self._claims[audience]
            if self._claims:
                self._set_alarm()


def _includes(claim: Claim, other: Claim) -> bool:
    """Return whether a claim allows all that another one does, until one of them ends."""
    return claim.rights >= other.rights and covers(claim.scope, other.scope)


def _refusal(claim: Claim, path: str | None, now: float, rights: tuple[Right, ...]) -> str | None:
    """Return why a claim does not allow something; None if it does."""
    try:
        claim.require(path, now, *rights)
    except UnauthorizedError as error:
        return str(error)
    return None
