"""The claims of a client: shared access signatures, and the policies that they are checked against.

Without policies, keys are carried and not checked. Policies come from a file, in TOML or, if its name ends in ``.json``, in
JSON, with the same names in both::

    [[policies]]
    name = "RootManageSharedAccessKey"
    primary-key = "…"
    secondary-key = "…"        # optional: a second key, so that keys can be replaced one after the other
    rights = ["Manage"]        # of Send, Listen and Manage; Manage implies the other two
    scope = "orders"           # optional: the only entity that it opens, with all below it; by default the namespace

The functions do no I/O but reading that file, and take the time as an argument. No error shows a key or a signature.
"""

from __future__ import annotations

import base64
import hmac
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kafkabus.gateway.attempts import FailedAttempts
from kafkabus.gateway.scopes import ScopeError, covers, scope_of_audience, scope_of_path, scope_of_setting
from kafkabus_mapping.entities import AccessRights as Right
from kafkabus_mapping.secret import Secret

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "AccessClaim",
    "Policies",
    "Policy",
    "Right",
    "Signature",
    "TooManyAttemptsError",
    "UnauthorizedError",
    "claim_of",
]

SCHEME = "SharedAccessSignature "
"""The beginning of a token that is a shared access signature; in AMQP its declared type does not show this."""
IMPLIED = {
    Right.MANAGE: frozenset({Right.MANAGE, Right.SEND, Right.LISTEN}),
    Right.SEND: frozenset({Right.SEND}),
    Right.LISTEN: frozenset({Right.LISTEN}),
}
"""The rights that each right includes."""

_PARTS = ("sr", "sig", "se", "skn")
_SECONDS = re.compile(r"[0-9]{1,15}")
_SETTINGS = ("name", "primary-key", "secondary-key", "rights", "scope")
_KEYS = ("primary-key", "secondary-key")


class UnauthorizedError(Exception):
    """A client may not do what it asks for; the text says why, for the client."""


class TooManyAttemptsError(UnauthorizedError):
    """Too many attempts with wrong keys came from an address: it has to wait."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A shared access signature, not checked yet.

    Attributes:
        audience: The URI that it is for, encoded as it came.
        policy: The name of the policy whose key signed it.
        expires_at: The end of its validity, in seconds since 1970.
        signed: The text that was signed, as it came.
        signature: The signature, as it came but for its percent-encoding.
    """

    audience: str
    policy: str
    expires_at: float
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    @classmethod
    def parse(cls, token: str) -> Signature:
        """Return the signature in a token.

        Raises:
            UnauthorizedError: The token is no shared access signature, or it is malformed.
        """
        if not token.startswith(SCHEME):
            raise UnauthorizedError(f"the token is no shared access signature: it begins with {SCHEME.strip()!r}")
        parts: dict[str, str] = {}
        for part in token[len(SCHEME) :].strip().split("&"):
            name, _, value = part.partition("=")
            if name not in _PARTS or name in parts or not value:
                raise UnauthorizedError(
                    f"the shared access signature is malformed: it has {', '.join(_PARTS)}, each of them once, joined by '&'"
                )
            parts[name] = value
        missing = [name for name in _PARTS if name not in parts]
        if missing:
            raise UnauthorizedError(f"the shared access signature is malformed: {', '.join(missing)} is missing")
        if not _SECONDS.fullmatch(parts["se"]):
            raise UnauthorizedError("the shared access signature is malformed: se is a number of seconds since 1970")
        return cls(
            audience=parts["sr"],
            policy=unquote(parts["skn"]),
            expires_at=float(parts["se"]),
            # Clients encode the audience differently, and sign it as they encode it.
            signed=f"{parts['sr']}\n{parts['se']}".encode(),
            signature=unquote(parts["sig"]).encode(),
        )

    @property
    def scope(self) -> str:
        """The path that it is for, in lower case; empty for the whole namespace.

        Raises:
            UnauthorizedError: The audience is malformed.
        """
        try:
            return scope_of_audience(unquote(self.audience, errors="strict"))
        except ValueError as error:
            why = error if isinstance(error, ScopeError) else "it is no text in UTF-8"
            raise UnauthorizedError(f"sr of the shared access signature is malformed: {why}") from error

    def is_signed_by(self, key: Secret) -> bool:
        """Return whether a key made this signature, in a time that does not depend on the answer."""
        digest = hmac.digest(key.reveal().encode(), self.signed, "sha256")
        return hmac.compare_digest(base64.b64encode(digest), self.signature)


