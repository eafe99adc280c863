"""The formats of namespaces: which one a namespace is stored in, and which ones this version reads.

A format is one number for all that a namespace stores: records and their headers, descriptions, checkpoints, markers, states
and ledgers. The namespace's own description names it. That description stays a JSON object under the same key of the same
topic in all formats, so that each version finds the number before it reads anything else.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from kafkabus_mapping.version import installed_version

FIRST = 1
"""The format of a namespace whose description names none, or that has no description."""
LATEST = 2
"""The format of new namespaces; it has all that the first one has, and more."""
READABLE = range(FIRST, LATEST + 1)
"""The formats that this version reads and writes."""


@lru_cache(maxsize=64)
def unreadable(namespace: str, description: str | None) -> str | None:
    """Return why this version must neither read nor write a namespace, as text for an error; None if it may.

    Args:
        namespace: The name of the namespace.
        description: The namespace's own description, as it is stored; None if the namespace has none.
    """
    stored = _to_stored(description)
    number, author = stored.get("format", FIRST), stored.get("format_by") or "another version"
    if number in READABLE:
        return None
    known = f"format {READABLE[0]}" if len(READABLE) == 1 else f"formats {READABLE[0]} to {READABLE[-1]}"
    remedy = "upgrade it" if number > READABLE[-1] else "upgrade the namespace with a version that reads both formats"
    return (
        f"namespace {namespace!r} is stored in format {number} by kafkabus {author}; this kafkabus {installed_version()} "
        f"reads {known}: {remedy}"
    )


@lru_cache(maxsize=64)
def written_format(description: str | None) -> int:
    """Return the format that programs write to a namespace; see ``NamespaceDescription.written_format``.

    Args:
        description: The namespace's own description, as it is stored; None if the namespace has none.
    """
    stored = _to_stored(description)
    number: int = stored.get("upgrading_from") or stored.get("format", FIRST)
    return number


def needs_latest(what: str, namespace: str) -> str:
    """Return the error text for something that a namespace of an earlier format cannot store.

    Args:
        what: The thing that cannot be stored, as a sentence begins.
        namespace: The name of the namespace.
    """
    return (
        f"{what} needs format {LATEST}, and namespace {namespace!r} is stored in an earlier one: upgrade all programs that "
        "use it, and run 'kafkabus namespace upgrade'"
    )


def _to_stored(description: str | None) -> dict[str, Any]:
    stored: dict[str, Any] = {} if description is None else json.loads(description)
    return stored
