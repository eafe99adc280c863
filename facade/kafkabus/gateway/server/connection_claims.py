"""The claims of one client: the policies and tokens that say what it may do."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from kafkabus.gateway.amqp.conditions import UNAUTHORIZED_ACCESS, AmqpError
from kafkabus.gateway.sas_tokens import AccessClaim, Policies, Right, UnauthorizedError, claim_of
from kafkabus.gateway.scopes import ScopeError, covers, scope_of_audience, scope_of_path

MOST_CLAIMS: Final = 10_000
"""The most claims of a client; each is for another audience."""
LONGEST_TIMER: Final = 60.0
"""The longest time until claims are looked at again, in seconds: the clock may be set before then."""
LONGEST_AUDIENCE: Final = 2_048
"""The longest audience, in characters."""
LONGEST_TOKEN: Final = 8_192
"""The longest token, in characters."""
MOST_CHARACTERS: Final = 1_000_000
"""The most characters that the audiences of a client have together."""


CLAIM_BYTES: Final = 500
"""About how many bytes the gateway keeps for a claim beside its audience."""


class _Group:
    """Claims by their audiences, of which any may allow something: a client may have thousands."""

    __slots__ = ("_claims", "_ends")

    def __init__(self) -> None:
        self._claims: dict[str, AccessClaim] = {}
        self._ends: dict[Right, float] | None = None

    def __len__(self) -> int:
        return len(self._claims)

    def add(self, audience: str, claim: AccessClaim) -> None:
        """Add a claim."""
        self._claims[audience] = claim
        self._ends = None

    def remove(self, audience: str) -> None:
        """Remove a claim."""
        del self._claims[audience]
        self._ends = None

    def grants(self, now: float, rights: tuple[Right, ...]) -> bool:
        """Return whether a claim that has not ended grants one of some rights."""
        if self._ends is None:
            self._ends = {}
            for claim in self._claims.values():
                for right in claim.rights:
                    self._ends[right] = max(claim.expires_at, self._ends.get(right, 0.0))
        return any(now < self._ends.get(right, 0.0) for right in rights)


class Claims:
    """The claims of a client.

    Args:
        policies: The policies that tokens and keys are checked against; None: they are carried, and not checked.
        on_change: Called when a claim has ended, or was replaced by a weaker one.
    """

    def __init__(self, policies: Policies | None, on_change: Callable[[], None]) -> None:
        self._policies = policies
        self._on_change = on_change
        self._claims: dict[str, AccessClaim] = {}
        # By the scopes that they open; those of None are all.
        self._groups: defaultdict[str | None, _Group] = defaultdict(_Group)
        self._characters = 0
        self._login: tuple[AccessClaim, ...] = ()
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
        if scope not in self._claims and len(scope) + self._characters > MOST_CHARACTERS:
            raise UnauthorizedError(f"the audiences of a connection have at most {MOST_CHARACTERS} characters together")
        before = self._claims.get(scope)
        if before is not None:
            self._remove(scope)
        self._add(scope, claim)
        self._set_alarm(claim.expires_at)
        if before is not None and not _includes(claim, before):
            self._on_change()

    @property
    def has_any(self) -> bool:
        """Whether the client has a claim, or needs none."""
        return self._policies is None or bool(self._claims or self._login)

    @property
    def kept_bytes(self) -> int:
        """About how many bytes the gateway keeps for the client's claims."""
        return self._characters + CLAIM_BYTES * len(self._claims)

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
        now = time.time()
        if any(_refusal(claim, path, now, rights) is None for claim in self._login):
            return
        scopes = [None] if path is None else _scopes_over(path)
        if any(scope in self._groups and self._groups[scope].grants(now, rights) for scope in scopes):
            return
        nearest = self._nearest(path)
        raise AmqpError(
            UNAUTHORIZED_ACCESS,
            (nearest and _refusal(nearest, path, now, rights))
            or f"no claim was put for {path or 'any entity'!r}: put a token to $cbs first, or log in by SASL PLAIN",
        )

    def _nearest(self, path: str | None) -> AccessClaim | None:
        """Return the claim that a refusal names: that of the login, or the one whose audience is nearest to a path."""
        if self._login:
            return self._login[0]
        for audience in [] if path is None else _scopes_over(path):
            if audience in self._claims:
                return self._claims[audience]
        return next(iter(self._claims.values()), None)

    def _add(self, audience: str, claim: AccessClaim) -> None:
        self._claims[audience] = claim
        self._characters += len(audience)
        for scope in (claim.scope, None):
            self._groups[scope].add(audience, claim)

    def _remove(self, audience: str) -> None:
        claim = self._claims.pop(audience)
        self._characters -= len(audience)
        for scope in (claim.scope, None):
            self._groups[scope].remove(audience)
            if not self._groups[scope]:
                del self._groups[scope]

    def close(self) -> None:
        """Look at the claims no more; those that are put from now on, too, are not looked at."""
        self._is_closed = True
        self._cancel_alarm()

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self, end: float) -> None:
        """Look at the claims when one ends, or earlier."""
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + min(max(end - time.time(), 0.0), LONGEST_TIMER)
        if self._alarm is None or when < self._alarm.when():
            self._cancel_alarm()
            self._alarm = loop.call_at(when, self._look)

    def _look(self) -> None:
        """Forget the claims that have ended."""
        self._alarm = None
        now = time.time()
        ended = [audience for audience, claim in self._claims.items() if claim.expires_at <= now]
        try:
            if ended:
                self._on_change()
        finally:
            for audience in ended:
                self._remove(audience)
            if self._claims:
                self._set_alarm(min(claim.expires_at for claim in self._claims.values()))


def _scopes_over(path: str) -> list[str]:
    """Return the scopes that cover a path, the nearest first; the last one is that of the whole namespace."""
    scope, found = scope_of_path(path), []
    while scope:
        found.append(scope)
        scope = scope.rpartition("/")[0]
    return [*found, ""]


def _includes(claim: AccessClaim, other: AccessClaim) -> bool:
    """Return whether a claim allows all that another one does, until one of them ends."""
    return claim.rights >= other.rights and covers(claim.scope, other.scope)


def _refusal(claim: AccessClaim, path: str | None, now: float, rights: tuple[Right, ...]) -> str | None:
    """Return why a claim does not allow something; None if it does."""
    try:
        claim.require(path, now, *rights)
    except UnauthorizedError as error:
        return str(error)
    return None
