"""The engine's sessions and links; see ``connection``."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkabus.gateway.amqp.conditions import (
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    AmqpError,
)
from kafkabus.gateway.amqp.events import (
    Delivered,
    Discarded,
    Disposed,
    Event,
    IncomingDelivery,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    OutgoingDelivery,
)
from kafkabus.gateway.amqp.frames import frame_of
from kafkabus.gateway.amqp.performatives import (
    Attach,
    Begin,
    Composite,
    Detach,
    Disposition,
    Flow,
    TransactionalState,
    Transfer,
    error_of,
    fitted,
)
from kafkabus_mapping.amqp.types import UInt, encode

if TYPE_CHECKING:
    from kafkabus.gateway.amqp.connection import Connection

_FRAME_OVERHEAD: Final = 64
"""The most bytes of a transfer's frame beside its tag, its state and its payload."""
LONGEST_TAG: Final = 32
"""The most bytes of a delivery's tag, and of a transaction's id, beyond which no two of ours differ."""
_NUMBERS: Final = 1 << 32
_MOST_REMEMBERED: Final = 10_000
"""How many deliveries of transactions, and how many runs of deliveries that were sent settled, a session remembers."""


class Link:
    """A link of a session.

    Attributes:
        session: Its session.
        handle: Its handle, the same in both directions.
        attach: The peer's request.
        attach_bytes: Its size.
        sends: Whether we send on it.
        is_attached: Whether it was accepted, and not detached since.
        owner: The owner's own note.
        credit: How many messages the receiving side takes now.
        drain: Whether the peer wants its credit used up, or given up.
        unsettled: How many of its deliveries are not settled.
        cut_off: The state of a message of which frames were missing when the link went; None without one.
        most_bytes: The size of the largest message that is kept of those that come.
        unsent: The contents of settled deliveries that were not sent as a whole when the link, or the connection, went.
    """

    def __init__(self, session: Session, attach: Attach) -> None:
        self.session = session
        self.handle = attach.handle
        self.attach = attach
        self.attach_bytes = session.connection.frame_bytes
        self.sends = attach.role
        self.is_attached = False
        self.owner: Any = None
        self.credit = 0
        self.drain = False
        self.unsettled = 0
        self.cut_off: Any = None
        self.most_bytes = session.connection.limits.message_bytes
        self.unsent: list[Any] = []
        self._sent: set[int] = set()
        self._is_answered = False
        self._delivery_count = 0 if self.sends else attach.initial_delivery_count or 0
        self._coming: IncomingDelivery | None = None

    def __repr__(self) -> str:
        return f"<Link {self.attach.name!r} {'to' if self.sends else 'from'} the peer>"

    def accept(
        self,
        *,
        source: Any = None,
        target: Any = None,
        properties: Mapping[Any, Any] | None = None,
        max_message_size: int | None = None,
    ) -> None:
        """Attach the link as the peer asked for; source and target are the peer's unless given."""
        asked = self.attach
        self._answer(
            Attach(
                name=asked.name,
                handle=self.handle,
                role=not asked.role,
                snd_settle_mode=asked.snd_settle_mode,
                rcv_settle_mode=asked.rcv_settle_mode,
                source=asked.source if source is None else source,
                target=asked.target if target is None else target,
                initial_delivery_count=0 if self.sends else None,
                max_message_size=max_message_size,
                properties=None if properties is None else dict(properties),
            )
        )
        self.is_attached = self._is_there

    def refuse(self, error: AmqpError) -> None:
        """Attach the link to no node, and detach it with an error."""
        asked = self.attach
        answer = Attach(
            name=asked.name,
            handle=self.handle,
            role=not asked.role,
            snd_settle_mode=asked.snd_settle_mode,
            rcv_settle_mode=asked.rcv_settle_mode,
            source=None if self.sends else asked.source,
            target=asked.target if self.sends else None,
            initial_delivery_count=0 if self.sends else None,
        )
        try:
            self._answer(answer)
        except (TypeError, ValueError, OverflowError):
            # The peer's end holds something that can be read and not written.
            answer.source = answer.target = None
            self._answer(answer)
        self.detach(error)

    def _answer(self, attach: Attach) -> None:
        # After the peer has given up, another link may have the handle.
        if self._is_there:
            self.session._write(attach)
            self._is_answered = True

    @property
    def _is_there(self) -> bool:
        return self.session.links.get(self.handle) is self

    def detach(self, error: AmqpError | None = None) -> None:
        """Detach the link; the peer's answer is not told."""
        if self.session._forget(self):
            self.session._write(Detach(self.handle, closed=True, error=error_of(error)))
            self.session._await_answer(self.handle)

    # A link on which we receive.

    @property
    def coming(self) -> IncomingDelivery | None:
        """The message of which frames are missing; None without one."""
        return self._coming

    def give_credit(self, credit: int) -> None:
        """Have the peer send so many messages from now on."""
        self.credit = credit
        if self.is_attached:
            self.session._write(self._flow())

    def _flow(self, *, drain: bool = False) -> Flow:
        return self.session._flow(
            handle=self.handle, delivery_count=self._delivery_count, link_credit=self.credit, drain=drain
        )

    def _begun(self, transfer: Transfer) -> IncomingDelivery:
        """Return the message that a transfer begins.

        Raises:
            AmqpError: It may not begin one.
        """
        if self.credit <= 0:
            raise AmqpError(TRANSFER_LIMIT_EXCEEDED, f"link {self.attach.name!r} had no credit left")
        number, tag = transfer.delivery_id, transfer.delivery_tag
        if number is None or tag is None:
            raise AmqpError(ILLEGAL_STATE, "the first transfer of a delivery has its id and its tag")
        if len(tag) > LONGEST_TAG:
            raise AmqpError(ILLEGAL_STATE, f"a tag of {len(tag)} bytes: a delivery's has at most {LONGEST_TAG}")
        if transfer.resume:
            raise AmqpError(
                NOT_IMPLEMENTED,
                "a delivery that is resumed: nothing is kept of a link that has ended; send the message anew",
            )
        return IncomingDelivery(self, number, tag, transfer.message_format or 0, bool(transfer.settled), transfer.state)

    def _receive(self, transfer: Transfer, payload: bytes) -> IncomingDelivery | None:
        """Take a piece of a message; return the message if that was the last one."""
        delivery = self._coming
        if delivery is None:
            self._coming = delivery = self._begun(transfer)
        elif transfer.delivery_id not in {None, delivery.number} or transfer.delivery_tag not in {None, delivery.tag}:
            raise AmqpError(
                NOT_ALLOWED,
                f"a transfer of delivery {transfer.delivery_id} before the last one of delivery {delivery.number}: a link's "
                "deliveries come one after the other, and one that is given up is aborted",
            )
        if transfer.settled:
            delivery.settled = True
        if transfer.state is not None:
            delivery.state = transfer.state
        connection = self.session.connection
        if transfer.aborted:
            self._let_go()
            self._took()
            # Nodes give credit for messages that came, of which this is none.
            self.give_credit(self.credit + 1)
            return None
        before = delivery.kept
        if delivery.state is not None:
            delivery.overhead = max(delivery.overhead, connection.frame_bytes)
        delivery.add(payload)
        connection.partial_bytes += delivery.kept - before
        if transfer.more:
            if connection.partial_bytes > connection.limits.partial_bytes:
                raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "too many messages have begun: end some before others begin")
            return None
        self._let_go()
        self._took()
        if not delivery.settled:
            self.unsettled += 1
        return delivery

    def _let_go(self) -> None:
        """Count a message that was coming no more."""
        if self._coming is not None:
            self.session.connection.partial_bytes -= self._coming.kept
            self._coming = None

    def _took(self) -> None:
        self.credit -= 1
        self._delivery_count = (self._delivery_count + 1) % _NUMBERS

    # A link on which we send.

    def frames_of(self, size: int) -> int:
        """Return how many frames a message of so many bytes takes, with the longest tag and no state."""
        return max(1, -(-size // self.session.payload_room(LONGEST_TAG + 1)))

    def send(
        self, tag: bytes, payload: bytes, *, settled: bool, content: Any = None, state: Composite | None = None
    ) -> OutgoingDelivery | None:
        """Send a message, and use one credit; return it if the peer has to settle it.

        Args:
            tag: Its tag.
            payload: Its bytes.
            settled: Whether it is settled.
            content: The owner's own note; that of a settled message comes back in ``unsent`` or by ``Connection.take_sent``.
            state: Its state.
        """
        self.credit -= 1
        self._delivery_count = (self._delivery_count + 1) % _NUMBERS
        return self.session._send(self, tag, payload, settled, content, state)

    def drained(self) -> None:
        """Give up the credit that is left, and tell the peer."""
        self._delivery_count = (self._delivery_count + max(0, self.credit)) % _NUMBERS
        self.credit = 0
        self.drain = False
        if self.is_attached:
            self.session._tell_drained(self)

    def _take_credit(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            # Numbers go round, and a peer may grant all of them: those that are under way to it are few.
            under_way = (self._delivery_count - (flow.delivery_count or 0)) % _NUMBERS
            self.credit = max(0, flow.link_credit - under_way)
        self.drain = flow.drain


class Session:
    """A session of a connection.

    Attributes:
        connection: Its connection.
        channel: Its channel, the same in both directions.
        links: Its links, by handle.
        is_over: Whether it has ended; nothing more is said in it, as another one may have its channel.
        largest_window: The most frames that the peer has taken at once.
        reserved: How many frames of the peer's window are kept for messages that will be sent.
    """

    def __init__(self, connection: Connection, channel: int, begin: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self.links: dict[int, Link] = {}
        self.is_over = False
        self.largest_window = begin.incoming_window
        self.reserved = 0
        # How many frames links wait for the peer to take.
        self._awaiting: dict[Link, int] = {}
        self._detaching: set[int] = set()
        self._next_incoming = begin.next_outgoing_id
        self._incoming_window = connection.limits.window
        self._next_outgoing = 0
        self._peer_window = begin.incoming_window
        self._next_delivery = 0
        # Frames with the link that they are for, None for a flow that follows the frames before it; and with the content that
        # they end, if any.
        self._waiting: deque[tuple[Link, bytes | None, Any]] = deque()
        self._unsettled: dict[int, OutgoingDelivery] = {}
        # Those of them of which the peer has told no state yet, in their order: numbers that do not go round.
        self._open: list[int] = []
        self._in_transactions: dict[int, bytes] = {}
        self._sent_settled: deque[tuple[int, int]] = deque(maxlen=_MOST_REMEMBERED)

    @property
    def waiting(self) -> int:
        """How many frames wait until the peer takes more."""
        return len(self._waiting)

    @property
    def room(self) -> int:
        """How many frames the peer takes now beside those that are reserved."""
        return 0 if self._waiting else max(0, self._peer_window - self.reserved)

    def await_room(self, link: Link, frames: int) -> None:
        """Tell a link of it once the peer takes so many frames."""
        self._awaiting[link] = frames

    def take_ready(self) -> list[Link]:
        """Return the links for which the peer takes as many frames now as they wait for; they wait no more."""
        room = self.room
        ready = [link for link, frames in self._awaiting.items() if frames <= room] if room else []
        for link in ready:
            del self._awaiting[link]
        return ready

    def payload_room(self, overhead: int) -> int:
        """Return how many bytes of a message fit into a frame, beside the overhead of its tag and its state."""
        return self.connection._peer_frame_bytes - _FRAME_OVERHEAD - overhead

    def settle(self, deliveries: Iterable[OutgoingDelivery], state: Composite | None) -> None:
        """Forget deliveries that we sent, and tell the peer that they have this state."""
        numbers = sorted(one.number for one in deliveries if self._unsettle(one))
        self._dispose(numbers, state, role=False)

    def forget(self, deliveries: Iterable[OutgoingDelivery]) -> None:
        """Forget deliveries that the peer has settled."""
        for one in deliveries:
            self._unsettle(one)

    def acknowledge(self, deliveries: Iterable[IncomingDelivery], state: Composite | None) -> None:
        """Tell the peer the state of messages that came."""
        numbers: list[int] = []
        for one in deliveries:
            if not one.settled:
                one.settled = True
                one.link.unsettled -= 1
                numbers.append(one.number)
        self._dispose(sorted(numbers), state, role=True)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; the peer's answer is not told."""
        self.connection._end(self, error)

    def _dispose(self, numbers: list[int], state: Composite | None, *, role: bool) -> None:
        encoded = None if state is None else fitted(state, self.connection._peer_frame_bytes - _FRAME_OVERHEAD)
        at = 0
        while at < len(numbers):
            last = at
            while last + 1 < len(numbers) and numbers[last + 1] == numbers[last] + 1:
                last += 1
            disposition = _disposition(role, numbers[at], numbers[last], encoded)
            if not self.is_over:
                self.connection._output.append(frame_of(self.channel, disposition))
            at = last + 1

    def _unsettle(self, delivery: OutgoingDelivery) -> bool:
        number = delivery.number
        if self._unsettled.get(number) is not delivery:
            return False
        del self._unsettled[number]
        self.connection.unsettled -= 1
        delivery.link.unsettled -= 1
        delivery.link._sent.discard(number)
        self._take_open(number, 1)
        return True

    def _handle(self, performative: Composite, payload: bytes) -> list[Event]:
        """Do what the peer says.

        Raises:
            AmqpError: The peer may not say that; the session is over.
        """
        if isinstance(performative, Transfer):
            return self._transfer(performative, payload)
        if isinstance(performative, Disposition):
            return self._disposed(performative)
        if isinstance(performative, Flow):
            return self._flowed(performative)
        if isinstance(performative, Attach):
            return self._attach(performative)
        if isinstance(performative, Detach):
            return self._detach(performative)
        raise AmqpError(ILLEGAL_STATE, f"{type(performative).__name__} within a session")

    def _attach(self, attach: Attach) -> list[Event]:
        connection, limits = self.connection, self.connection.limits
        if attach.handle in self.links:
            raise AmqpError(HANDLE_IN_USE, f"handle {attach.handle} is in use")
        if attach.handle > limits.links:
            raise AmqpError(NOT_ALLOWED, f"handle {attach.handle}: the highest is {limits.links}")
        if connection.unanswered > limits.links:
            raise AmqpError(
                RESOURCE_LIMIT_EXCEEDED, f"{connection.unanswered} links were detached, which the peer has not answered"
            )
        link = Link(self, attach)
        self.links[attach.handle] = link
        connection.links += 1
        connection.attach_bytes += link.attach_bytes
        self._answered(attach.handle)
        if connection.links > limits.links:
            link.refuse(AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {limits.links} links"))
            return []
        if connection.attach_bytes > limits.attach_bytes:
            link.refuse(
                AmqpError(
                    RESOURCE_LIMIT_EXCEEDED, f"the links of a connection are asked for in {limits.attach_bytes} bytes"
                )
            )
            return []
        return [LinkAttached(link)]

    def _await_answer(self, handle: int) -> None:
        """Remember a link that was detached, until the peer says that it knows."""
        if handle not in self._detaching:
            self._detaching.add(handle)
            self.connection.unanswered += 1

    def _answered(self, handle: int) -> None:
        if handle in self._detaching:
            self._detaching.remove(handle)
            self.connection.unanswered -= 1

    def _detach(self, detach: Detach) -> list[Event]:
        link = self.links.get(detach.handle)
        if link is None:
            if detach.handle in self._detaching:
                self._answered(detach.handle)
                return []
            raise AmqpError(UNATTACHED_HANDLE, f"no link has the handle {detach.handle}")
        if not link._is_answered:
            # The peer gave up before it had its answer, without which it would not know what is detached.
            link._answer(
                Attach(name=link.attach.name, handle=link.handle, role=not link.attach.role, initial_delivery_count=0)
            )
        self._forget(link)
        self._write(Detach(detach.handle, closed=detach.closed))
        return [LinkDetached(link, detach.error)]

    def _forget(self, link: Link) -> bool:
        if not link._is_there:
            return False
        del self.links[link.handle]
        self.connection.links -= 1
        self.connection.attach_bytes -= link.attach_bytes
        self._awaiting.pop(link, None)
        link.is_attached = False
        if link.coming is not None:
            link.cut_off = link.coming.state
        link._let_go()
        self._forget_sent(link)
        self._forget_waiting(link)
        return True

    def _forget_sent(self, link: Link) -> None:
        """Forget the deliveries of a link that is gone."""
        numbers, link._sent = link._sent, set()
        self.connection.unsettled -= len(numbers)
        for number in numbers:
            self._unsettled.pop(number, None)
        if self._open and numbers:
            self._open = [number for number in self._open if number % _NUMBERS not in numbers]

    def _flow(self, **of_link: Any) -> Flow:
        return Flow(
            next_incoming_id=self._next_incoming,
            incoming_window=self._incoming_window,
            next_outgoing_id=self._next_outgoing,
            outgoing_window=self.connection.limits.window,
            **of_link,
        )

    def _flowed(self, flow: Flow) -> list[Event]:
        known = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        ahead = (self._next_outgoing - known) % _NUMBERS
        self._peer_window = max(0, flow.incoming_window - ahead)
        # A peer that has all that was sent takes no more at once than it says now.
        self.largest_window = max(self._peer_window, self.largest_window if ahead else 0)
        self._send_waiting()
        events: list[Event] = [LinkFlowed(link) for link in self.take_ready() if link.handle != flow.handle]
        if flow.handle is None:
            if flow.echo:
                self._write(self._flow())
            return events
        link = self.links.get(flow.handle)
        if link is None:
            if flow.handle in self._detaching:
                return events
            raise AmqpError(UNATTACHED_HANDLE, f"no link has the handle {flow.handle}")
        if link.sends:
            link._take_credit(flow)
            events.append(LinkFlowed(link))
        if flow.echo and link.is_attached:
            self._write(link._flow())
        return events

    def _transfer(self, transfer: Transfer, payload: bytes) -> list[Event]:
        if self._incoming_window <= 0:
            raise AmqpError(WINDOW_VIOLATION, "more transfers than the session's window allows")
        self._next_incoming = (self._next_incoming + 1) % _NUMBERS
        self._incoming_window -= 1
        window = self.connection.limits.window
        if self._incoming_window <= window // 2:
            self._incoming_window = window
            self._write(self._flow())
        link = self.links.get(transfer.handle)
        if link is None:
            if transfer.handle in self._detaching:
                return discarded(transfer)
            raise AmqpError(UNATTACHED_HANDLE, f"no link has the handle {transfer.handle}")
        if link.sends:
            raise AmqpError(NOT_ALLOWED, f"link {link.attach.name!r} is one on which the peer receives")
        try:
            delivery = link._receive(transfer, payload)
        except AmqpError as error:
            link.detach(error)
            # The message that it begins is none of the link yet, which would tell its transaction.
            return [*discarded(transfer), LinkDetached(link)]
        return [] if delivery is None else [Delivered(delivery)]

    def _disposed(self, disposition: Disposition) -> list[Event]:
        if not disposition.role:
            # The peer settles what it sent: we have settled it already.
            return []
        state = disposition.state
        if state is None and not disposition.settled:
            return []
        first, last = disposition.first, disposition.first if disposition.last is None else disposition.last
        count = (last - first) % _NUMBERS + 1
        found = self._take_open(first, count)
        events: list[Event] = []
        if isinstance(state, TransactionalState) and not self._are_known(first, count, found, state):
            events += discarded(disposition)
        if found:
            events.append(Disposed(found, state, disposition.settled))
        return events

    def _take_open(self, first: int, count: int) -> list[OutgoingDelivery]:
        """Return the deliveries of some numbers of which the peer has told no state before."""
        start = self._next_delivery - (self._next_delivery - first) % _NUMBERS
        numbers: list[int] = []
        # A range may go round, too.
        for first_open in (start - _NUMBERS, start):
            begin, end = bisect_left(self._open, first_open), bisect_left(self._open, first_open + count)
            numbers += self._open[begin:end]
            del self._open[begin:end]
        return [found for number in numbers if (found := self._unsettled.get(number % _NUMBERS)) is not None]

    def _are_known(self, first: int, count: int, found: Sequence[OutgoingDelivery], state: TransactionalState) -> bool:
        """Return whether all numbers are those of deliveries that the transaction settles, or that were sent settled."""
        missing = count - len(found)
        if missing:
            missing -= sum(max(0, min(first + count, end) - max(first, begin)) for begin, end in self._sent_settled)
        if missing > 0:
            missing -= sum(
                name == state.txn_id[:LONGEST_TAG] and (number - first) % _NUMBERS < count
                for number, name in self._in_transactions.items()
            )
        for delivery in found:
            self._in_transactions[delivery.number] = state.txn_id[:LONGEST_TAG]
        while len(self._in_transactions) > _MOST_REMEMBERED:
            del self._in_transactions[next(iter(self._in_transactions))]
        return missing <= 0

    def _note_sent_settled(self, number: int) -> None:
        begin, end = self._sent_settled[-1] if self._sent_settled else (number, number)
        if end == number:
            if self._sent_settled:
                self._sent_settled.pop()
            self._sent_settled.append((begin, number + 1))
        else:
            self._sent_settled.append((number, number + 1))

    def _send(
        self, link: Link, tag: bytes, payload: bytes, settled: bool, content: Any, state: Composite | None
    ) -> OutgoingDelivery | None:
        number = self._next_delivery % _NUMBERS
        delivery = None
        if not settled:
            delivery = self._unsettled[number] = OutgoingDelivery(link, number, content)
            self._open.append(self._next_delivery)
            link._sent.add(number)
            link.unsettled += 1
            self.connection.unsettled += 1
            content = None
        else:
            self._note_sent_settled(number)
        self._next_delivery += 1
        encoded = b"\x40" if state is None else state.encoded()
        room = self.payload_room(len(tag) + len(encoded))
        if len(payload) <= room:
            self._put(link, _transfer(link.handle, number, tag, settled, encoded, more=False), payload, content)
            return delivery
        for at in range(0, len(payload), room):
            more = at + room < len(payload)
            piece = payload[at : at + room]
            self._put(
                link,
                _transfer(link.handle, number, tag, settled, encoded, more=more),
                piece,
                None if more else content,
            )
        return delivery

    def _put(self, link: Link, transfer: bytes, payload: bytes, content: Any) -> None:
        if self.is_over:
            if content is not None:
                link.unsent.append(content)
            return
        frame = frame_of(self.channel, transfer, payload)
        if self._waiting or self._peer_window <= 0:
            self._waiting.append((link, frame, content))
            self.connection.waiting_bytes += len(frame)
        else:
            self._put_out(frame, content)

    def _send_waiting(self) -> None:
        while self._waiting and (self._peer_window > 0 or self._waiting[0][1] is None):
            link, frame, content = self._waiting.popleft()
            if frame is None:
                self._write(link._flow(drain=True))
            else:
                self.connection.waiting_bytes -= len(frame)
                self._put_out(frame, content)

    def _tell_drained(self, link: Link) -> None:
        """Tell the peer that a link's credit is given up, behind the messages that used it."""
        if self._waiting:
            self._waiting.append((link, None, None))
        else:
            self._write(link._flow(drain=True))

    def _forget_waiting(self, link: Link) -> None:
        """Forget the frames of a link that is gone: another one may have its handle when there is room for them."""
        if any(other is link for other, _, _ in self._waiting):
            waiting, self._waiting = self._waiting, deque(one for one in self._waiting if one[0] is not link)
            self._give_up(one for one in waiting if one[0] is link)

    def _give_up_waiting(self) -> None:
        """Forget the frames that wait: the peer takes none any more."""
        waiting, self._waiting = self._waiting, deque()
        self._give_up(waiting)

    def _give_up(self, waiting: Iterable[tuple[Link, bytes | None, Any]]) -> None:
        for link, frame, content in waiting:
            self.connection.waiting_bytes -= len(frame or b"")
            if content is not None:
                link.unsent.append(content)

    def _end(self) -> None:
        """Forget what was and what is to be sent, and the links that were detached: the session is over."""
        self.is_over = True
        self._give_up_waiting()
        self._open.clear()
        self._unsettled.clear()
        self.connection.unanswered -= len(self._detaching)
        self._detaching.clear()

    def _put_out(self, frame: bytes, content: Any) -> None:
        self._peer_window -= 1
        self._next_outgoing = (self._next_outgoing + 1) % _NUMBERS
        self.connection._output.append(frame)
        if content is not None:
            self.connection._sent.append(content)

    def _write(self, performative: Composite) -> None:
        if not self.is_over:
            self.connection._write(performative, self.channel)


def discarded(performative: Composite) -> list[Event]:
    """Return what to tell of a performative for a link or a session that is gone."""
    state = performative.state if isinstance(performative, (Transfer, Disposition)) else None
    return [] if state is None else [Discarded(state)]


_TRUE, _FALSE, _NULL = b"\x41", b"\x42", b"\x40"


def _transfer(handle: int, number: int, tag: bytes, settled: bool, state: bytes, *, more: bool) -> bytes:
    """Return an encoded ``Transfer``; each message has one."""
    content = b"".join(
        (
            encode(UInt(handle)),
            encode(UInt(number)),
            b"\xa0%c" % len(tag),
            tag,
            b"\x43",
            _TRUE if settled else _FALSE,
            _TRUE if more else _FALSE,
            _NULL,
            state,
            _FALSE,
            _FALSE,
            _FALSE,
        )
    )
    return _list(b"\x00\x53\x14", 11, content)


def _disposition(role: bool, first: int, last: int, state: bytes | None) -> bytes:
    """Return an encoded ``Disposition`` that settles; each message has one."""
    content = b"".join(
        (
            _TRUE if role else _FALSE,
            encode(UInt(first)),
            encode(UInt(last)),
            _TRUE,
            state or _NULL,
            _FALSE,
        )
    )
    return _list(b"\x00\x53\x15", 6, content)


def _list(descriptor: bytes, count: int, content: bytes) -> bytes:
    size = len(content)
    if size < 255:
        return b"%b\xc0%c%c%b" % (descriptor, size + 1, count, content)
    return b"%b\xd0%b%b%b" % (descriptor, (size + 4).to_bytes(4, "big"), count.to_bytes(4, "big"), content)
