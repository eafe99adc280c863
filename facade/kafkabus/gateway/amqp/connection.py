"""The engine of one AMQP connection, the server's side: bytes in, events and bytes out; it does no I/O and knows no clock.

The owner gives the engine the bytes that came, handles the events that it returns, and sends what ``take_output`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

from kafkabus.gateway.amqp.conditions import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
)
from kafkabus.gateway.amqp.events import Closed, Event, LinkDetached, Opened
from kafkabus.gateway.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    HEAD_BYTES,
    SASL_FRAME,
    SASL_HEADER,
    SMALLEST_MAX_FRAME,
    Frame,
    FrameReader,
    frame_of,
)
from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.amqp.performatives import (
    Begin,
    Close,
    Composite,
    Detach,
    End,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    error_of,
    fitted,
)
from kafkabus.gateway.amqp.session import Session, discarded

P = TypeVar("P", bound=Composite)

MECHANISMS: Final = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
"""The mechanisms by which clients may log in, unless others are given."""

WRONG_CREDENTIALS: Final = 1
"""The outcome of SASL for a client that is refused for good."""
TRY_LATER: Final = 4
"""The outcome of SASL for a client that may try again."""


class LoginError(AmqpError):
    """A login is refused.

    Attributes:
        code: The outcome of SASL.
    """

    def __init__(self, code: int, description: str) -> None:
        super().__init__(UNAUTHORIZED_ACCESS, description)
        self.code = code


_NUMBER_BYTES: Final = 64
"""How many bytes are counted for a number that is remembered."""


class _Phase(Enum):
    """How far a connection is."""

    HEADER = "header"
    SASL = "sasl"
    SECOND_HEADER = "second header"
    OPEN = "open"
    OPENED = "opened"
    CLOSING = "closing"
    CLOSED = "closed"


class Connection:
    """One connection.

    Args:
        container_id: Our name.
        limits: Bounds.
        mechanisms: The mechanisms of SASL by which the peer may log in.
        log_in: Called with the mechanism and the response of a login; raises ``LoginError`` to refuse it. None: all pass.

    Attributes:
        limits: Bounds.
        sessions: The sessions, by channel.
        peer: The peer's words when it opened the connection; None before.
        partial_bytes: The bytes of messages of which not all frames have come.
        holds: While it is more than 0, the end of a link, a session or the connection is held back, with all that follows it.
        mechanism: The mechanism by which the peer logged in; None without SASL.
        waiting_bytes: The bytes of frames that wait until the peer's sessions take more.
        attach_bytes: The bytes in which the links that are attached were asked for.
        links: How many links there are, of all sessions.
        unsettled: How many deliveries that were sent are not settled, of all sessions.
        unanswered: How many links were detached of which the peer has not said that it knows.
        frame_bytes: About how many bytes of memory the performative takes that is handled.
    """

    def __init__(
        self,
        container_id: str,
        limits: Limits | None = None,
        mechanisms: Sequence[str] = MECHANISMS,
        log_in: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.sessions: dict[int, Session] = {}
        self.peer: Open | None = None
        self.mechanism: str | None = None
        self.holds = 0
        self._held: Frame | None = None
        self.partial_bytes = self.waiting_bytes = self.attach_bytes = self.unanswered = self.frame_bytes = 0
        self.links = self.unsettled = 0
        self._container_id = container_id
        self._mechanisms = tuple(mechanisms)
        self._log_in = log_in
        self._phase = _Phase.HEADER
        # All frames before the connection is open are short.
        self._reader = FrameReader(SMALLEST_MAX_FRAME * 8)
        self._output: list[bytes] = []
        self._sent: list[Any] = []
        # The peer may say more on a channel before it hears, or after it said, that the session is over.
        self._ended: set[int] = set()
        self._peer_frame_bytes = SMALLEST_MAX_FRAME
        self._by_phase: dict[_Phase, Callable[[], list[Event] | None]] = {
            _Phase.HEADER: self._read_header,
            _Phase.SASL: self._read_sasl,
            _Phase.SECOND_HEADER: self._read_header,
            _Phase.OPEN: self._read_frame,
            _Phase.OPENED: self._read_frame,
            _Phase.CLOSING: self._read_frame,
        }

    @property
    def is_closing(self) -> bool:
        """Whether the connection is over, or will be with the peer's answer."""
        return self._phase in {_Phase.CLOSING, _Phase.CLOSED}

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over."""
        return self._phase is _Phase.CLOSED

    @property
    def is_held(self) -> bool:
        """Whether an end of the peer is held back."""
        return self._held is not None

    @property
    def kept_bytes(self) -> int:
        """How many bytes the peer makes the engine keep, output that was not taken left out."""
        forgotten = self.unanswered + len(self._ended)
        return (
            len(self._reader) + self.partial_bytes + self.waiting_bytes + self.attach_bytes + _NUMBER_BYTES * forgotten
        )

    def lose(self) -> None:
        """Forget the messages of which not all frames came, or were sent: the connection is lost."""
        self._reader.clear()
        for session in self.sessions.values():
            session._give_up_waiting()
            for link in session.links.values():
                link._let_go()

    def forget(self) -> None:
        """Forget everything: the owner has let go of the links. Garbage, which has circles, is collected rarely."""
        for session in list(self.sessions.values()):
            self._drop(session)
        self._reader.clear()
        self._output.clear()
        self._phase = _Phase.CLOSED

    def take_output(self) -> bytes:
        """Return the bytes to send, and forget them."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    def take_sent(self) -> list[Any]:
        """Return the contents of settled deliveries that are in the output as a whole, and forget them."""
        sent, self._sent = self._sent, []
        return sent

    def receive(self, data: bytes | memoryview) -> Iterator[Event]:
        """Take bytes that came; yield what the peer did, each before its next step is looked at.

        An error of the peer closes the connection.
        """
        self.feed(data)
        while (events := self.step()) is not None:
            yield from events

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes that came, for ``step``."""
        self._reader.feed(data)

    def step(self) -> list[Event] | None:
        """Look at the next frame; return what the peer did, or None if no frame is there as a whole.

        An error of the peer closes the connection.
        """
        if self.is_closed:
            return None
        try:
            return self._by_phase[self._phase]()
        except AmqpError as error:
            return self._fail(error)

    def _fail(self, error: AmqpError) -> list[Event]:
        if self._phase is _Phase.OPEN:
            self._write_open()
        if self._phase in {_Phase.OPEN, _Phase.OPENED}:
            self._write(Close(error_of(error)))
        return self._over(Closed(error))

    def heartbeat(self) -> None:
        """Send a frame that says nothing, unless the connection is not open."""
        if self._phase is _Phase.OPENED:
            self._output.append(EMPTY_FRAME)

    def close(self, error: AmqpError | None = None) -> None:
        """Close the connection; ``Closed`` comes when the peer has answered."""
        if self._phase is _Phase.OPENED:
            self._write(Close(error_of(error)))
            self._phase = _Phase.CLOSING

    def _over(self, closed: Closed) -> list[Event]:
        events: list[Event] = []
        for session in list(self.sessions.values()):
            events += self._drop(session)
        self._phase = _Phase.CLOSED
        return [*events, closed]

    def _read_header(self) -> list[Event] | None:
        header = self._reader.header()
        if header is None:
            return None
        if header == SASL_HEADER and self._phase is _Phase.HEADER:
            self._output.append(SASL_HEADER)
            self._write_sasl(SaslMechanisms(self._mechanisms))
            self._phase = _Phase.SASL
        elif header == AMQP_HEADER:
            self._output.append(AMQP_HEADER)
            self._phase = _Phase.OPEN
        else:
            # The answer is the header that would have been right.
            self._output.append(SASL_HEADER)
            return self._over(
                Closed(AmqpError(FRAMING_ERROR, f"the peer began with {header!r}, which is not AMQP 1.0"))
            )
        return []

    def _read_sasl(self) -> list[Event] | None:
        try:
            frame = self._reader.frame()
        except AmqpError as error:
            # Its description may hold a key.
            raise AmqpError(error.condition, "the choice of a SASL mechanism is malformed") from None
        if frame is None:
            return None
        init = frame.performative
        if frame.kind != SASL_FRAME or not isinstance(init, SaslInit):
            raise AmqpError(ILLEGAL_STATE, f"{type(init).__name__} in place of the choice of a SASL mechanism")
        try:
            self._check_login(init)
        except LoginError as error:
            self._write_sasl(SaslOutcome(error.code))
            return self._over(Closed(error))
        self.mechanism = init.mechanism
        self._write_sasl(SaslOutcome(0))
        self._phase = _Phase.SECOND_HEADER
        return []

    def _check_login(self, init: SaslInit) -> None:
        if init.mechanism not in self._mechanisms:
            raise LoginError(WRONG_CREDENTIALS, f"no SASL mechanism {init.mechanism!r:.40} is offered")
        if self._log_in is not None:
            self._log_in(init.mechanism, init.initial_response or b"")

    def _read_frame(self) -> list[Event] | None:
        frame, self._held = self._held or self._reader.frame(), None
        if frame is None:
            return None
        if self.holds and isinstance(frame.performative, (Detach, End, Close)):
            self._held = frame
            return None
        if frame.kind != AMQP_FRAME:
            raise AmqpError(FRAMING_ERROR, "a SASL frame in an open connection")
        return self._handle(frame)

    def _handle(self, frame: Frame) -> list[Event]:
        performative = frame.performative
        if isinstance(performative, Close):
            if self._phase is not _Phase.CLOSING:
                self._write(Close())
            return self._over(Closed(None, performative.error))
        if performative is None or self._phase is _Phase.CLOSING:
            return []
        if self._phase is _Phase.OPEN:
            return self._opened(_expected(performative, Open))
        self.frame_bytes = frame.kept
        if isinstance(performative, Begin):
            return self._begin(frame.channel, performative)
        return self._handle_in_session(frame.channel, performative, frame.payload)

    def _handle_in_session(self, channel: int, performative: Composite, payload: bytes) -> list[Event]:
        session = self.sessions.get(channel)
        if session is None:
            if channel in self._ended:
                return discarded(performative)
            raise AmqpError(NOT_ALLOWED, f"no session was begun on channel {channel}")
        if isinstance(performative, End):
            return self._end(session, None)
        try:
            return session._handle(performative, payload)
        except AmqpError as error:
            # A transaction may go on in another session.
            return [*discarded(performative), *self._end(session, error)]

    def _opened(self, opened: Open) -> list[Event]:
        if opened.max_frame_size < SMALLEST_MAX_FRAME:
            raise AmqpError(NOT_ALLOWED, f"max-frame-size {opened.max_frame_size}: the least is {SMALLEST_MAX_FRAME}")
        self.peer = opened
        self._peer_frame_bytes = min(opened.max_frame_size, self.limits.frame_bytes)
        self._reader.largest = self.limits.frame_bytes
        self._write_open()
        self._phase = _Phase.OPENED
        return [Opened(opened)]

    @property
    def _channel_max(self) -> int:
        asked = 0xFFFF if self.peer is None else self.peer.channel_max
        return min(asked, max(0, self.limits.sessions - 1))

    def _write_open(self) -> None:
        self._write(
            Open(
                self._container_id,
                max_frame_size=self.limits.frame_bytes,
                channel_max=self._channel_max,
                idle_time_out=self.limits.idle_ms,
            )
        )

    def _begin(self, channel: int, begin: Begin) -> list[Event]:
        if channel in self.sessions:
            raise AmqpError(NOT_ALLOWED, f"a session was begun on channel {channel} before")
        if len(self.sessions) >= self.limits.sessions:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {self.limits.sessions} sessions")
        if channel > self._channel_max:
            raise AmqpError(NOT_ALLOWED, f"a session on channel {channel}: the highest is {self._channel_max}")
        session = self.sessions[channel] = Session(self, channel, begin)
        session._write(
            Begin(
                channel,
                next_outgoing_id=0,
                incoming_window=self.limits.window,
                outgoing_window=self.limits.window,
                handle_max=self.limits.links,
            )
        )
        return []

    def _drop(self, session: Session) -> list[Event]:
        self.sessions.pop(session.channel, None)
        links = list(session.links.values())
        session._end()
        for link in links:
            session._forget(link)
        return [LinkDetached(link) for link in links]

    def _end(self, session: Session, error: AmqpError | None) -> list[Event]:
        if self.sessions.get(session.channel) is not session:
            return []
        events = self._drop(session)
        self._write(End(error_of(error)), session.channel)
        self._ended.add(session.channel)
        return events

    def _write(self, performative: Composite, channel: int = 0) -> None:
        self._output.append(frame_of(channel, fitted(performative, self._peer_frame_bytes - HEAD_BYTES)))

    def _write_sasl(self, performative: Composite) -> None:
        self._output.append(frame_of(0, performative.encoded(), kind=SASL_FRAME))


def _expected(performative: Composite, kind: type[P]) -> P:
    if not isinstance(performative, kind):
        raise AmqpError(ILLEGAL_STATE, f"{type(performative).__name__} in place of {kind.__name__}")
    return performative
