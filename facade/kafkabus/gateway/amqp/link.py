"""The engine's links; see ``connection``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol

from kafkabus.gateway.amqp.conditions import (
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    AmqpError,
)
from kafkabus.gateway.amqp.deliveries import LONGEST_TAG, IncomingDelivery, OutgoingDelivery, begin_delivery
from kafkabus.gateway.amqp.frames import frame_of
from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.amqp.output import Output
from kafkabus.gateway.amqp.performatives import (
    Attach,
    Composite,
    Detach,
    Flow,
    Transfer,
    encode_transfer,
    error_of,
)
from kafkabus.gateway.amqp.send_window import SendWindow
from kafkabus.gateway.amqp.sent_numbers import NUMBERS, SentNumbers
from kafkabus.gateway.amqp.state_enum import StateEnum
from kafkabus.gateway.amqp.usage import Usage

_NO_STATE: Final = b"\x40"


class LinkSession(Protocol):
    """A session, as its links use it."""

    @property
    def channel(self) -> int:
        """Its channel."""
        ...

    @property
    def limits(self) -> Limits:
        """The connection's bounds."""
        ...

    @property
    def usage(self) -> Usage:
        """The connection's counters."""
        ...

    @property
    def output(self) -> Output:
        """The connection's output."""
        ...

    @property
    def window(self) -> SendWindow[Link]:
        """The frames that it sends."""
        ...

    @property
    def numbers(self) -> SentNumbers[Link]:
        """The numbers of the deliveries that it sends."""
        ...

    def write(self, performative: Composite) -> None:
        """Write a frame, unless the session has ended."""

    def write_dispositions(self, numbers: Sequence[int], state: Composite | None, *, role: bool) -> None:
        """Notify the peer that deliveries are settled, unless the session has ended.

        Args:
            numbers: Their numbers, in order.
            state: Their state.
            role: Whether the peer has sent them.
        """

    def flow(self, **of_link: Any) -> Flow:
        """Return a flow frame with the session's windows, and the state of a link."""
        ...

    def remove(self, link: Link, *, is_answered: bool) -> None:
        """Give a link's handle back.

        Args:
            link: The link.
            is_answered: Whether the peer knows that the link is gone.
        """


class LinkState(StateEnum):
    """How far a link is; ``Link.TRANSITIONS``, at the end of that class, is the table.

    A link is detached as soon as we have detached it: its session remembers in ``Session._unanswered`` that the peer has not
    answered yet.
    """

    ATTACH_RECEIVED = "attach received"
    ATTACHED = "attached"
    DETACHED = "detached"


class LinkInput(StateEnum):
    """An event that changes the state of a link."""

    ACCEPT = "accept"
    REFUSE = "refuse"
    DETACH = "detach"
    PEER_DETACH = "peer detaches"
    SESSION_END = "session ends"


