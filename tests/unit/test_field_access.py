"""Properties are read and set like dictionaries, as those of azure.servicebus are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from kafkabus import parse_connection_string
from kafkabus.amqp import AmqpMessageHeader
from kafkabus.management import QueueProperties
from kafkabus_mapping.field_access import FieldAccess


@dataclass(kw_only=True)
class Colours(FieldAccess):
    """Colours of some things."""

    grass: str | None = "green"
    sky: str | None = "blue"


EXAMPLES: dict[str, tuple[FieldAccess, str, Any]] = {
    "a dataclass": (Colours(), "sky", "blue"),
    "an AMQP header": (AmqpMessageHeader(priority=4), "priority", 4),
    "a connection string": (
        parse_connection_string("Endpoint=sb://a.b/;SharedAccessSignature=s;EntityPath=q"),
        "entity_path",
        "q",
    ),
}


@pytest.mark.parametrize("what", EXAMPLES)
def test_a_field_is_an_item(what: str) -> None:
    """A field can be looked up, read, set and deleted as an item; other items do not exist."""
    one, name, value = EXAMPLES[what]
    assert name in one
    assert one.has_key(name)
    assert (one[name], one.get(name), dict(one.items())[name]) == (value, value, value)
    assert (list(one.keys()), len(one.values())) == (list(one), len(one))
    one.update({name: "other"})
    assert (one[name], getattr(one, name)) == ("other", "other")
    del one[name]
    assert one[name] is None
    one[name] = value
    assert (one.get("nothing"), "nothing" in one) == (None, False)
    with pytest.raises(KeyError, match="nothing"):
        one["nothing"] = 1
    with pytest.raises(KeyError, match="nothing"):
        one["nothing"]


def test_all_fields_can_be_emptied() -> None:
    """Clearing ends, although there are as many fields as before."""
    colours = Colours()
    colours.clear()
    assert dict(colours) == {"grass": None, "sky": None}


def test_properties_of_entities_are_read_so() -> None:
    """Names and other settings are given as arguments."""
    assert {"name", "lock_duration", "forward_to"} <= set(QueueProperties.field_names())