@dataclass(frozen=True, slots=True)
class AccessClaim:
    """A client's permission.

    Attributes:
        policy: The name of the policy; empty if none was checked.
        rights: The rights that it grants, with those that these imply.
        scope: The path that it opens with all below it, in lower case; empty for the whole namespace.
        expires_at: When it ends, in seconds since 1970; infinity if it does not.
    """

    policy: str
    rights: frozenset[Right]
    scope: str
    expires_at: float

    def require(self, path: str | None, now: float, *rights: Right) -> None:
        """Check that the claim allows an operation now.

        Args:
            path: The path of the entity, or of a part of it such as ``orders/$management``; empty for the namespace; None for
                an operation that concerns no entity.
            now: The time in seconds since 1970.
            rights: The rights of which the operation needs one.

        Raises:
            UnauthorizedError: The claim does not allow it.
        """
        if now >= self.expires_at:
            raise UnauthorizedError("ExpiredToken: the token has expired; make a new one")
        if path is not None and not covers(self.scope, scope_of_path(path)):
            raise UnauthorizedError(f"the token is for {self.scope!r} and does not cover {path!r}")
        if self.rights.isdisjoint(rights):
            needed = " or ".join(right.value for right in rights)
            raise UnauthorizedError(
                f"{needed} claim is required for this operation; policy {self.policy!r} grants "
                f"{', '.join(sorted(right.value for right in self.rights))}"
            )


UNCHECKED = AccessClaim("", IMPLIED[Right.MANAGE], "", math.inf)
"""The claim of a client whose keys are carried and not checked."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A shared access policy.

    Attributes:
        name: Its name, which signatures give.
        keys: Its keys, each of which may sign.
        rights: The rights that it grants, with those that these imply.
        scope: The path that it opens with all below it, in lower case; empty for the whole namespace.
    """

    name: str
    keys: tuple[Secret, ...]
    rights: frozenset[Right]
    scope: str = ""

    def has_key(self, key: str) -> bool:
        """Return whether a key is one of the policy's, in a time that does not depend on the answer."""
        given = key.encode(errors="surrogatepass")
        return True in [hmac.compare_digest(given, secret.reveal().encode()) for secret in self.keys]


