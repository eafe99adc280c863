"""The connections of an HTTP server: how many there are, also from one address, and how long a client may make them wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from kafkabus._runtime.networks import network_of
from kafkabus._runtime.turns import Turns

TLS_WITHIN = 10.0
"""Within how many seconds a client has to agree on TLS; its connection is counted only then."""
PIECE = 1_024
"""How many bytes are read before it is seen whether it is the turn of others."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Bounds of a server's connections.

    A connection beyond a bound ends the oldest one that serves no request, from the same address if that has too many.

    Attributes:
        total: The most connections.
        by_address: The most connections from one address.
        rest_within: Within how many seconds of its answer the body of a request has to end.
        head_within: Within how many seconds of its connection, or of its first byte, the head of a request has to be there.
        read_within: Within how many seconds a client has to read an answer for which the socket has no room.
        longest: After how many seconds a connection ends, whatever its client does; None: never.
    """

    total: int = 576
    by_address: int = 288
    head_within: float = 10.0
    rest_within: float = 2.0
    read_within: float = 30.0
    longest: float | None = None


class OpenConnections:
    """The open connections of a server.

    Args:
        limits: Their bounds.

    Attributes:
        limits: Their bounds.
        turns: The turns in which requests are read.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.turns = Turns()
        # By address, each the oldest first.
        self._open: dict[str, dict[HttpConnection, None]] = {}

    def add(self, connection: HttpConnection) -> None:
        """Add a connection, and end another one if there are too many."""
        same = self._open.setdefault(connection.address, {})
        same[connection] = None
        if len(same) > self.limits.by_address:
            self._end_oldest(same)
        elif sum(map(len, self._open.values())) > self.limits.total:
            by_size = sorted(self._open.values(), key=len, reverse=True)
            self._end_oldest(next(group for group in by_size if any(member.is_waiting for member in group)))

    def discard(self, connection: HttpConnection) -> None:
        """Forget a connection."""
        same = self._open.get(connection.address, {})
        same.pop(connection, None)
        if not same:
            self._open.pop(connection.address, None)

    def _end_oldest(self, group: dict[HttpConnection, None]) -> None:
        """End the oldest connection that serves no request; the newest serves none yet."""
        oldest = next(connection for connection in group if connection.is_waiting)
        self.discard(oldest)
        oldest.transport.abort()


class HttpConnection(H11Protocol):
    """A connection whose client cannot keep it for nothing.

    Args:
        *args: Those of the original.
        connections: The open connections of the server.
        **options: Those of the original.

    Attributes:
        address: The client's address, or its network; see ``network_of``.
    """

    address = ""

    def __init__(self, *args: Any, connections: OpenConnections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._open = connections
        self._unread = bytearray()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether it serves no request now."""
        # uvicorn's annotation leaves out that there is no cycle before the first request.
        cycle = getattr(self, "cycle", None)
        return cycle is None or cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether it serves no request, and its client has all of the last answer."""
        return self.is_waiting and not self.transport.get_write_buffer_size()

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the original declares it
        """Begin to serve."""
        super().connection_made(transport)
        self.address = network_of(self.client)
        self._open.add(self)
        self._await_head()
        self._end_after("connection", self._open.limits.longest)

    @override
    def data_received(self, data: bytes) -> None:
        """Read a request while it is this client's turn: its chunks may have a byte each."""
        self._unread += data
        self._open.turns.begin(self)

    def step(self) -> bool:
        """Read a piece of what came; return whether there was one, and no answer has to come before it."""
        if not self._unread or self.transport.is_closing():
            return False
        if not self.is_waiting and self.conn.their_state is not h11.SEND_BODY:
            # A later request: it would be read in one go after the answer.
            return False
        piece = bytes(self._unread[:PIECE])
        del self._unread[:PIECE]
        super().data_received(piece)
        self._await_head()
        return True

    def end_turn(self, *, is_through: bool) -> None:
        """Receive no more before what came was read."""
        if self.transport.is_closing():
            self._unread.clear()
        elif self._unread or not is_through:
            self.transport.pause_reading()
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def fail(self) -> None:
        """End the connection."""
        self.transport.abort()

    @override
    def on_response_complete(self) -> None:
        """Take the next request; the body of this one has to end soon."""
        super().on_response_complete()
        self._open.turns.begin(self)
        if self.conn.their_state is h11.SEND_BODY:
            self._end_after("rest", self._open.limits.rest_within)

    @override
    def pause_writing(self) -> None:
        """Have the application wait, but not for ever."""
        super().pause_writing()
        self._end_after("answer", self._open.limits.read_within)

    @override
    def resume_writing(self) -> None:
        """Have the application go on."""
        super().resume_writing()
        self._cancel("answer")

    @override
    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that is idle; the original waits for a client that does not read the last answer."""
        super().timeout_keep_alive_handler()
        self._end_after("close", self._open.limits.read_within)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._open.discard(self)
        self._open.turns.leave(self)
        for timer in self._timers.values():
            timer.cancel()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        """Begin to wait for the head of a request, go on waiting, or end that if it came."""
        if self.conn.their_state is not h11.SEND_BODY:
            self._cancel("rest")
        if self.conn.their_state is not h11.IDLE:
            self._cancel("head")
        elif "head" not in self._timers:
            self._end_after("head", self._open.limits.head_within)

    def _end_after(self, what: str, seconds: float | None) -> None:
        self._cancel(what)
        if seconds is not None:
            self._timers[what] = self.loop.call_later(seconds, self.transport.abort)

    def _cancel(self, what: str) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()


class RequestLimit:
    """An application that serves a number of requests at a time, also from one address; others are answered with 503.

    Args:
        app: The application.
        most: The most requests.
        by_address: The most requests from one address.
        is_spared: Returns whether a request is served at any time, and not counted.
    """

    def __init__(self, app: ASGIApp, most: int, by_address: int, is_spared: Callable[[Scope], bool]) -> None:
        self._app = app
        self._most = most
        self._by_address = by_address
        self._is_spared = is_spared
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http" or self._is_spared(scope):
            await self._app(scope, receive, send)
            return
        address = network_of(scope.get("client"))
        if self._running.total() >= self._most or self._running[address] >= self._by_address:
            await _refuse(send)
            return
        self._running[address] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running[address] -= 1
            if not self._running[address]:
                del self._running[address]


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"1"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b"Too many requests are served now: ask again later"})
