"""The engine's sessions; see ``connection``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from kafkabus.gateway.amqp.conditions import (
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    AmqpError,
)
from kafkabus.gateway.amqp.deliveries import LONGEST_TAG, OutgoingDelivery
from kafkabus.gateway.amqp.events import (
    Delivered,
    Disposed,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    discard,
)
from kafkabus.gateway.amqp.frames import Frame, frame_of
from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.output import Output
from kafkabus.gateway.amqp.performatives import (
    Attach,
    Begin,
    Composite,
    Detach,
    Disposition,
    End,
    Flow,
    TransactionalState,
    Transfer,
    encode_disposition,
    error_of,
    fitted,
)
from kafkabus.gateway.amqp.send_window import SendWindow
from kafkabus.gateway.amqp.sent_numbers import NUMBERS, SentNumbers
from kafkabus.gateway.amqp.state_enum import StateEnum
from kafkabus.gateway.amqp.usage import Usage


class SessionState(StateEnum):
    """How far a session is."""

    MAPPED = "mapped"
    ENDED = "ended"


class SessionInput(StateEnum):
    """An event in a session, or one that changes its state."""

    ATTACH = "attach"
    FLOW = "flow"
    TRANSFER = "transfer"
    DISPOSITION = "disposition"
    DETACH = "detach"
    END = "end"
    CONNECTION_END = "connection ends"


_INPUTS: Final[Mapping[type[Composite], SessionInput]] = {
    Attach: SessionInput.ATTACH,
    Flow: SessionInput.FLOW,
    Transfer: SessionInput.TRANSFER,
    Disposition: SessionInput.DISPOSITION,
    Detach: SessionInput.DETACH,
}


class Session:
    """A session of a connection.

    Args:
        channel: Its channel, the same in both directions.
        begin: The peer's request.
        limits: The connection's bounds.
        output: The connection's output.
        usage: The connection's counters.

    Attributes:
        channel: Its channel, the same in both directions.
        limits: The connection's bounds.
        output: The connection's output.
        usage: The connection's counters.
        links: Its links, by handle.
        window: The frames with messages that it sends.
        numbers: The numbers of the deliveries that it sends.
        state: How far it is; once it has ended, nothing more is said in it, as another one may have its channel.
    """

    def __init__(self, channel: int, begin: Begin, limits: Limits, output: Output, usage: Usage) -> None:
        self.channel = channel
        self.limits = limits
        self.output = output
        self.usage = usage
        self.links: dict[int, Link] = {}
        self.window = SendWindow[Link](begin.incoming_window, output, usage)
        self.numbers = SentNumbers[Link]()
        self.state = SessionState.MAPPED
        # The handles of links that we have detached, until the peer says that it knows.
        self._unanswered: set[int] = set()
        self._next_incoming = begin.next_outgoing_id
        self._incoming_window = limits.window

    def write(self, performative: Composite) -> None:
        """Write a frame, unless the session has ended."""
        if self.state is SessionState.MAPPED:
            self.output.write(performative, self.channel)

    def write_dispositions(self, numbers: Sequence[int], state: Composite | None, *, role: bool) -> None:
        """Notify the peer that deliveries are settled, unless the session has ended.

        Args:
            numbers: Their numbers, in order.
            state: Their state.
            role: Whether the peer has sent them.
        """
        if self.state is SessionState.ENDED:
            return
        encoded = None if state is None else fitted(state, self.output.payload_room(0))
        at = 0
        while at < len(numbers):
            last = at
            while last + 1 < len(numbers) and numbers[last + 1] == numbers[last] + 1:
                last += 1
            disposition = encode_disposition(role, numbers[at], numbers[last], encoded)
            self.output.add(frame_of(self.channel, disposition))
            at = last + 1

    def flow(self, **of_link: Any) -> Flow:
        """Return a flow frame with the session's windows, and the state of a link."""
        return Flow(
            next_incoming_id=self._next_incoming,
            incoming_window=self._incoming_window,
            next_outgoing_id=self.window.next_frame,
            outgoing_window=self.limits.window,
            **of_link,
        )

    # Its states.

    def handle(self, frame: Frame) -> list[Event]:
        """Do what a frame of the peer asks for.

        Raises:
            AmqpError: The peer may not say that; the session has to be ended.
        """
        performative = frame.performative
        given = None if performative is None else _INPUTS.get(type(performative))
        if given is None:
            raise AmqpError(ILLEGAL_STATE, f"{type(performative).__name__} within a session")
        return self._enter(given, frame)

    def end(self, error: AmqpError | None = None) -> list[Event]:
        """End the session on both sides; the peer's answer yields no event."""
        return self._enter(SessionInput.END, error)

    def on_connection_end(self) -> list[Event]:
        """Let go of everything: the session is gone with its connection."""
        return self._enter(SessionInput.CONNECTION_END, None)

    def _enter(self, given: SessionInput, argument: Any) -> list[Event]:
        action, state = self.TRANSITIONS[self.state, given]
        events = action(self, argument)
        self.state = state
        return events

    def _write_end(self, error: AmqpError | None) -> list[Event]:
        self.write(End(error_of(error)))
        return self._let_go(None)

    def _let_go(self, _: None) -> list[Event]:
        """Forget what was and what is to be sent, and all links."""
        self.window.close()
        self.numbers.clear()
        self.usage.unanswered -= len(self._unanswered)
        self._unanswered.clear()
        links = list(self.links.values())
        for link in links:
            link.on_session_end()
        return [LinkDetached(link) for link in links]

    def lose(self) -> None:
        """Forget the messages of which not all frames came, or were sent: the connection is lost."""
        self.window.clear()
        for link in self.links.values():
            link.discard_partial()

    # Its links.

    def _on_attach(self, frame: Frame) -> list[Event]:
        attach = cast("Attach", frame.performative)
        usage, limits = self.usage, self.limits
        if attach.handle in self.links:
            raise AmqpError(HANDLE_IN_USE, f"handle {attach.handle} is in use")
        if attach.handle > limits.links:
            raise AmqpError(NOT_ALLOWED, f"handle {attach.handle}: the highest is {limits.links}")
        if usage.unanswered > limits.links:
            raise AmqpError(
                RESOURCE_LIMIT_EXCEEDED, f"{usage.unanswered} links were detached, which the peer has not answered"
            )
        link = self.links[attach.handle] = Link(self, attach, frame.kept)
        usage.links += 1
        usage.attach_bytes += link.attach_bytes
        self._note_answer(attach.handle)
        if usage.links > limits.links:
            link.refuse(AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {limits.links} links"))
            return []
        if usage.attach_bytes > limits.attach_bytes:
            link.refuse(
                AmqpError(
                    RESOURCE_LIMIT_EXCEEDED, f"the links of a connection are asked for in {limits.attach_bytes} bytes"
                )
            )
            return []
        return [LinkAttached(link)]

    def remove(self, link: Link, *, is_answered: bool) -> None:
        """Give a link's handle back.

        Args:
            link: The link.
            is_answered: Whether the peer knows that the link is gone.
        """
        del self.links[link.handle]
        self.usage.links -= 1
        self.usage.attach_bytes -= link.attach_bytes
        if not is_answered and link.handle not in self._unanswered:
            self._unanswered.add(link.handle)
            self.usage.unanswered += 1

    def _note_answer(self, handle: int) -> None:
        """Note that the peer knows that a link is gone."""
        if handle in self._unanswered:
            self._unanswered.remove(handle)
            self.usage.unanswered -= 1

    def _find_link(self, handle: int) -> Link | None:
        """Return the link with a handle; None if we have detached it, which the peer may not know yet.

        Raises:
            AmqpError: There was none.
        """
        link = self.links.get(handle)
        if link is None and handle not in self._unanswered:
            raise AmqpError(UNATTACHED_HANDLE, f"no link has the handle {handle}")
        return link

    def _on_detach(self, frame: Frame) -> list[Event]:
        detach = cast("Detach", frame.performative)
        link = self._find_link(detach.handle)
        if link is None:
            self._note_answer(detach.handle)
            return []
        link.on_detach(detach)
        return [LinkDetached(link, detach.error)]

    def _on_flow(self, frame: Frame) -> list[Event]:
        flow = cast("Flow", frame.performative)
        self.window.update(flow)
        events: list[Event] = [LinkFlowed(link) for link in self.window.take_ready() if link.handle != flow.handle]
        if flow.handle is None:
            if flow.echo:
                self.write(self.flow())
            return events
        link = self._find_link(flow.handle)
        if link is None:
            return events
        if link.sends:
            link.take_credit(flow)
            events.append(LinkFlowed(link))
        if flow.echo and link.is_attached:
            link.write_flow()
        return events

    # Its messages.

    def _on_transfer(self, frame: Frame) -> list[Event]:
        transfer = cast("Transfer", frame.performative)
        if self._incoming_window <= 0:
            raise AmqpError(WINDOW_VIOLATION, "more transfers than the session's window allows")
        self._next_incoming = (self._next_incoming + 1) % NUMBERS
        self._incoming_window -= 1
        window = self.limits.window
        if self._incoming_window <= window // 2:
            self._incoming_window = window
            self.write(self.flow())
        link = self._find_link(transfer.handle)
        if link is None:
            return discard(transfer)
        if link.sends:
            raise AmqpError(NOT_ALLOWED, f"link {link.attach.name!r} is one on which the peer receives")
        try:
            delivery = link.receive(transfer, frame.payload, frame.kept)
        except AmqpError as error:
            link.detach(error)
            # The message that it begins does not belong to the link yet, which would report its transaction.
            return [*discard(transfer), LinkDetached(link)]
        return [] if delivery is None else [Delivered(link, delivery)]

    def _on_disposition(self, frame: Frame) -> list[Event]:
        disposition = cast("Disposition", frame.performative)
        if not disposition.role:
            # The peer settles what it sent: we have settled it already.
            return []
        state = disposition.state
        if state is None and not disposition.settled:
            return []
        first, last = disposition.first, disposition.first if disposition.last is None else disposition.last
        count = (last - first) % NUMBERS + 1
        found = self.numbers.take_stateless(first, count)
        events: list[Event] = []
        if isinstance(state, TransactionalState):
            numbers, transaction = [number for number, _ in found], state.txn_id[:LONGEST_TAG]
            if not self.numbers.note_transaction(first, count, numbers, transaction):
                events += discard(disposition)
        by_link: dict[Link, list[OutgoingDelivery]] = {}
        for number, link in found:
            by_link.setdefault(link, []).append(link.find_sent(number))
        events += [Disposed(link, deliveries, state, disposition.settled) for link, deliveries in by_link.items()]
        return events

    TRANSITIONS: ClassVar[
        Mapping[tuple[SessionState, SessionInput], tuple[Callable[..., list[Event]], SessionState]]
    ] = {
        (SessionState.MAPPED, SessionInput.ATTACH): (_on_attach, SessionState.MAPPED),
        (SessionState.MAPPED, SessionInput.FLOW): (_on_flow, SessionState.MAPPED),
        (SessionState.MAPPED, SessionInput.TRANSFER): (_on_transfer, SessionState.MAPPED),
        (SessionState.MAPPED, SessionInput.DISPOSITION): (_on_disposition, SessionState.MAPPED),
        (SessionState.MAPPED, SessionInput.DETACH): (_on_detach, SessionState.MAPPED),
        (SessionState.MAPPED, SessionInput.END): (_write_end, SessionState.ENDED),
        (SessionState.MAPPED, SessionInput.CONNECTION_END): (_let_go, SessionState.ENDED),
    }
    """The action for an input in a state, and the state that follows; a session that has ended gets no input."""