class Link:
    """A link of a session.

    Attributes:
        session: Its session.
        handle: Its handle, the same in both directions.
        attach: The peer's request.
        attach_bytes: Its size.
        sends: Whether we send on it.
        state: How far it is; see ``TRANSITIONS``.
        credit: How many messages the receiving side takes now.
        drain: Whether the peer wants its credit used up, or given up.
        unsettled: How many of its deliveries are not settled.
        partial: The message of which frames are missing; None without one.
        cut_off: The state of a message of which frames were missing when the link went; None without one.
        most_bytes: The size of the largest message that is kept of those that come.
        unsent: The contents of settled deliveries that were not sent as a whole when the link, or the connection, went.
    """

    def __init__(self, session: LinkSession, attach: Attach, attach_bytes: int) -> None:
        self.session = session
        self.handle = attach.handle
        self.attach = attach
        self.attach_bytes = attach_bytes
        self.sends = attach.role
        self.state = LinkState.ATTACH_RECEIVED
        self.credit = 0
        self.drain = False
        self.unsettled = 0
        self.partial: IncomingDelivery | None = None
        self.cut_off: Any = None
        self.most_bytes = session.limits.message_bytes
        self.unsent: list[Any] = []
        self._sent: dict[int, OutgoingDelivery] = {}
        self._delivery_count = 0 if self.sends else attach.initial_delivery_count or 0

    def __repr__(self) -> str:
        return f"<Link {self.attach.name!r} {'to' if self.sends else 'from'} the peer>"

    @property
    def is_attached(self) -> bool:
        """Whether it was accepted, and not detached since."""
        return self.state is LinkState.ATTACHED

    # Its states.

    def accept(
        self,
        *,
        source: Any = None,
        target: Any = None,
        properties: Mapping[Any, Any] | None = None,
        max_message_size: int | None = None,
    ) -> None:
        """Attach the link as the peer asked for; source and target are the peer's unless given."""
        answer = self._answer_to_attach()
        answer.source = self.attach.source if source is None else source
        answer.target = self.attach.target if target is None else target
        answer.properties = None if properties is None else dict(properties)
        answer.max_message_size = max_message_size
        self._enter(LinkInput.ACCEPT, answer)

    def refuse(self, error: AmqpError) -> None:
        """Attach the link to no node, and detach it with an error."""
        self._enter(LinkInput.REFUSE, error)

    def detach(self, error: AmqpError | None = None) -> None:
        """Detach the link; the peer's answer yields no event."""
        self._enter(LinkInput.DETACH, error)

    def on_detach(self, detach: Detach) -> None:
        """Answer the peer, which detaches the link."""
        self._enter(LinkInput.PEER_DETACH, detach)

    def on_session_end(self) -> None:
        """Let go of everything: the link is gone with its session."""
        self._enter(LinkInput.SESSION_END, None)

    def _enter(self, given: LinkInput, argument: Any) -> None:
        """Do what an input asks for in this state: nothing if the link is gone, as another one may have its handle."""
        transition = self.TRANSITIONS.get((self.state, given))
        if transition is not None:
            action, state = transition
            action(self, argument)
            self.state = state

    def _write_attach(self, answer: Attach) -> None:
        self.session.write(answer)

    def _write_refusal(self, error: AmqpError | None) -> None:
        answer = self._answer_to_attach()
        # The end that would be ours is null; without this answer, the peer would not know what is detached.
        answer.source = None if self.sends else self.attach.source
        answer.target = self.attach.target if self.sends else None
        try:
            self.session.write(answer)
        except (TypeError, ValueError, OverflowError):
            # The peer's end holds something that can be read and not written.
            answer.source = answer.target = None
            self.session.write(answer)
        self._write_detach(error)

    def _write_detach(self, error: AmqpError | None) -> None:
        self.session.write(Detach(self.handle, closed=True, error=error_of(error)))
        self._let_go(is_answered=False)

    def _answer_both(self, detach: Detach) -> None:
        self.session.write(self._answer_to_attach())
        self._answer_detach(detach)

    def _answer_detach(self, detach: Detach) -> None:
        self.session.write(Detach(self.handle, closed=detach.closed))
        self._let_go(is_answered=True)

    def _end_with_session(self, _: None) -> None:
        self._let_go(is_answered=True)

    def _answer_to_attach(self) -> Attach:
        attach = self.attach
        return Attach(
            name=attach.name,
            handle=self.handle,
            role=not attach.role,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=attach.rcv_settle_mode,
            initial_delivery_count=0 if self.sends else None,
        )

    def _let_go(self, *, is_answered: bool) -> None:
        session = self.session
        session.remove(self, is_answered=is_answered)
        if self.partial is not None:
            self.cut_off = self.partial.state
        self.discard_partial()
        session.usage.unsettled -= len(self._sent)
        session.numbers.remove_all(self._sent.keys())
        self._sent.clear()
        session.window.remove(self)

    # Messages that come.

    def give_credit(self, credit: int) -> None:
        """Have the peer send so many messages from now on."""
        self.credit = credit
        if self.is_attached:
            self.write_flow()

    def write_flow(self, *, drain: bool = False) -> None:
        """Send the link's credit to the peer."""
        self.session.write(
            self.session.flow(
                handle=self.handle, delivery_count=self._delivery_count, link_credit=max(0, self.credit), drain=drain
            )
        )

    def receive(self, transfer: Transfer, payload: bytes, kept: int) -> IncomingDelivery | None:
        """Take a piece of a message; return the message if that was the last one.

        Args:
            transfer: The piece's performative.
            payload: The piece's bytes.
            kept: About how many bytes of memory the performative takes.

        Raises:
            AmqpError: The peer may not send it.
        """
        delivery, usage = self.partial, self.session.usage
        if delivery is None:
            if self.credit <= 0:
                raise AmqpError(TRANSFER_LIMIT_EXCEEDED, f"link {self.attach.name!r} had no credit left")
            self.partial = delivery = begin_delivery(transfer, self.most_bytes)
        else:
            delivery.update(transfer)
        if transfer.aborted:
            self.discard_partial()
            self._use_credit()
            # Nodes give credit for messages that came, of which this is none.
            self.give_credit(self.credit + 1)
            return None
        before = delivery.kept
        if delivery.state is not None:
            delivery.overhead = max(delivery.overhead, kept)
        delivery.add(payload)
        usage.partial_bytes += delivery.kept - before
        if transfer.more:
            if usage.partial_bytes > self.session.limits.partial_bytes:
                raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "too many messages have begun: end some before others begin")
            return None
        self.discard_partial()
        self._use_credit()
        if not delivery.settled:
            self.unsettled += 1
        return delivery

    def discard_partial(self) -> None:
        """Count a message that was coming no more."""
        if self.partial is not None:
            self.session.usage.partial_bytes -= self.partial.kept
            self.partial = None

    def _use_credit(self) -> None:
        self.credit -= 1
        self._delivery_count = (self._delivery_count + 1) % NUMBERS

    def acknowledge(self, deliveries: Iterable[IncomingDelivery], state: Composite | None) -> None:
        """Report the state of messages that came over the link to the peer."""
        numbers: list[int] = []
        for delivery in deliveries:
            if not delivery.settled:
                delivery.settled = True
                self.unsettled -= 1
                numbers.append(delivery.number)
        self.session.write_dispositions(sorted(numbers), state, role=True)

    # Messages that go.

    def count_frames(self, size: int) -> int:
        """Return how many frames a message of so many bytes takes, with the longest tag and no state."""
        return max(1, -(-size // self.session.output.payload_room(LONGEST_TAG + 1)))

    def send(
        self, tag: bytes, payload: bytes, *, settled: bool, content: Any = None, state: Composite | None = None
    ) -> OutgoingDelivery | None:
        """Send a message, and use one credit; return it if the peer has to settle it.

        Args:
            tag: Its tag.
            payload: Its bytes.
            settled: Whether it is settled.
            content: The owner's own note; that of a settled message comes back in ``unsent`` or by ``Output.take_contents``.
            state: Its state.
        """
        self._use_credit()
        session, delivery = self.session, None
        number = session.numbers.add(self, settled=settled)
        if not settled:
            delivery = self._sent[number] = OutgoingDelivery(number, content)
            self.unsettled += 1
            session.usage.unsettled += 1
            content = None
        encoded = _NO_STATE if state is None else state.encoded()
        room = session.output.payload_room(len(tag) + len(encoded))
        for at in range(0, len(payload) or 1, room):
            more = at + room < len(payload)
            transfer = encode_transfer(self.handle, number, tag, settled, encoded, more=more)
            frame = frame_of(session.channel, transfer, payload[at : at + room])
            session.window.put(self, frame, None if more else content)
        return delivery

    def settle(self, deliveries: Iterable[OutgoingDelivery], state: Composite | None) -> None:
        """Remove deliveries of the link, and notify the peer that they have this state."""
        numbers = sorted(delivery.number for delivery in deliveries if self._remove(delivery))
        self.session.write_dispositions(numbers, state, role=False)

    def forget(self, deliveries: Iterable[OutgoingDelivery]) -> None:
        """Forget deliveries of the link that the peer has settled."""
        for delivery in deliveries:
            self._remove(delivery)

    def _remove(self, delivery: OutgoingDelivery) -> bool:
        number = delivery.number
        if self._sent.get(number) is not delivery:
            return False
        del self._sent[number]
        self.unsettled -= 1
        self.session.usage.unsettled -= 1
        self.session.numbers.remove(number)
        return True

    def find_sent(self, number: int) -> OutgoingDelivery:
        """Return the delivery that has a number and is not settled."""
        return self._sent[number]

    def take_credit(self, flow: Flow) -> None:
        """Take the credit that the peer gives."""
        if flow.link_credit is not None:
            # Numbers go round, and a peer may grant all of them: those that are under way to it are few.
            under_way = (self._delivery_count - (flow.delivery_count or 0)) % NUMBERS
            self.credit = max(0, flow.link_credit - under_way)
        self.drain = flow.drain

    def give_up_credit(self) -> None:
        """Give up the credit that is left, as the peer's ``drain`` asks for, and notify the peer."""
        self._delivery_count = (self._delivery_count + max(0, self.credit)) % NUMBERS
        self.credit, self.drain = 0, False
        if self.is_attached:
            self.session.window.put_flow(self)

    TRANSITIONS: ClassVar[Mapping[tuple[LinkState, LinkInput], tuple[Callable[..., None], LinkState]]] = {
        (LinkState.ATTACH_RECEIVED, LinkInput.ACCEPT): (_write_attach, LinkState.ATTACHED),
        (LinkState.ATTACH_RECEIVED, LinkInput.REFUSE): (_write_refusal, LinkState.DETACHED),
        (LinkState.ATTACH_RECEIVED, LinkInput.DETACH): (_write_refusal, LinkState.DETACHED),
        (LinkState.ATTACH_RECEIVED, LinkInput.PEER_DETACH): (_answer_both, LinkState.DETACHED),
        (LinkState.ATTACH_RECEIVED, LinkInput.SESSION_END): (_end_with_session, LinkState.DETACHED),
        (LinkState.ATTACHED, LinkInput.REFUSE): (_write_detach, LinkState.DETACHED),
        (LinkState.ATTACHED, LinkInput.DETACH): (_write_detach, LinkState.DETACHED),
        (LinkState.ATTACHED, LinkInput.PEER_DETACH): (_answer_detach, LinkState.DETACHED),
        (LinkState.ATTACHED, LinkInput.SESSION_END): (_end_with_session, LinkState.DETACHED),
    }
    """The action for an input in a state, and the state that follows; any other input changes nothing."""