class Policies:
    """The policies of a namespace.

    Args:
        policies: The policies; several may have the same name if their scopes differ.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        # The first claim of a token is its widest one.
        self._policies = sorted(policies, key=lambda policy: len(policy.scope))
        self._names = frozenset(policy.name for policy in policies)
        self._failed = FailedAttempts()

    @classmethod
    def load(cls, path: Path) -> Policies:
        """Return the policies in a file.

        Raises:
            ValueError: The file is malformed; the error names it, the place, the rule and the remedy.
            OSError: The file cannot be read.
        """
        return cls(_policies_in(path, _read(path)))

    def verify(self, token: str, now: float, address: str = "") -> AccessClaim:
        """Return the claim of a token, the widest one if there are several.

        Args:
            token: A shared access signature.
            now: The time in seconds since 1970.
            address: The address that the token came from, whose failures are counted; empty: they are not counted.

        Raises:
            TooManyAttemptsError: Too many tokens with wrong signatures came from the address.
            UnauthorizedError: The token is malformed, has expired, or no key of its policy signed it.
        """
        return self._claims(token, now, address)[0]

    def check(
        self, token: str, path: str, now: float, *rights: Right, address: str = "", late: float = 0.0
    ) -> AccessClaim:
        """Return the claim of a token that allows an operation; see ``AccessClaim.require`` and ``verify``.

        Args:
            token: A shared access signature.
            path: The path of the entity.
            now: The time in seconds since 1970.
            rights: The rights of which the operation needs one.
            address: See ``verify``.
            late: For how long a token is accepted after its end, in seconds.

        Raises:
            UnauthorizedError: The token is malformed, has expired, no key of its policy signed it, or it does not allow the
                operation.
        """
        first, *narrower = self._claims(token, now, address, late)
        for claim in narrower:
            try:
                claim.require(path, now - late, *rights)
            except UnauthorizedError:
                continue
            return claim
        first.require(path, now - late, *rights)
        return first

    def log_in(self, name: str, key: str, now: float, address: str = "") -> tuple[AccessClaim, ...]:
        """Return the claims of a client that gives the name and a key of a policy; they do not end.

        Args:
            name: The policy's name; several policies may have it.
            key: The key.
            now: The time in seconds since 1970.
            address: See ``verify``.

        Raises:
            TooManyAttemptsError: Too many wrong keys came from the address.
            UnauthorizedError: No such policy has that key.
        """
        self._check_attempts(name, now, address)
        # All keys of all policies are tried, so that the time does not reveal which names and keys exist.
        opened = [policy for policy in self._policies if policy.has_key(key) and policy.name == name]
        if not opened:
            self._count_failure(name, now, address)
            raise UnauthorizedError("no policy of that name has that key; check both")
        return tuple(AccessClaim(policy.name, policy.rights, policy.scope, math.inf) for policy in opened)

    def has(self, name: str) -> bool:
        """Return whether there is a policy of that name."""
        return name in self._names

    def _check_attempts(self, name: str, now: float, address: str) -> None:
        if address and self._failed.are_too_many(address, name if self.has(name) else "", now):
            raise TooManyAttemptsError("too many wrong keys came from this address: wait a minute, and check the key")

    def _count_failure(self, name: str, now: float, address: str) -> None:
        if address:
            self._failed.add(address, name if self.has(name) else "", now)

    def _claims(self, token: str, now: float, address: str, late: float = 0.0) -> list[AccessClaim]:
        if not token:
            raise UnauthorizedError(
                "the token is missing: send a shared access signature of a policy of this namespace"
            )
        signature = Signature.parse(token)
        if now - late >= signature.expires_at:
            raise UnauthorizedError("ExpiredToken: the token has expired; make a new one")
        self._check_attempts(signature.policy, now, address)
        signers = [
            policy for policy in self._policies if policy.name == signature.policy and _is_signed_by(signature, policy)
        ]
        if not signers:
            self._count_failure(signature.policy, now, address)
            raise UnauthorizedError(
                "InvalidSignature: the token has an invalid signature, or its policy does not exist; check the name and the "
                "key of the policy"
            )
        scope = signature.scope
        claims = [
            AccessClaim(policy.name, policy.rights, max(policy.scope, scope, key=len), signature.expires_at)
            for policy in signers
            if covers(policy.scope, scope) or covers(scope, policy.scope)
        ]
        if not claims:
            raise UnauthorizedError(f"policy {signature.policy!r} does not cover the token's {scope!r}")
        return claims


def claim_of(policies: Policies | None, token: str, now: float, address: str = "") -> AccessClaim:
    """Return the claim of a token; without policies, of any token that is not malformed, or of none.

    Args:
        policies: The policies; None if keys are carried and not checked.
        token: The token; empty if the client gives none.
        now: The time in seconds since 1970.
        address: See ``Policies.verify``.

    Raises:
        UnauthorizedError: The token is malformed, or the policies refuse it.
    """
    if policies is not None:
        return policies.verify(token, now, address)
    if token.startswith(SCHEME.strip()):
        Signature.parse(token)
    return UNCHECKED


def _is_signed_by(signature: Signature, policy: Policy) -> bool:
    # All keys are tried, so that the time does not reveal which one matched.
    return True in [signature.is_signed_by(key) for key in policy.keys]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        loaded = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except UnicodeDecodeError:
        # The errors of decoding and parsing hold the text, and so the keys.
        raise ValueError(
            f"{path}: no text in UTF-8: write the policies in TOML, or in JSON into a file *.json"
        ) from None
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
        place = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(
            f"{path}: no {kind}{place}: write the policies in TOML, or in JSON into a file *.json"
        ) from None
    if not isinstance(loaded, dict):
        raise ValueError(f'{path}: no object: write {{"policies": […]}}')
    return loaded


def _policies_in(path: Path, loaded: Mapping[str, Any]) -> list[Policy]:
    _check_names(str(path), loaded, ("policies",))
    given = loaded.get("policies")
    if not isinstance(given, list) or not given:
        raise ValueError(
            f"{path}: policies: there are none, so that no client has access; write at least one [[policies]]"
        )
    policies = [_policy(f"{path}: policy {number}", table) for number, table in enumerate(given, start=1)]
    known: set[tuple[str, str]] = set()
    for policy in policies:
        if (policy.name, policy.scope) in known:
            raise ValueError(
                f"{path}: there are two policies {policy.name!r} of the same scope: rename one, or give it another scope"
            )
        known.add((policy.name, policy.scope))
    return policies


def _policy(place: str, given: object) -> Policy:
    if not isinstance(given, dict):
        raise ValueError(f"{place}: a policy has the settings {', '.join(_SETTINGS)}")
    settings: dict[str, Any] = given
    _check_names(place, settings, _SETTINGS)
    name = _text(place, settings, "name")
    place = f"{place}, {name!r}"
    keys = [_text(place, settings, which) for which in _KEYS if which in settings or which == "primary-key"]
    scope = _scope(place, _text(place, settings, "scope")) if "scope" in settings else ""
    return Policy(name, tuple(map(Secret, keys)), _rights(place, settings.get("rights")), scope)


def _text(place: str, settings: Mapping[str, Any], name: str) -> str:
    value = settings.get(name)
    if not isinstance(value, str) or not value.strip():
        # The value is not shown: it may be a key.
        raise ValueError(f'{place}: {name} is missing or no text: write {name} = "…"')
    return value


def _scope(place: str, given: str) -> str:
    try:
        return scope_of_setting(given)
    except ScopeError as error:
        raise ValueError(f"{place}: scope={given!r}: {error}; leave the scope out to open all entities") from None


def _rights(place: str, given: object) -> frozenset[Right]:
    choices = {right.value: right for right in Right}
    if not isinstance(given, list) or not given or not all(isinstance(name, str) and name in choices for name in given):
        raise ValueError(f'{place}: rights={given!r}: write a list of {", ".join(choices)}, such as ["Send"]')
    return frozenset[Right]().union(*(IMPLIED[choices[name]] for name in given))


def _check_names(place: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse an unknown setting, which would have no effect."""
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise ValueError(f"{place}: there is no setting {name!r}; {remedy}")
