"""Requests of tests to a gateway, and the parts of its answers that they look at."""

from __future__ import annotations

from typing import Any

from kafkabus.gateway.amqp.performatives import Composite, Declare, Declared, Discharge
from kafkabus_mapping.amqp.sections import Sections, encode_sections
from kafkabus_mapping.amqp.types import Int
from tests.amqp_client import AmqpClient, Delivered, Link

MANAGEMENT = "/$management"


def message(body: bytes | str = b"x", **sections: Any) -> bytes:
    """Return an encoded message."""
    return encode_sections(Sections(data=[body.encode() if isinstance(body, str) else body], **sections))


async def received(link: Link, count: int = 1) -> list[Delivered]:
    """Return the next messages of a link."""
    link.grant(count)
    return [await link.receive() for _ in range(count)]


async def operation(
    client: AmqpClient,
    name: str,
    body: Any,
    entity: str = "q",
    of_link: str | None = None,
    state: Composite | None = None,
) -> tuple[int, Any]:
    """Ask for an operation on an entity; return the status and the answer's body, or the condition of its error."""
    handle = {"q": 100, "s": 110}.get(entity, 120)
    options = {"operation": f"com.microsoft:{name}"}
    if of_link is not None:
        options["associated-link-name"] = of_link
    answer = await client.ask(f"{entity}{MANAGEMENT}", body, options, base=handle, state=state)
    told = answer.application_properties
    assert answer.properties["correlation_id"] == "m"
    assert type(told["statusCode"]) is Int
    return told["statusCode"], answer.value if told["statusCode"] < 400 else told["errorCondition"]


async def declared(link: Link) -> bytes:
    """Begin a transaction; return its id."""
    outcome = await link.send(encode_sections(Sections(value=Declare().described())))
    assert isinstance(outcome, Declared)
    return outcome.txn_id


def discharge(name: bytes, *, fail: bool = False) -> bytes:
    """Return the message that ends a transaction."""
    return encode_sections(Sections(value=Discharge(name, fail).described()))


async def discharged(link: Link, name: bytes, *, fail: bool = False) -> Any:
    """End a transaction; return the outcome."""
    return await link.send(discharge(name, fail=fail))
