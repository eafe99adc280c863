"""The ledger's Lua scripts, loaded from the files beside this module.

A request is one program put together from fragments in a fixed order, so that every operation runs in one atomic script
over one fixed set of keys.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

FRAGMENTS = (
    "prelude.lua",
    "index.lua",
    "lease.lua",
    "settle.lua",
    "move.lua",
    "schedule.lua",
    "claim.lua",
    "recall.lua",
    "session.lua",
    "state.lua",
    "detect.lua",
    "keep.lua",
    "request.lua",
)
"""Files of the request program, in the order in which they are joined."""


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
def request_script() -> Script:
    """The program that carries out a request to one ledger."""
    return _script("\n".join(_read(name) for name in FRAGMENTS))


@cache
def create_script() -> Script:
    """The script that creates a ledger where there is none."""
    return _script(_read("create.lua"))


@cache
def restore_script() -> Script:
    """The script that makes a ledger anew of a checkpoint."""
    return _script(_read("restore.lua"))


@cache
def heartbeat_script() -> Script:
    """The script by which receiving clients know of each other."""
    return _script(_read("heartbeat.lua"))


@cache
def describe_script() -> Script:
    """The script that keeps descriptions of entities."""
    return _script(_read("describe.lua"))


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return resources.files("kafkabus.ledger").joinpath("lua").joinpath(name).read_text(encoding="utf-8")
