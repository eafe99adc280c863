"""Formats of namespaces: the number, the refusal of others, and what makes another number necessary."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kafkabus_mapping import formats
from kafkabus_mapping.formats import READABLE, unreadable, written_format
from kafkabus_mapping.namespaces import NamespaceDescription
from kafkabus_mapping.version import installed_version
from tests.golden.layout import layout

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
LAYOUT = Path(__file__).resolve().parents[1] / "golden" / f"format-{READABLE[-1]}" / "layout.json"


def test_a_namespace_that_is_being_upgraded_is_written_as_before() -> None:
    """Its description names the new format, so that programs that do not read that stop; the field goes with the end."""
    begun = described(2).model_copy(update={"upgrading_from": 1})
    assert (begun.written_format, written_format(begun.model_dump_json())) == (1, 1)
    assert "upgrading_from" not in described(2).model_dump_json()
    assert [written_format(None), *(written_format(described(number).model_dump_json()) for number in (1, 2))] == [
        1,
        1,
        2,
    ]


def described(number: int, author: str = "0.4.0") -> NamespaceDescription:
    """Return a namespace of a format."""
    return NamespaceDescription(created_at=NOW, updated_at=NOW, format=number, format_by=author)


def test_the_layout_of_a_format_does_not_change() -> None:
    """Another version of the same format has to understand everything that is stored, and to be understood.

    If this fails, either raise the format (docs/decisions/0046), or, if each version of this format passes over what is new,
    write the new layout into the file, and say in the commit why that is so.
    """
    assert layout() == json.loads(LAYOUT.read_text(encoding="utf-8"))


def test_the_first_format_is_not_written_down() -> None:
    """Versions before formats had numbers refuse a description that has one; they wrote the first format."""
    assert "format" not in described(1).model_dump_json()
    before = (
        '{"tier":"Standard","partitions":null,"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}'
    )
    assert NamespaceDescription.model_validate_json(before).format == 1
    assert unreadable("shop", before) is None
    assert unreadable("shop", None) is None


@pytest.mark.parametrize(
    ("readable", "stored", "rule"),
    [
        (range(1, 3), 3, "reads formats 1 to 2: upgrade it"),
        (range(1, 2), 2, "reads format 1: upgrade it"),
        (range(3, 5), 2, "reads formats 3 to 4: upgrade the namespace with a version that reads both formats"),
    ],
)
def test_a_format_that_is_not_read_is_named(
    monkeypatch: pytest.MonkeyPatch, readable: range, stored: int, rule: str
) -> None:
    """The error names namespace, both formats, both versions, and what to do."""
    monkeypatch.setattr(formats, "READABLE", readable)
    # Each case has another name, as answers are cached.
    name = f"shop-{readable[0]}-{stored}"
    assert unreadable(name, described(stored).model_dump_json()) == (
        f"namespace {name!r} is stored in format {stored} by kafkabus 0.4.0; this kafkabus {installed_version()} {rule}"
    )


def test_a_format_is_found_in_a_description_that_is_not_understood() -> None:
    """A later format may change all else in it."""
    text = '{"format":7,"format_by":"9.0.0","levels":{"gold":{}}}'
    assert "is stored in format 7 by kafkabus 9.0.0" in (unreadable("shop", text) or "")
