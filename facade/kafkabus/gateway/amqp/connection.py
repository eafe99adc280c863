"""The engine of one AMQP connection, the server's side: bytes in, events and bytes out; it does no I/O and knows no clock.

The owner gives the engine the bytes that came, handles the events that it returns, and sends what its output has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from kafkabus.gateway.amqp.conditions import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    AmqpError,
)
from kafkabus.gateway.amqp.events import Closed, Event, Opened
from kafkabus.gateway.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_FRAME,
    SASL_HEADER,
    SMALLEST_MAX_FRAME,
    Frame,
    FrameReader,
)
from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.amqp.output import Output
from kafkabus.gateway.amqp.performatives import (
    Close,
    Detach,
    End,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    error_of,
)
from kafkabus.gateway.amqp.sasl import PASSED, WRONG_CREDENTIALS, LoginError
from kafkabus.gateway.amqp.sessions import Sessions
from kafkabus.gateway.amqp.state_enum import StateEnum
from kafkabus.gateway.amqp.usage import Usage

_NUMBER_BYTES: Final = 64
"""How many bytes are counted for a number that is remembered."""


class ConnectionState(StateEnum):
    """How far a connection is."""

    START = "start"
    SASL = "SASL"
    SASL_DONE = "SASL done"
    HEADERS_EXCHANGED = "headers exchanged"
    OPENED = "opened"
    CLOSE_SENT = "close sent"
    CLOSED = "closed"


class ConnectionInput(StateEnum):
    """An event that changes the state of a connection, or that is an error in some of them."""

    SASL_HEADER = "SASL header"
    AMQP_HEADER = "AMQP header"
    OTHER_HEADER = "other header"
    LOGIN = "login"
    REFUSED_LOGIN = "refused login"
    OPEN = "open"
    SESSION_FRAME = "frame of a session"
    PEER_CLOSE = "peer closes"
    CLOSE = "close"
    ERROR = "error"


_HEADER_STATES: Final = {ConnectionState.START, ConnectionState.SASL_DONE}
_OF_HEADERS: Final = {SASL_HEADER: ConnectionInput.SASL_HEADER, AMQP_HEADER: ConnectionInput.AMQP_HEADER}


class Connection:
    """One connection.

    Args:
        container_id: Our name.
        mechanisms: The mechanisms of SASL by which the peer may log in.
        limits: Bounds; by default, those of ``Limits``.
        log_in: Called with the mechanism and the response of a login; raises ``LoginError`` to refuse it. None: all pass.

    Attributes:
        limits: Bounds.
        output: The bytes to send.
        usage: Counters of what the peer makes the engine keep.
        sessions: The sessions.
        peer: The peer's words when it opened the connection; None before.
        holds: While it is more than 0, the end of a link, a session or the connection is held back, with all that follows it.
        mechanism: The mechanism by which the peer logged in; None without SASL.
        state: How far it is; see ``TRANSITIONS``.
    """

    def __init__(
        self,
        container_id: str,
        mechanisms: Sequence[str],
        limits: Limits | None = None,
        log_in: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.output = Output()
        self.usage = Usage()
        self.sessions = Sessions(self.limits, self.output, self.usage)
        self.peer: Open | None = None
        self.mechanism: str | None = None
        self.holds = 0
        self.state = ConnectionState.START
        self._held: Frame | None = None
        self._container_id = container_id
        self._mechanisms = tuple(mechanisms)
        self._log_in = log_in
        # All frames before the connection is open are short.
        self._reader = FrameReader(SMALLEST_MAX_FRAME * 8)

    @property
    def is_closing(self) -> bool:
        """Whether the connection is over, or will be with the peer's answer."""
        return self.state in {ConnectionState.CLOSE_SENT, ConnectionState.CLOSED}

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over."""
        return self.state is ConnectionState.CLOSED

    @property
    def is_held(self) -> bool:
        """Whether an end of the peer is held back."""
        return self._held is not None

    @property
    def kept_bytes(self) -> int:
        """How many bytes the peer makes the engine keep, output that was not taken left out."""
        usage = self.usage
        numbers = usage.unanswered + self.sessions.ended
        kept = usage.partial_bytes + usage.waiting_bytes + usage.attach_bytes
        return len(self._reader) + kept + _NUMBER_BYTES * numbers

    def lose(self) -> None:
        """Forget the messages of which not all frames came, or were sent: the connection is lost."""
        self._reader.clear()
        self.sessions.lose()

    def forget(self) -> None:
        """Forget everything: the owner has let go of the links. Garbage, which has circles, is collected rarely."""
        self.sessions.end_all()
        self._reader.clear()
        self.output.clear()
        self.state = ConnectionState.CLOSED

    # Bytes that come.

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
            if self.state in _HEADER_STATES:
                return self._read_header()
            return self._read_sasl() if self.state is ConnectionState.SASL else self._read_frame()
        except AmqpError as error:
            return self._enter(ConnectionInput.ERROR, error)

    def _read_header(self) -> list[Event] | None:
        header = self._reader.header()
        if header is None:
            return None
        return self._enter(_OF_HEADERS.get(header, ConnectionInput.OTHER_HEADER), header)

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
            return self._enter(ConnectionInput.REFUSED_LOGIN, error)
        return self._enter(ConnectionInput.LOGIN, init)

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
        performative = frame.performative
        if performative is None:
            return []
        if isinstance(performative, Close):
            return self._enter(ConnectionInput.PEER_CLOSE, performative)
        if isinstance(performative, Open):
            return self._enter(ConnectionInput.OPEN, performative)
        return self._enter(ConnectionInput.SESSION_FRAME, frame)

    # Its states.

    def _enter(self, given: ConnectionInput, argument: Any) -> list[Event]:
        """Do what an input asks for in this state.

        Raises:
            AmqpError: It may not come in this state.
        """
        transition = self.TRANSITIONS.get((self.state, given))
        if transition is None:
            raise AmqpError(ILLEGAL_STATE, f"{given.value} in the state {self.state.value!r} of the connection")
        action, state = transition
        events = action(self, argument)
        self.state = state
        return events

    def heartbeat(self) -> None:
        """Send a frame that says nothing, unless the connection is not open."""
        if self.state is ConnectionState.OPENED:
            self.output.add(EMPTY_FRAME)

    def close(self, error: AmqpError | None = None) -> None:
        """Close the connection, unless it is not open; ``Closed`` comes when the peer has answered."""
        if self.state is ConnectionState.OPENED:
            self._enter(ConnectionInput.CLOSE, error)

    def _offer_mechanisms(self, header: bytes) -> list[Event]:
        self.output.add(header)
        self.output.write_sasl(SaslMechanisms(self._mechanisms))
        return []

    def _answer_header(self, header: bytes) -> list[Event]:
        self.output.add(header)
        return []

    def _refuse_header(self, header: bytes) -> list[Event]:
        # The answer is the header that would have been right.
        self.output.add(SASL_HEADER)
        return [Closed(AmqpError(FRAMING_ERROR, f"the peer began with {header!r}, which is not AMQP 1.0"))]

    def _accept_login(self, init: SaslInit) -> list[Event]:
        self.mechanism = init.mechanism
        self.output.write_sasl(SaslOutcome(PASSED))
        return []

    def _refuse_login(self, error: LoginError) -> list[Event]:
        self.output.write_sasl(SaslOutcome(error.code))
        return [Closed(error)]

    def _accept_open(self, peer: Open) -> list[Event]:
        if peer.max_frame_size < SMALLEST_MAX_FRAME:
            raise AmqpError(NOT_ALLOWED, f"max-frame-size {peer.max_frame_size}: the least is {SMALLEST_MAX_FRAME}")
        self.peer = peer
        self.sessions.channel_max = min(peer.channel_max, self.sessions.channel_max)
        self.output.frame_bytes = min(peer.max_frame_size, self.limits.frame_bytes)
        self._reader.largest = self.limits.frame_bytes
        self._write_open()
        return [Opened(peer)]

    def _write_open(self) -> None:
        self.output.write(
            Open(
                self._container_id,
                max_frame_size=self.limits.frame_bytes,
                channel_max=self.sessions.channel_max,
                idle_time_out=self.limits.idle_ms,
            )
        )

    def _write_close(self, error: AmqpError | None) -> list[Event]:
        self.output.write(Close(error_of(error)))
        return []

    def _answer_close(self, close: Close) -> list[Event]:
        self.output.write(Close())
        return self._end(close)

    def _end(self, close: Close) -> list[Event]:
        return [*self.sessions.end_all(), Closed(None, close.error)]

    def _open_and_close(self, error: AmqpError) -> list[Event]:
        self._write_open()
        return self._close_for_error(error)

    def _close_for_error(self, error: AmqpError) -> list[Event]:
        self._write_close(error)
        return self._fail(error)

    def _fail(self, error: AmqpError) -> list[Event]:
        return [*self.sessions.end_all(), Closed(error)]

    def _handle_session_frame(self, frame: Frame) -> list[Event]:
        return self.sessions.handle(frame)

    def _ignore(self, _: object) -> list[Event]:
        return []

    TRANSITIONS: ClassVar[
        Mapping[tuple[ConnectionState, ConnectionInput], tuple[Callable[..., list[Event]], ConnectionState]]
    ] = {
        (ConnectionState.START, ConnectionInput.SASL_HEADER): (_offer_mechanisms, ConnectionState.SASL),
        (ConnectionState.START, ConnectionInput.AMQP_HEADER): (_answer_header, ConnectionState.HEADERS_EXCHANGED),
        (ConnectionState.START, ConnectionInput.OTHER_HEADER): (_refuse_header, ConnectionState.CLOSED),
        (ConnectionState.SASL, ConnectionInput.LOGIN): (_accept_login, ConnectionState.SASL_DONE),
        (ConnectionState.SASL, ConnectionInput.REFUSED_LOGIN): (_refuse_login, ConnectionState.CLOSED),
        (ConnectionState.SASL, ConnectionInput.ERROR): (_fail, ConnectionState.CLOSED),
        (ConnectionState.SASL_DONE, ConnectionInput.AMQP_HEADER): (_answer_header, ConnectionState.HEADERS_EXCHANGED),
        (ConnectionState.SASL_DONE, ConnectionInput.SASL_HEADER): (_refuse_header, ConnectionState.CLOSED),
        (ConnectionState.SASL_DONE, ConnectionInput.OTHER_HEADER): (_refuse_header, ConnectionState.CLOSED),
        (ConnectionState.HEADERS_EXCHANGED, ConnectionInput.OPEN): (_accept_open, ConnectionState.OPENED),
        (ConnectionState.HEADERS_EXCHANGED, ConnectionInput.PEER_CLOSE): (_answer_close, ConnectionState.CLOSED),
        (ConnectionState.HEADERS_EXCHANGED, ConnectionInput.ERROR): (_open_and_close, ConnectionState.CLOSED),
        (ConnectionState.OPENED, ConnectionInput.SESSION_FRAME): (_handle_session_frame, ConnectionState.OPENED),
        (ConnectionState.OPENED, ConnectionInput.CLOSE): (_write_close, ConnectionState.CLOSE_SENT),
        (ConnectionState.OPENED, ConnectionInput.PEER_CLOSE): (_answer_close, ConnectionState.CLOSED),
        (ConnectionState.OPENED, ConnectionInput.ERROR): (_close_for_error, ConnectionState.CLOSED),
        (ConnectionState.CLOSE_SENT, ConnectionInput.OPEN): (_ignore, ConnectionState.CLOSE_SENT),
        (ConnectionState.CLOSE_SENT, ConnectionInput.SESSION_FRAME): (_ignore, ConnectionState.CLOSE_SENT),
        (ConnectionState.CLOSE_SENT, ConnectionInput.PEER_CLOSE): (_end, ConnectionState.CLOSED),
        (ConnectionState.CLOSE_SENT, ConnectionInput.ERROR): (_fail, ConnectionState.CLOSED),
    }
    """The action for an input in a state, and the state that follows; any other input is an error of the peer."""
