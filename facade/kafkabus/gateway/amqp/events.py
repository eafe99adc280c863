"""Events of a connection: what its peer did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import Composite, Disposition, Open, Transfer


class Event:
    """Something that the peer did."""

    __slots__ = ()


@dataclass(slots=True)
class Opened(Event):
    """The peer opened the connection."""

    open: Open


@dataclass(slots=True)
class LinkAttached(Event):
    """The peer attaches a link: ``accept`` or ``refuse`` it."""

    link: Link


@dataclass(slots=True)
class LinkFlowed(Event):
    """The peer gave a link that we send on another credit, or asked for its use."""

    link: Link


@dataclass(slots=True)
class Delivered(Event):
    """A message came as a whole."""

    link: Link
    delivery: IncomingDelivery


@dataclass(slots=True)
class Disposed(Event):
    """The peer reported the state of deliveries that it received and that are not settled.

    Attributes:
        link: Their link.
        deliveries: The deliveries.
        state: Their state.
        settled: Whether the peer has settled them.
    """

    link: Link
    deliveries: list[OutgoingDelivery]
    state: Any
    settled: bool


@dataclass(slots=True)
class Discarded(Event):
    """Something that has a state went to a link that is gone; the peer did not know that yet, or the link went with it.

    Attributes:
        state: The state of a message that came, or of one that was sent.
    """

    state: Any


@dataclass(slots=True)
class LinkDetached(Event):
    """A link is gone, by itself or with its session; the peer has its answer."""

    link: Link
    error: Any = None


@dataclass(slots=True)
class Closed(Event):
    """The connection is over: send what is left of the output, then close the socket."""

    error: AmqpError | None = None
    by_peer: Any = None


def discard(performative: Composite) -> list[Event]:
    """Return the events of a performative for a link or a session that is gone."""
    state = performative.state if isinstance(performative, (Transfer, Disposition)) else None
    return [] if state is None else [Discarded(state)]
