"""Objects whose fields can also be read and set like the items of a dictionary, as in the models of azure.servicebus."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import fields
from typing import Any


class FieldAccess(MutableMapping[str, Any]):
    """A dataclass that is also a mapping of its fields: their number is fixed, and deleting a field sets it to None."""

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def __getitem__(self, key: str) -> Any:
        if key not in self.field_names():
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self.field_names():
            raise KeyError(f"{key!r}: choose from {', '.join(self.field_names())}")
        setattr(self, key, value)

    def __delitem__(self, key: str) -> None:
        self[key] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.field_names())

    def __len__(self) -> int:
        return len(self.field_names())

    def keys(self) -> list[str]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the names of the fields as a list, as azure.servicebus does."""
        return list(self.field_names())

    def values(self) -> list[Any]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the values of the fields as a list."""
        return [getattr(self, key) for key in self.field_names()]

    def items(self) -> list[tuple[str, Any]]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the names and values of the fields as a list."""
        return [(key, getattr(self, key)) for key in self.field_names()]

    def has_key(self, k: str) -> bool:
        """Return whether there is a field of this name."""
        return k in self.field_names()

    def clear(self) -> None:
        """Set all fields to None."""
        self.update(dict.fromkeys(self))
