"""The client's side of a connection to the gateway's engine, for tests: it writes frames, and reads those that come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from kafkabus.gateway.amqp.connection import Connection
from kafkabus.gateway.amqp.events import Event, LinkAttached
from kafkabus.gateway.amqp.frames import (
    AMQP_HEADER,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    FrameReader,
    frame_of,
)
from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import (
    Attach,
    Begin,
    Composite,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
)
from kafkabus.gateway.server.logins import MECHANISMS

P = TypeVar("P", bound=Composite)
E = TypeVar("E", bound=Event)


class Talk:
    """A conversation with an engine.

    Args:
        limits: The engine's bounds.
        mechanisms: The mechanisms of logins that it offers.
        login: The engine's arguments of logins.

    Attributes:
        engine: The engine.
        frames: The frames that the engine sent, and that no test took yet.
        headers: The protocol headers that the engine sent.
        sent: All bytes that were given to the engine.
    """

    def __init__(self, limits: Limits | None = None, mechanisms: Sequence[str] = MECHANISMS, **login: Any) -> None:
        self.engine = Connection("gateway", mechanisms, limits, **login)
        self.frames: list[Frame] = []
        self.sent = b""
        self.headers: list[bytes] = []
        self._heard = b""

    def give(self, data: bytes) -> list[Event]:
        """Give bytes to the engine; return its events."""
        self.sent += data
        events = list(self.engine.receive(data))
        self.take()
        return events

    def take(self) -> None:
        """Take what the engine has to say."""
        self._heard += self.engine.output.take()
        while len(self._heard) >= 8:
            size = 8 if self._heard.startswith(b"AMQP") else int.from_bytes(self._heard[:4], "big")
            piece, self._heard = self._heard[:size], self._heard[size:]
            if piece.startswith(b"AMQP"):
                self.headers.append(piece)
            else:
                reader = FrameReader(1 << 20)
                reader.feed(piece)
                frame = reader.frame()
                assert frame is not None
                self.frames.append(frame)

    def say(self, performative: Composite, payload: bytes = b"", channel: int = 0) -> list[Event]:
        """Say something to the engine; return its events."""
        return self.give(frame_of(channel, performative.encoded(), payload))

    def heard(self, kind: type[P]) -> list[P]:
        """Take the performatives of a kind that the engine sent."""
        found = [frame.performative for frame in self.frames if isinstance(frame.performative, kind)]
        self.frames = [frame for frame in self.frames if not isinstance(frame.performative, kind)]
        return found

    def open(self, **fields: Any) -> Open:
        """Open the connection; return the engine's answer."""
        self.give(SASL_HEADER)
        self.give(frame_of(0, SaslInit("ANONYMOUS").encoded(), kind=SASL_FRAME))
        self.give(AMQP_HEADER)
        self.frames.clear()
        self.say(Open("client", **fields))
        (answer,) = self.heard(Open)
        return answer

    def begin(self, channel: int = 0, window: int = 100) -> Begin:
        """Begin a session; return the engine's answer."""
        self.say(Begin(None, 0, window, window), channel=channel)
        (answer,) = self.heard(Begin)
        return answer

    def attach(self, handle: int = 0, *, receives: bool, channel: int = 0, **fields: Any) -> Link:
        """Attach a link; return the engine's."""
        attach = Attach(f"link-{handle}", handle, receives, source=Source("q"), target=Target("q"), **fields)
        attach.initial_delivery_count = None if receives else 0
        (event,) = self.say(attach, channel=channel)
        assert isinstance(event, LinkAttached)
        return event.link

    def flow(self, handle: int, credit: int, **fields: Any) -> list[Event]:
        """Give a link credit."""
        known: dict[str, Any] = {"next_incoming_id": 0, "incoming_window": 100, "outgoing_window": 100, **fields}
        return self.say(Flow(handle=handle, link_credit=credit, **known))


def only(events: list[Event], kind: type[E]) -> E:
    """Return the only event, which is of a kind."""
    (event,) = events
    assert isinstance(event, kind)
    return event
