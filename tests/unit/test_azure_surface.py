"""kafkabus has azure-servicebus's public names, with their members, parameters and defaults; differences are listed."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/explanation/surface.md"
MODULES = ["", ".aio", ".management", ".aio.management", ".amqp", ".exceptions"]
"""Modules of both packages."""
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def names_of(module: Any) -> list[str]:
    """Return the public names of a module; if it does not list them, those that it defines."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("azure")
    ]
    return sorted(getattr(module, "__all__", None) or own)


def members_of(kind: type[Any]) -> set[str]:
    """Return the public members of a class; attributes of its instances count if the class names them."""
    named = {name for one in kind.__mro__ for name in getattr(one, "__annotations__", {})}
    named |= {one.name for one in fields(kind)} if is_dataclass(kind) else set()
    set_by_init: set[str] = set()
    for one in kind.__mro__:
        code = getattr(one.__dict__.get("__init__"), "__code__", None)
        set_by_init |= set(code.co_names) if code is not None else set()
    return {name for name in {*dir(kind), *named, *set_by_init} if not name.startswith("_")}


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    """Return a function's parameters but self and cls; none if it has no readable signature."""
    try:
        return {
            name: one for name, one in inspect.signature(function).parameters.items() if name not in {"self", "cls"}
        }
    except (TypeError, ValueError):
        return {}


def differences_of(name: str, theirs: Any, ours: Any) -> Iterator[tuple[str, str]]:
    """Yield the differences between Azure's name and ours: missing members, and members that ours has otherwise."""
    if not inspect.isclass(theirs):
        yield from differing_parameters(name, theirs, ours)
        return
    if issubclass(theirs, Enum):
        for one in theirs:
            if one.name not in ours.__members__:
                yield f"{name}.{one.name}", "missing"
            elif ours[one.name].value != one.value:
                yield f"{name}.{one.name}", f"is {ours[one.name].value!r}, theirs {one.value!r}"
        return
    there = {member for member in dir(theirs) if not member.startswith("_")}
    for member in sorted(there - members_of(ours)):
        yield f"{name}.{member}", "missing"
    for member in sorted({"__init__", *(there & set(dir(ours)))}):
        if callable(getattr(theirs, member)):
            yield from differing_parameters(f"{name}.{member}", getattr(theirs, member), getattr(ours, member))


def differing_parameters(name: str, theirs: Any, ours: Any) -> Iterator[tuple[str, str]]:
    """Yield the parameters of Azure's function that ours lacks, or takes otherwise."""
    here = parameters_of(ours)
    for parameter in parameters_of(theirs).values():
        place, known = f"{name}({parameter.name})", here.get(parameter.name)
        if parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}:
            continue
        if known is None:
            takes_any = any(one.kind is one.VAR_KEYWORD for one in here.values())
            yield place, "taken with all others" if takes_any else "missing"
            continue
        if known.default is not parameter.default and repr(known.default) != repr(parameter.default):
            yield place, f"default {shown(known.default)}, theirs {shown(parameter.default)}"
        if known.kind is known.KEYWORD_ONLY and parameter.kind is not known.KEYWORD_ONLY:
            yield place, "by keyword only"


def shown(default: Any) -> str:
    """Return a default, as the list has it."""
    return "none" if default is inspect.Parameter.empty else re.sub(r" object at 0x\w+", "", repr(default))


def differences() -> dict[str, str]:
    """Return the differences of all public names."""
    found: dict[str, str] = {}
    for suffix in MODULES:
        theirs, ours = (importlib.import_module(f"{package}{suffix}") for package in ("azure.servicebus", "kafkabus"))
        for name in names_of(theirs):
            place = f"{suffix}.{name}".removeprefix(".")
            if inspect.ismodule(getattr(theirs, name)):
                continue
            if not hasattr(ours, name):
                found[place] = "missing"
            else:
                found.update(differences_of(place, getattr(theirs, name), getattr(ours, name)))
    return found


def test_every_difference_is_listed_with_its_reason() -> None:
    """The list has no other entries."""
    found = differences()
    rows = {place: (what.strip(), why.strip()) for place, what, why in ROW.findall(PAGE.read_text())}
    matching = {place: [one for one in found if fnmatchcase(one, place)] for place in rows}
    assert {place: what for place, what in found.items() if not any(place in ones for ones in matching.values())} == {}
    assert [place for place, ones in matching.items() if not ones] == []
    assert [
        (one, found[one]) for place, ones in matching.items() for one in ones if found[one] not in rows[place][0]
    ] == []
    assert all(why for _, why in rows.values())
