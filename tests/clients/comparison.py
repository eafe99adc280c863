"""Whether a message came as it was sent; the type of a value counts only if both SDKs show it."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

Form: TypeAlias = Mapping[str, Any]
Typed: TypeAlias = Sequence[Any]

_FIXED = {"byte": 1, "int": 4, "long": 8, "short": 2, "ubyte": 1, "uint": 4, "ulong": 8, "ushort": 2}
_NUMBERS = {*_FIXED, "double", "float", "timestamp"}
_DEFAULTS: Mapping[str, Any] = {"durable": False, "priority": 4}


def differences(sent: Form, got: Form) -> list[str]:
    """Return what differs between a message as it was sent and as it came.

    Args:
        sent: The message in the canonical form of the program that sent it.
        got: The message in the canonical form of the program that received it.
    """
    return list(_differences(sent, got))


def _differences(sent: Form, got: Form) -> Iterator[str]:
    if not _same_body(sent["body"], got["body"]):
        yield f"body: sent {sent['body']}, got {got['body']}"
    for name in {*sent["header"], *got["header"]}:
        before, after = (_known(name, form["header"].get(name)) for form in (sent, got))
        if before != after:
            yield f"header {name}: sent {before}, got {after}"
    for section in ("properties", "application-properties", "annotations", "footer"):
        # A program that leaves a property out does so because its SDK has no name for it.
        names = {*sent[section]} & {*got[section]} if section == "properties" else {*sent[section], *got[section]}
        for name in sorted(names):
            before, after = sent[section].get(name), got[section].get(name)
            if not _same_property(before, after):
                yield f"{section} {name}: sent {before}, got {after}"


def _known(name: str, value: Any) -> Any:
    return None if value == _DEFAULTS.get(name) else value


def _same_property(before: Any, after: Any) -> bool:
    if isinstance(before, list) and isinstance(after, list):
        return same(before, after)
    return bool(before == after)


def _same_body(before: Typed, after: Typed) -> bool:
    if before[0] != after[0]:
        return False
    if before[0] == "value":
        return same(before[1], after[1])
    if before[0] == "sequence":
        # Some SDKs show several sequences as one.
        items, others = ([item for section in body[1] for item in section] for body in (before, after))
        return same(["list", items], ["list", others])
    return b"".join(map(base64.b64decode, before[1])) == b"".join(map(base64.b64decode, after[1]))


def same(before: Typed, after: Typed) -> bool:
    """Return whether two values in canonical form can be the same: of a type that both allow, and with the same content."""
    if "described" in (before[0], after[0]) and (
        before[0] != after[0] or isinstance(before[1], str) or isinstance(after[1], str)
    ):
        # Some SDKs show the value alone, and some convert it.
        return True
    kinds = {*before[0].split("|")} & {*after[0].split("|")}
    return any(_same_content(kind, before, after) for kind in kinds)


def _same_content(kind: str, before: Typed, after: Typed) -> bool:
    try:
        return bool(_content(kind, before) == _content(kind, after))
    except (ArithmeticError, ValueError):
        return False  # it cannot be of that type


def _content(kind: str, typed: Typed) -> Any:
    """Return the content of a value, taken for one of a type."""
    names, content = typed
    if kind in {"null", "boolean"}:
        return content
    if kind in {"array", "list"}:
        return [_Same(item) for item in content]
    if kind == "map":
        return sorted(([_Same(key), _Same(item)] for key, item in content), key=lambda pair: _sort_key(pair[0].typed))
    if kind == "described":
        return [_Same(item) for item in content] if isinstance(content, list) else content
    if kind in _NUMBERS and "binary" not in names:
        return Decimal(content)
    raw = _bytes(names, content)
    return int.from_bytes(raw, "big", signed=not kind.startswith("u")) if kind in _FIXED else raw


def _sort_key(typed: Typed) -> bytes:
    names, content = typed
    return _bytes(names, content)


def _bytes(names: str, content: str) -> bytes:
    if "binary" in names:
        return base64.b64decode(content)
    if "uuid" in names:
        try:
            return uuid.UUID(content).bytes
        except ValueError:
            pass
    return content.encode()


class _Same:
    """A value in canonical form, equal to any that can be the same."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, typed: Typed) -> None:
        self.typed = typed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and same(self.typed, other.typed)

    def __repr__(self) -> str:
        return repr(self.typed)
