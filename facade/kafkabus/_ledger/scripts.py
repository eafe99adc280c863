"""The ledger's Lua scripts, loaded from the files beside this module.

A request runs one program, put together from fragments in a fixed order, so that every operation runs in one atomic script
over one fixed set of keys. Redis defines all functions of a program again for each request, which takes longer than most
operations; so the most frequent operations have separate programs, made of the fragments that they need.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

FRAGMENTS = (
    "layout.lua",
    "prelude.lua",
    "postponed.lua",
    "session_index.lua",
    "lease.lua",
    "settle.lua",
    "transfer.lua",
    "transaction.lua",
    "schedule.lua",
    "claim.lua",
    "deferred.lua",
    "inspect.lua",
    "session.lua",
    "session_state.lua",
    "locks.lua",
    "duplicates.lua",
    "checkpoint.lua",
    "request.lua",
)
"""Files of the program that has all operations, in the order in which they are joined."""

_RECEIVING = (
    "layout.lua",
    "prelude.lua",
    "postponed.lua",
    "session_index.lua",
    "lease.lua",
    "settle.lua",
    "claim.lua",
    "request.lua",
)

PROGRAMS = (
    _RECEIVING,
    (*_RECEIVING[:-1], "session.lua", "request.lua"),
    FRAGMENTS,
)
"""Files of each program; programs with fewer operations come first."""

RESTORE = ("layout.lua", "restore.lua")
"""Files of the program that rebuilds a ledger."""

LOOK = ("layout.lua", "prelude.lua", "look.lua")
"""Files of the program by which upkeep looks at a ledger."""

FIGURES = ("layout.lua", "prelude.lua", "figures.lua")
"""Files of the program that returns a ledger's figures for metrics."""

DESCRIBE = ("description_index.lua", "describe.lua")
"""Files of the program that keeps descriptions of entities."""

FIND_DESCRIPTIONS = ("description_index.lua", "find_descriptions.lua")
"""Files of the program that counts and finds descriptions."""

RESERVE = ("description_index.lua", "reserve.lua")
"""Files of the program that reserves room for an entity."""

_DEFINED = re.compile(r"^operations\.(\w+) =", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text and the name by which Redis knows it.

    Attributes:
        text: Lua 5.1.
        sha: Hexadecimal SHA-1 of the text, for ``EVALSHA``.
    """

    text: str
    sha: str


@cache
def request_script(operations: frozenset[str] | None = None) -> Script:
    """Return the shortest program that carries out a request to one ledger.

    Args:
        operations: Names of the operations in the request; by default all that there are.
    """
    programs = _programs()
    wanted = programs[-1][1] if operations is None else operations
    return next((script for script, defined in programs if wanted <= defined), programs[-1][0])


def request_scripts() -> list[Script]:
    """Return all programs for requests."""
    return [script for script, _ in _programs()]


@cache
def create_script() -> Script:
    """Return the script that creates a ledger if there is none."""
    return _script(_read("create.lua"))


@cache
def restore_script() -> Script:
    """Return the script that rebuilds a ledger from a checkpoint."""
    return _script("\n".join(map(_read, RESTORE)))


@cache
def look_script() -> Script:
    """Return the script by which upkeep looks at a ledger."""
    return _script("\n".join(map(_read, LOOK)))


@cache
def figures_script() -> Script:
    """Return the script that returns a ledger's figures for metrics."""
    return _script("\n".join(map(_read, FIGURES)))


@cache
def not_as_written_script() -> Script:
    """Return the script that finds ledgers that were changed since upkeep wrote them down."""
    return _script(_read("not_as_written.lua"))


@cache
def heartbeat_script() -> Script:
    """Return the script by which receiving clients know of each other."""
    return _script(_read("heartbeat.lua"))


@cache
def describe_script() -> Script:
    """Return the script that keeps descriptions of entities."""
    return _script("\n".join(map(_read, DESCRIBE)))


@cache
def find_descriptions_script() -> Script:
    """Return the script that counts the entities, and finds those whose names begin with a text."""
    return _script("\n".join(map(_read, FIND_DESCRIPTIONS)))


@cache
def reserve_script() -> Script:
    """Return the script that reserves room for an entity that is to be created."""
    return _script("\n".join(map(_read, RESERVE)))


@cache
def let_go_script() -> Script:
    """Return the script that ends a client's turn."""
    return _script(_read("release_lock.lua"))


@cache
def _programs() -> list[tuple[Script, frozenset[str]]]:
    """Return each program with the operations that it has."""
    scripts = [_script("\n".join(map(_read, names))) for names in PROGRAMS]
    return [(script, frozenset(_DEFINED.findall(script.text))) for script in scripts]


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return resources.files("kafkabus._ledger").joinpath("lua").joinpath(name).read_text(encoding="utf-8")
