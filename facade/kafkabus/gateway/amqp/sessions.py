"""The sessions of a connection, by their channels; see ``connection``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from kafkabus.gateway.amqp.conditions import NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED, AmqpError
from kafkabus.gateway.amqp.events import Event, discard
from kafkabus.gateway.amqp.frames import Frame
from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.output import Output
from kafkabus.gateway.amqp.performatives import Begin, Composite, End
from kafkabus.gateway.amqp.session import Session
from kafkabus.gateway.amqp.usage import Usage

MOST_CHANNELS: Final = 1 << 16
"""How many channels AMQP has numbers for."""


class Sessions:
    """The sessions of one connection.

    Args:
        limits: The connection's bounds.
        output: The connection's output.
        usage: The connection's counters.

    Attributes:
        channel_max: The highest channel.
    """

    def __init__(self, limits: Limits, output: Output, usage: Usage) -> None:
        self.channel_max = max(0, min(MOST_CHANNELS, limits.sessions) - 1)
        self._limits = limits
        self._output = output
        self._usage = usage
        self._sessions: dict[int, Session] = {}
        # The peer may say more on a channel before it hears, or after it said, that the session is over.
        self._ended: set[int] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    @property
    def links(self) -> Iterator[Link]:
        """The links of all sessions."""
        return (link for session in self for link in session.links.values())

    @property
    def ended(self) -> int:
        """How many channels are remembered whose sessions have ended."""
        return len(self._ended)

    def handle(self, frame: Frame) -> list[Event]:
        """Do what a frame of the peer asks for: begin or end a session, or something within one.

        Raises:
            AmqpError: The peer may not say that; the connection has to be closed.
        """
        performative, channel = cast("Composite", frame.performative), frame.channel
        if isinstance(performative, Begin):
            return self._begin(channel, performative)
        session = self._sessions.get(channel)
        if session is None:
            if channel in self._ended:
                return discard(performative)
            raise AmqpError(NOT_ALLOWED, f"no session was begun on channel {channel}")
        if isinstance(performative, End):
            return self._end(session, None)
        try:
            return session.handle(frame)
        except AmqpError as error:
            # A transaction may go on in another session.
            return [*discard(performative), *self._end(session, error)]

    def _begin(self, channel: int, begin: Begin) -> list[Event]:
        limits = self._limits
        if channel in self._sessions:
            raise AmqpError(NOT_ALLOWED, f"a session was begun on channel {channel} before")
        if len(self._sessions) >= limits.sessions:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {limits.sessions} sessions")
        if channel > self.channel_max:
            raise AmqpError(NOT_ALLOWED, f"a session on channel {channel}: the highest is {self.channel_max}")
        session = self._sessions[channel] = Session(channel, begin, limits, self._output, self._usage)
        session.write(
            Begin(
                channel,
                next_outgoing_id=0,
                incoming_window=limits.window,
                outgoing_window=limits.window,
                handle_max=limits.links,
            )
        )
        return []

    def _end(self, session: Session, error: AmqpError | None) -> list[Event]:
        events = session.end(error)
        del self._sessions[session.channel]
        self._ended.add(session.channel)
        return events

    def end_all(self) -> list[Event]:
        """End all sessions: the connection is over."""
        sessions, self._sessions = self._sessions, {}
        return [event for session in sessions.values() for event in session.on_connection_end()]

    def lose(self) -> None:
        """Forget the messages of which not all frames came, or were sent: the connection is lost."""
        for session in self:
            session.lose()
