"""The parts of a namespace that tokens and policies open: paths, and the audiences in which clients write them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

LONGEST_AUDIENCE: Final = 2_048
"""The length of the longest audience, in characters; the longest path has some 400."""

_AUDIENCE: Final = re.compile(
    r"""
    (?: (?P<scheme> [a-z] [a-z0-9+.\-]* ) :// )?
    (?: [a-z0-9_.\-]+ | \[ [0-9a-f:.]+ \] )  (?: : [0-9]{1,5} )?
    (?: / (?P<path> [^?\#]* ) )?
    (?: \? [^\#]* )?
    """,
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_FORMS: Final = "write scheme://host[:port][/path] or host[:port]/path, percent-encoded once"
_NOT_IN_NAMES: Final = frozenset("%\\?#")


class ScopeError(ValueError):
    """An audience or a path is malformed; the error names the value, the rule and the remedy."""


def scope_of_audience(audience: str) -> str:
    """Return the path in an audience, in lower case, to compare it with ``covers``; empty for the whole namespace.

    Hosts are not compared: a gateway has other names than the endpoint in the connection string of a client.

    Args:
        audience: A URI such as ``sb://host:port/orders``. Only a URI without a path is the audience of a whole namespace; the
            scheme of others may be missing.

    Raises:
        ScopeError: The audience is malformed.
    """
    found = _AUDIENCE.fullmatch(audience) if len(audience) <= LONGEST_AUDIENCE else None
    if found is None:
        raise ScopeError(f"audience {audience!r:.80} is malformed: {_FORMS}")
    path = found["path"] or ""
    if not path and found["scheme"] is None:
        raise ScopeError(f"audience {audience!r:.80} has neither a scheme nor a path: {_FORMS}")
    if not path:
        return ""
    try:
        return _check_path(unquote(path, errors="strict").removesuffix("/"))
    except (ScopeError, UnicodeDecodeError) as error:
        raise ScopeError(f"audience {audience!r:.80} has a malformed path: {_FORMS}") from error


def scope_of_setting(path: str) -> str:
    """Return the scope that a policy's setting names, in lower case.

    Args:
        path: The path of an entity, such as ``orders``; slashes around it do not matter.

    Raises:
        ScopeError: The path is malformed; an empty one, too.
    """
    return _check_path(path.strip("/"))


def scope_of_path(path: str) -> str:
    """Return the path of an entity, or of a part of it, to compare it with ``covers``.

    Args:
        path: The path as operations use it: decoded.
    """
    return path.strip("/").lower()


def covers(scope: str, path: str) -> bool:
    """Return whether a path is that of a scope, or below it; both in lower case, as the functions above return them."""
    return not scope or path == scope or path.startswith(f"{scope}/")


def _check_path(path: str) -> str:
    if not all(map(_is_name, path.split("/"))):
        raise ScopeError(f"path {path!r:.80} is malformed: write names, joined by single slashes")
    return path.lower()


def _is_name(segment: str) -> bool:
    return segment.isprintable() and segment.strip() not in {"", ".", ".."} and _NOT_IN_NAMES.isdisjoint(segment)
