"""Requests of tests to a gateway, and the parts of its answers that they look at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkabus import ServiceBusMessageState
from kafkabus._core.entity import Entity
from kafkabus.aio import ServiceBusReceiver
from kafkabus.gateway.amqp.performatives import Composite, Declare, Declared, Discharge
from kafkabus.gateway.server.gateway import Gateway
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp.types import Int
from kafkabus_mapping.names import EntityPath
from tests.amqp_client import PATIENCE, AmqpClient, Delivered, Link

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


async def left(client: AmqpClient, entity: str = "q", *, deferred: bool = True) -> list[bytes]:
    """Return the bodies of messages that are not settled, also of those that are deferred unless ``deferred`` is false."""
    bodies: list[bytes] = []
    number = 1
    while True:
        body = {"message-count": Int(500), "from-sequence-number": number}
        status, found = await operation(client, "peek-message", body, entity)
        if status != 200:
            return bodies
        for one in found["messages"]:
            sections = decode_sections(one["message"])
            annotations = sections.message_annotations
            number = annotations["x-opt-sequence-number"] + 1
            if deferred or annotations["x-opt-message-state"] != ServiceBusMessageState.DEFERRED:
                bodies.append(b"".join(sections.data))


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


async def become(condition: Callable[[], object]) -> None:
    """Wait until something is true of the gateway."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


class Gate:
    """Holds back descriptions of entities, which clients read every five seconds, to delay operations that need one."""

    def __init__(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        catalog = gateway.namespace.context.catalog
        look_up = catalog.entity
        self._held: dict[str, asyncio.Event] = {}
        self._asked: dict[str, asyncio.Event] = {}

        async def late(path: EntityPath, *arguments: Any, **options: Any) -> Entity:
            if path.name in self._held:
                self._asked[path.name].set()
                await self._held[path.name].wait()
            return await look_up(path, *arguments, **options)

        monkeypatch.setattr(catalog, "entity", late)

    def hold(self, name: str = "q") -> None:
        """Hold an entity's descriptions back."""
        self._held[name], self._asked[name] = asyncio.Event(), asyncio.Event()

    async def until_asked(self, name: str = "q") -> None:
        """Wait until something needs a description that is held back."""
        await asyncio.wait_for(self._asked[name].wait(), PATIENCE)

    def release(self, name: str = "q") -> None:
        """Hold an entity's descriptions back no more."""
        self._held.pop(name).set()


class Completions:
    """Holds completions back while ``may_go`` is not set.

    Attributes:
        may_go: Set while completions may go on.
        came: Set when one was asked for.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        complete = ServiceBusReceiver.complete_messages
        self.may_go, self.came = asyncio.Event(), asyncio.Event()

        async def late(receiver: ServiceBusReceiver, *arguments: Any, **options: Any) -> None:
            self.came.set()
            await self.may_go.wait()
            await complete(receiver, *arguments, **options)

        monkeypatch.setattr(ServiceBusReceiver, "complete_messages", late)
