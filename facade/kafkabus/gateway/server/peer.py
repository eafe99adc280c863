"""One client's connection: its socket, the engine that speaks AMQP on it, and what becomes of the client's links."""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import ioctl
from socket import SO_SNDBUF, SOL_SOCKET
from termios import TIOCOUTQ
from typing import Any, Protocol, cast

from typing_extensions import override

from kafkabus._runtime.log_format import shown_error, shown_name
from kafkabus._runtime.networks import network_of
from kafkabus._runtime.turns import Pace, Slots
from kafkabus.gateway.amqp.conditions import (
    CONNECTION_FORCED,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    AmqpError,
)
from kafkabus.gateway.amqp.connection import Connection
from kafkabus.gateway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
from kafkabus.gateway.amqp.events import (
    Closed,
    Delivered,
    Discarded,
    Disposed,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Opened,
)
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import TransactionalState, fields_of
from kafkabus.gateway.server.commons import Commons
from kafkabus.gateway.server.conditions import MESSAGE_LOCK_LOST
from kafkabus.gateway.server.connection_claims import Claims
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.index import Index
from kafkabus.gateway.server.logins import PLAIN, log_in, offered
from kafkabus.gateway.server.namespace import ServedNamespace
from kafkabus.gateway.server.transactions import Transactions
from kafkabus.gateway.server.undelivered import OnTheWay

LOGGER = logging.getLogger("kafkabus.gateway")

OPENED_WITHIN = 30.0
"""How long, in seconds, a client may take to open its connection."""
READ_WITHIN = 300.0
"""How long, in seconds, a client may leave what was sent to it unread: as long as the longest lock of a message lasts.

Some clients read nothing while their application works on a message.
"""
RIGHT_WITHIN = 30.0
"""How long, in seconds, a client may be connected without a right, if policies give rights."""
SCARCE_BYTES = 1024 * 1024
"""How many bytes of a client may wait to be stored while those of all clients are too many."""
LINK_BYTES = 6_000
"""About how many bytes the gateway keeps for a link."""
UNSETTLED_BYTES = 400
"""About how many bytes the gateway keeps for a message that a client holds."""
CHECKED_AT_ONCE = 500
"""The claims of how many links are checked before other clients have their turn."""
OPENED_AT_ONCE, ENDED_AT_ONCE, LINK_WITHIN = 20, 100, 0.05
"""How many links of a client are opened at a time, and how many ended; and how long, in seconds, one keeps others waiting.

A link that waits for a session takes long; all others take some milliseconds. Many at once would keep other clients waiting.
"""
SENT_AT_ONCE = 256 * 1024
"""About how many bytes of messages are sent before it is seen whether the client takes them."""
CARRIED_BYTES = 8 * 1024 * 1024
"""How many bytes of claimed messages may wait for a client that does not read; more are given back."""
CARRIED_SHARE = 0.25
"""How much of the bytes that all clients may make the gateway keep these messages may be."""
RESUMED_WITHIN = 0.001
"""How long, in seconds, a link that goes on keeps those back that waited as well, until the client read something."""
WORK_WITHIN = 3.0
"""How long, in seconds, a gateway that ends waits for the work that clients have asked for."""
CLOSED_WITHIN = 2.0
"""How long, in seconds, a client may take to read the last bytes, and to answer, when its connection is closed."""
SHORTEST_LOOK, LONGEST_LOOK = 0.005, 0.25
"""How often it is seen, in seconds, whether a client that is slow takes more: at first, and at last."""
SHORTEST_HEARTBEAT = 0.5
"""The shortest time between frames that keep a connection alive, in seconds."""


_LOST = AmqpError(
    MESSAGE_LOCK_LOST, "a message was sent, or settled, over a link that is gone: attach a link, and begin anew"
)
_INCOMPLETE = AmqpError(TRANSACTION_ROLLBACK, "frames of a message of the transaction are missing")


class Node(Protocol):
    """The end of a link; an instance for each link.

    Attributes:
        needs_claims: Whether the client needs claims to use it.
    """

    needs_claims: bool

    async def open(self) -> None:
        """Accept the link, or raise."""

    def flowed(self) -> None:
        """Note that the link's credit was changed."""

    def delivered(self, delivery: IncomingDelivery) -> None:
        """Take a message."""

    def disposed(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Take the state of messages that were sent."""

    async def close(self) -> None:
        """Let go of everything: the link is gone."""


class NodeFactory(Protocol):
    """Creates the nodes of links by their addresses."""

    def create_node(self, peer: Peer, link: Link) -> Node:
        """Return a node for a link that a client attaches.

        Raises:
            AmqpError: There is none, or the client may not use it.
        """
        ...

    def check_claims(self, peer: Peer, link: Link) -> object:
        """Check that the client may use a link now.

        Raises:
            AmqpError: It may not.
        """
        ...

    def entity_of(self, link: Link) -> str:
        """Return the entity that a link is about, for errors."""
        ...


class Peer(asyncio.BufferedProtocol):
    """A client.

    Args:
        commons: The resources that all clients share.
        namespace: The namespace.
        node_factory: Creates the nodes of the client's links.

    Attributes:
        commons: The resources that all clients share.
        namespace: The namespace.
        engine: Speaks AMQP.
        can_write: Set while the client takes what is sent to it.
        name: The client's address and port, for logs.
        address: The client's address without its port.
        nodes: The nodes of the client's links.
        replies: The nodes that take answers to its requests.
        requesting: Held while a request is read, so that many do not keep other clients waiting.
        scheduling: Held while a request's many messages are scheduled, for the same reason.
        claims: The client's permissions.
        transactions: The client's transactions.
        held_bytes: How many bytes of its messages wait to be stored.
        is_lost: Whether the connection is lost.
        is_java: Whether the client is Azure's SDK for Java.
        is_ending: Whether it will be closed: nothing new begins.
        answer_bytes: How many bytes of answers to its requests wait until it takes them.
        largest_answer: The size of the largest answer about an entity since all that was sent was taken: it may be large.
        network: The network under which it counts; see ``network_of``.
        reserved_bytes: How much of the socket's room is kept for messages that will be sent.
        carried_bytes: How many bytes of messages were claimed for it, and not sent yet.
        claiming: How many of its links claim messages, or wait for some.
    """

    def __init__(self, commons: Commons[Peer], namespace: ServedNamespace, node_factory: NodeFactory) -> None:
        self.commons = commons
        self.namespace = namespace
        self._node_factory = node_factory
        settings = commons.settings
        self.engine = Connection(
            f"kafkabus-{uuid.uuid4().hex}", offered(settings.policies), settings.limits, self._log_in
        )
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.name = self.address = "?"
        self.nodes: dict[Link, Node] = {}
        self.replies: Index[Any] = Index()
        self.requesting = asyncio.Lock()
        self.scheduling = asyncio.Lock()
        self.claims = Claims(settings.policies, self._check_claims)
        self.transactions = Transactions(
            namespace.client.transaction, settings.transactions, commons.transaction_room, self.start
        )
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: dict[Link, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._openings = Slots(OPENED_AT_ONCE, LINK_WITHIN)
        self._endings = Slots(ENDED_AT_ONCE, LINK_WITHIN)
        self._heard = self._loop.time()
        self._alarm: asyncio.TimerHandle | None = None
        self._cut_off: asyncio.TimerHandle | None = None
        self._is_flushing = False
        self._unflushed = 0
        self.is_lost = self.is_java = False
        self.held_bytes = self.answer_bytes = self.largest_answer = self.reserved_bytes = 0
        self.carried_bytes = self.claiming = 0
        self._carries_little = asyncio.Event()
        self._carries_little.set()
        self._resuming = asyncio.Lock()
        self._on_the_way = OnTheWay()
        self._way_look: asyncio.TimerHandle | None = None
        self._waits_for_turn = self._is_aborted = self._is_encrypted = False
        self.network = ""
        # Why nothing is read: what the client has sent is not stored yet, or what was sent to it is not read.
        self._pauses: set[str] = set()
        self._is_cut = False
        self._unread: asyncio.TimerHandle | None = None
        self._right: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self._is_let_go = False
        self._has_ended = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self.is_ending = False
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            Delivered: self._delivered,
            Disposed: self._disposed,
            Discarded: self._discarded,
            LinkFlowed: self._flowed,
            LinkAttached: self._attached,
            LinkDetached: lambda event: self._detached(event.link),
            Opened: self._opened,
            Closed: self._closed,
        }

    # The socket.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None
        address = transport.get_extra_info("peername")
        self.address = str(address[0] if isinstance(address, tuple) else address)
        self.name = f"{self.address}:{address[1]}" if isinstance(address, tuple) else self.address
        self.network = network_of(address)
        if not self.commons.add(self):
            LOGGER.warning("connection_refused peer=%s connections=%d", self.name, len(self.commons.clients))
            self._transport.abort()
            return
        self._alarm = self._loop.call_later(OPENED_WITHIN, self._check_opened)
        if self.commons.settings.policies is not None:
            self._right = self._loop.call_later(RIGHT_WITHIN, self._check_right)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self.commons.incoming

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self._heard = self._loop.time()
        self._receive(self.commons.incoming[:nbytes])

    def _receive(self, data: bytes | memoryview) -> None:
        self.engine.feed(data)
        self.commons.turns.begin(self)

    def step(self) -> bool:
        """Do what the client's next frame asks for; return whether there was one."""
        try:
            events = self.engine.step()
            for event in events or ():
                self._handle(event)
        except Exception as error:  # noqa: BLE001 - an error of ours costs this connection only
            self.engine.close(to_amqp_error(error))
            return True
        return events is not None

    def fail(self) -> None:
        """End the connection."""
        self._abort()

    def end_turn(self, *, is_through: bool) -> None:
        """Send what there is to say; read on, unless frames are left, for which there will be another turn."""
        self._waits_for_turn = not is_through
        self.flush()
        if not is_through:
            self._pause("turn")
            return
        self._go_on("turn")
        self._read_or_pause()
        self._has_ended.set()
        if self.is_lost:
            self._lose()

    @contextmanager
    def holding_ends(self) -> Generator[None]:
        """Hold back the client's end of a link, a session or the connection while the block runs."""
        self.engine.holds += 1
        try:
            yield
        finally:
            self.engine.holds -= 1
            if self.engine.is_held and not self.engine.holds:
                self._receive(b"")
            self._has_ended.set()

    @property
    def holds_ends(self) -> bool:
        """Whether an end that the client asked for is held back; nothing may begin that would hold it back for longer."""
        return self.engine.is_held

    async def until_ends_are_read(self) -> None:
        """Wait until no end is held back."""
        while self.engine.is_held and not self.is_lost:
            self._has_ended.clear()
            await self._has_ended.wait()

    async def _until_idle(self) -> None:
        """Wait until the client waits for nothing that is under way, or is gone."""
        while (self._work or self.engine.holds or self._waits_for_turn) and not self.is_lost:
            self._has_ended.clear()
            await self._has_ended.wait()

    @property
    def is_open(self) -> bool:
        """Whether the client takes what is sent to it."""
        return not (self.is_lost or self.engine.is_closing)

    @override
    def pause_writing(self) -> None:
        self.can_write.clear()
        # Each request that was read would have an answer.
        self._pause("unread")
        self._await_reading()

    @override
    def resume_writing(self) -> None:
        self.largest_answer = 0
        if self._unread is not None:
            self._unread.cancel()
        self.can_write.set()
        self._go_on("unread")
        self._note_kept()

    @override
    def eof_received(self) -> None:
        # A message that the client has read would go to another one as well.
        self._look_at_way()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._alarm, self._cut_off, self._unread, self._right, self._way_look):
            if timer is not None:
                timer.cancel()
        self.commons.release(self)
        # Tasks that wait for room find the engine closed.
        self.can_write.set()
        self.is_lost = True
        self._has_ended.set()
        self.transactions.lose()
        if exc is None and not self._is_aborted and not self._is_encrypted:
            # All that was written had gone out before the socket was closed.
            self._on_the_way.take()
        if not self._waits_for_turn:
            self._lose()

    def _lose(self) -> None:
        """Let go of everything when all was done that the client has asked for."""
        if self._is_let_go:
            return
        self._is_let_go = True
        self.engine.lose()
        unsent = [one for link in self.nodes for one in link.unsent]
        for deleted in (*self._on_the_way.take(), *self.engine.output.take_contents(), *unsent):
            self.commons.undelivered.put(deleted)
        self.start(self._let_go())

    def flush(self) -> None:
        """Send what the engine has to say."""
        self._unflushed = 0
        output, sent = self.engine.output.take(), self.engine.output.take_contents()
        if output and self._transport is not None and not self._transport.is_closing():
            self._on_the_way.note(len(output), sent)
            self._transport.write(output)
            self._look_at_way()
        else:
            for deleted in sent:
                self.commons.undelivered.put(deleted)
        self._note_kept()
        if self.engine.is_closing:
            self._close_socket(at_once=self.engine.is_closed)

    def _look_at_way(self) -> None:
        """Forget the messages that the operating system has; look again soon if it does not have all."""
        transport = self._transport
        # A socket that fails forgets what it should send, so that this would look as if it had gone out.
        if self._on_the_way and transport is not None and not transport.is_closing():
            self._on_the_way.note_left(_unsent_bytes(transport))
            if self._way_look is not None:
                self._way_look.cancel()
            self._way_look = self._loop.call_later(LONGEST_LOOK, self._look_at_way) if self._on_the_way else None

    def _close(self) -> None:
        # A transport of TLS that is closed twice answers no question any more.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def _abort(self) -> None:
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()

    def _close_socket(self, *, at_once: bool) -> None:
        """Close the socket when all bytes were sent, or when the client has answered; cut off a client that does neither."""
        if self._transport is None:
            return
        if self._cut_off is None:
            self._cut_off = self._loop.call_later(CLOSED_WITHIN, self._abort)
        if at_once:
            self._close()

    def note_sent(self, size: int) -> None:
        """Note that a message was sent; what was sent goes out before it becomes much, so that ``can_write`` tells of it."""
        self._unflushed += size
        if self._unflushed >= SENT_AT_ONCE:
            self.flush()
        else:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Send what the engine has to say, together with what is said until then."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self.flush()

    def hold(self, size: int) -> None:
        """Count bytes of the client that wait to be stored; as long as there are too many, no more are read."""
        self.held_bytes += size
        self.commons.held_bytes += size
        settings = self.commons.settings
        is_scarce = self.commons.held_bytes > settings.all_held_bytes
        most = min(settings.held_bytes, SCARCE_BYTES) if is_scarce else settings.held_bytes
        if self.held_bytes > most:
            self._pause("held")
        elif self.held_bytes <= most // 2:
            self._go_on("held")

    def _read_or_pause(self) -> None:
        """Read no more while an end is held back."""
        if self.engine.is_held:
            self._pause("end")
        else:
            self._go_on("end")

    def _pause(self, why: str) -> None:
        """Read nothing more for a reason."""
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pauses.add(why)

    def _go_on(self, why: str) -> None:
        """Read on, unless there are other reasons not to."""
        if why in self._pauses:
            self._pauses.discard(why)
            if not self._pauses and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    # Bounds.

    def _note_kept(self) -> None:
        """Count what the client makes the gateway keep."""
        transport = self._transport
        if self._is_cut or transport is None or transport.is_closing() or self.engine.is_closing:
            # Nothing more is done to a client that is going, for others.
            self.commons.budget.note(self, 0)
        else:
            self.commons.budget.note(self, self.engine.kept_bytes + self.answer_bytes, self._shared_bytes(transport))

    def _shared_bytes(self, transport: asyncio.Transport) -> int:
        """Return what counts in total alone; see ``Budget.note``."""
        lasting = (
            self.claims.kept_bytes
            + LINK_BYTES * self.engine.usage.links
            + UNSETTLED_BYTES * self.engine.usage.unsettled
        )
        unread = max(0, transport.get_write_buffer_size() - self.largest_answer)
        return lasting + unread + self.carried_bytes

    def end_for_bytes(self) -> None:
        """Close the connection: the client makes the gateway keep too much."""
        LOGGER.warning(
            "keeps_too_much peer=%s bytes=%d shared=%d links=%d",
            self.name,
            self.engine.kept_bytes + self.answer_bytes,
            0 if self._transport is None else self._shared_bytes(self._transport),
            len(self.nodes),
        )
        self._cut(
            "the client makes the gateway keep too many bytes: it does not read answers, does not end messages that it began, "
            "or has many links, messages and claims"
        )

    def end_without_right(self) -> None:
        """Close the connection: the client has no right, and others need its place."""
        LOGGER.warning("without_right peer=%s", self.name)
        self._cut("the client has no right, by login or by a token that it put to $cbs: connect again with a key")

    def _cut(self, why: str) -> None:
        self._is_cut = True
        self.engine.close(AmqpError(RESOURCE_LIMIT_EXCEEDED, why))
        self.flush()
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                self._abort()
            else:
                self._close()

    def _await_reading(self) -> None:
        """Cut the connection off if the client reads nothing for a while."""
        left = 0 if self._transport is None else self._transport.get_write_buffer_size()
        self._unread = self._loop.call_later(READ_WITHIN, self._look_at_unread, left)

    def _look_at_unread(self, before: int) -> None:
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() < before:
            self._await_reading()
        else:
            LOGGER.warning("does_not_read peer=%s within=%g", self.name, READ_WITHIN)
            self._abort()

    def _check_right(self) -> None:
        """Close the connection if the client has no right; else look again, as rights end."""
        if not self.claims.has_any:
            self.end_without_right()
            return
        self._right = self._loop.call_later(RIGHT_WITHIN, self._check_right)

    def noted_claim(self) -> None:
        """Note that the client has put a claim."""
        if self.claims.has_any:
            self.commons.strangers.discard(self)

    @property
    def room(self) -> int:
        """About how many bytes the operating system takes now beside those that are reserved."""
        if self.is_lost or self._transport is None or self._transport.get_write_buffer_size():
            return 0
        # Of the buffer, half is for what the operating system notes beside the bytes.
        return max(0, int(self._socket.getsockopt(SOL_SOCKET, SO_SNDBUF)) // 2 - self._passing)

    @property
    def _socket(self) -> Any:
        return None if self._transport is None else self._transport.get_extra_info("socket")

    @property
    def _passing(self) -> int:
        """How many bytes are reserved, or wait in the operating system."""
        return self.reserved_bytes + int.from_bytes(ioctl(self._socket.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)

    def has_room_for(self, size: int) -> bool:
        """Return whether the operating system takes so many bytes now.

        It takes any number after it has passed on all that it got: a message that is larger than its buffer would never fit
        else.
        """
        room = self.room
        return room >= size or (room > 0 and not self._passing)

    async def until_writable(self) -> None:
        """Wait until the client takes what is sent to it; another link of it may have been faster."""
        while not self.can_write.is_set():
            await self.can_write.wait()

    async def is_writable_within(self, seconds: float) -> bool:
        """Return whether the client takes what is sent to it within a time."""
        # Before Python 3.12, ``wait_for`` may pass over a cancellation.
        waiting = asyncio.ensure_future(self.until_writable())
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            waiting.cancel()
        return self.can_write.is_set()

    async def until_its_turn(self, *, hurries: bool = False) -> None:
        """Wait until the client takes what is sent to it, and has little at hand; links that had to wait go on one by one.

        Args:
            hurries: Whether the client waits for an answer of the link.
        """
        if hurries:
            await self.until_writable()
        elif not (self.can_write.is_set() and self._carries_little.is_set()):
            await self._resuming.acquire()
            try:
                await self._carries_little.wait()
                await self.until_writable()
            finally:
                self._loop.call_later(RESUMED_WITHIN, self._resuming.release)

    def carry(self, size: int) -> None:
        """Count bytes of messages that were claimed for the client; negative: that were sent, or given back."""
        self.carried_bytes += size
        self.commons.carried_bytes += size
        if self.carried_bytes > CARRIED_BYTES // 2:
            self._carries_little.clear()
        else:
            self._carries_little.set()
        self._note_kept()

    @property
    def carries_too_much(self) -> bool:
        """Whether more messages wait for the client, or for all, than may wait for clients that do not read."""
        most = CARRIED_SHARE * self.commons.settings.kept_bytes
        return self.carried_bytes > CARRIED_BYTES or self.commons.carried_bytes > most

    async def until_room(self, size: int) -> None:
        """Wait until the operating system takes so many bytes, or has passed on all that it got, or the connection is lost."""
        pause = SHORTEST_LOOK
        while not self.is_lost and not self.has_room_for(max(size, 1)):
            # Nothing tells when it passes bytes on, as long as none waits here.
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK)

    # Time.

    def _check_opened(self) -> None:
        if self.engine.peer is None and self._transport is not None:
            LOGGER.warning("not_opened peer=%s within=%g", self.name, OPENED_WITHIN)
            self._abort()

    def _beat(self) -> None:
        """Keep the connection alive, and see whether the client does."""
        limits, now = self.engine.limits, self._loop.time()
        if now - self._heard > 2 * limits.idle_ms / 1000 and not self._pauses:
            LOGGER.warning("silent peer=%s for=%.0f", self.name, now - self._heard)
            self.engine.close(
                AmqpError(
                    RESOURCE_LIMIT_EXCEEDED,
                    f"nothing was heard for {now - self._heard:.0f} s: the connection is closed",
                )
            )
            self.flush()
            self._close_socket(at_once=True)
            return
        self.engine.heartbeat()
        self.flush()
        self._set_alarm()

    def _set_alarm(self) -> None:
        peer = self.engine.peer
        seconds = self.engine.limits.idle_ms / 1000
        if peer is not None and peer.idle_time_out:
            seconds = min(seconds, max(SHORTEST_HEARTBEAT, peer.idle_time_out / 3000))
        self._alarm = self._loop.call_later(seconds, self._beat)

    # Events.

    def _handle(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _delivered(self, event: Delivered) -> None:
        node = self.nodes.get(event.link)
        if node is None:
            self.transactions.fail(event.delivery.state, _LOST)
        else:
            node.delivered(event.delivery)

    def _disposed(self, event: Disposed) -> None:
        node = self.nodes.get(event.link)
        if node is None:
            self.transactions.fail(event.state, _LOST)
        else:
            node.disposed(event.deliveries, event.state, event.settled)

    def _discarded(self, event: Discarded) -> None:
        self.transactions.fail(event.state, _LOST)

    def _flowed(self, event: LinkFlowed) -> None:
        self.tell_flowed(event.link)

    def tell_flowed(self, link: Link) -> None:
        """Tell the node of a link of its credit, or of room in the client's window."""
        if link in self.nodes:
            self.nodes[link].flowed()

    def _attached(self, event: LinkAttached) -> None:
        self._opening[event.link] = self.start(self._attach(event.link))

    def _opened(self, event: Opened) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._set_alarm()
        properties: Mapping[Any, Any] = fields_of(event.open.properties)
        client = properties.get("user-agent") or properties.get("product")
        self.is_java = str(client).startswith("azsdk-java")
        LOGGER.info(
            "connection_opened peer=%s container=%s client=%s",
            self.name,
            shown_name(event.open.container_id),
            shown_name(client),
        )

    def _log_in(self, mechanism: str, response: bytes) -> None:
        policies = self.commons.settings.policies
        if policies is not None and mechanism == PLAIN:
            log_in(self.claims, policies, response, self.address)
            self.noted_claim()

    def _closed(self, event: Closed) -> None:
        self.commons.tally.broken += event.error is not None
        error = event.error or event.by_peer
        if error is not None:
            LOGGER.warning("connection_closed peer=%s error=%s", self.name, shown_error(error))
        else:
            LOGGER.info("connection_closed peer=%s", self.name)

    async def _attach(self, link: Link) -> None:
        async with self._openings.slot():
            await self._open(link)

    async def _open(self, link: Link) -> None:
        node: Node | None = None
        try:
            node = self._node_factory.create_node(self, link)
            await node.open()
        except Exception as error:  # noqa: BLE001 - the client is told
            problem = to_amqp_error(error, self._node_factory.entity_of(link))
            name = shown_name(link.attach.name)
            LOGGER.info("link_refused peer=%s link=%s error=%s", self.name, name, shown_error(problem))
            if (task := self._opening.pop(link, None)) is not None:
                self._note_closing(task)
            if node is not None:
                await node.close()
            link.refuse(problem)
        except asyncio.CancelledError:
            # The client, or its link, went meanwhile.
            if node is not None:
                await node.close()
            raise
        else:
            if self._opening.pop(link, None) is None:
                # It went in the moment at which the node was open.
                await node.close()
                return
            self.nodes[link] = node
            # Both may have changed while the node was opened.
            if self._check_claim(link, node):
                node.flowed()
        self.flush()

    def fail_unfinished(self, name: bytes) -> None:
        """Have a transaction fail if frames of a message that is part of it are missing."""
        for session in self.engine.sessions.values():
            for link in session.links.values():
                state = None if link.partial is None else link.partial.state
                if isinstance(state, TransactionalState) and state.txn_id == name:
                    self.transactions.fail(state, _INCOMPLETE)

    def _detached(self, link: Link) -> None:
        self.transactions.fail(link.cut_off, _INCOMPLETE)
        for deleted in link.unsent:
            self.commons.undelivered.put(deleted)
        link.unsent.clear()
        self._end_node(link)

    def _end_node(self, link: Link) -> None:
        """Have the node of a link end, also one that is being opened."""
        task, node = self._opening.pop(link, None), self.nodes.pop(link, None)
        if task is not None:
            task.cancel()
        elif node is not None:
            task = self.start(self._close_node(node))
        if task is not None:
            self._note_closing(task)

    def _note_closing(self, task: asyncio.Task[None]) -> None:
        """Wait for a task before the client is let go of."""
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_node(self, node: Node) -> None:
        async with self._endings.slot():
            await node.close()

    def _check_claims(self) -> None:
        """Detach the links that no claim allows any more."""
        self._check_claims_of(list(self.nodes.items()))

    def _check_claims_of(self, links: Sequence[tuple[Link, Node]]) -> None:
        for link, node in links[:CHECKED_AT_ONCE]:
            if link in self.nodes:
                self._check_claim(link, node)
        if len(links) > CHECKED_AT_ONCE:
            self._loop.call_soon(self._check_claims_of, links[CHECKED_AT_ONCE:])

    def _check_claim(self, link: Link, node: Node) -> bool:
        """Return whether a claim allows a link; detach it if none does."""
        try:
            if node.needs_claims:
                self._node_factory.check_claims(self, link)
        except AmqpError as error:
            self.detach(link, error)
            return False
        return True

    def detach(self, link: Link, error: AmqpError | None) -> None:
        """Detach a link, for a reason if there is one."""
        link.detach(error)
        self._detached(link)
        self.flush_soon()

    # Tasks.

    def start(self, work: Coroutine[Any, Any, None], *, is_work: bool = False) -> asyncio.Task[None]:
        """Do some work in the background; its errors are logged.

        Args:
            work: The work.
            is_work: Whether the client waits for its end, so that the connection is not closed before.
        """
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if is_work:
            self._work.add(task)
            task.add_done_callback(self._work_ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOGGER.error("unexpected error peer=%s", self.name, exc_info=error)

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        self._has_ended.set()

    async def _let_go(self) -> None:
        """Let go of everything that the connection had."""
        try:
            pace = Pace()
            for link in [*self._opening, *self.nodes]:
                self._end_node(link)
                await pace.keep()
            while self._closing:
                await asyncio.wait(self._closing)
            self.claims.close()
            await self.transactions.close()
            if self._work:
                # The messages that they delete may be kept for others.
                await asyncio.wait(self._work)
        finally:
            self.commons.remove(self)
            self.engine.forget()
            self._gone.set()

    async def close(self) -> None:
        """Close the connection, and let go of everything that it had."""
        if self._transport is None:
            return
        self.is_ending = True
        self._pause("end of the gateway")
        # Answers to what is under way come before the end: a client would do it again.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_idle(), WORK_WITHIN)
        self._go_on("end of the gateway")
        # No link is detached before: some clients take that for the end of the link, and would not attach it again.
        self.engine.close(AmqpError(CONNECTION_FORCED, "the gateway is stopped: connect again"))
        self.flush()
        # Also if it was not open yet, so that there is nothing to answer.
        self._close_socket(at_once=False)
        await self._gone.wait()


def _unsent_bytes(transport: asyncio.Transport) -> int:
    """Return how many bytes that were written to a socket the operating system does not have yet."""
    # Below TLS there is a transport of its own, of which only asyncio's private parts know.
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return transport.get_write_buffer_size() + (0 if below is None else below.get_write_buffer_size())


class BaseNode:
    """The behaviour of most nodes.

    Args:
        peer: The client.
        link: Its link.
    """

    needs_claims = False

    def __init__(self, peer: Peer, link: Link) -> None:
        self.peer = peer
        self.link = link

    def flowed(self) -> None:
        """Do nothing."""

    def delivered(self, delivery: IncomingDelivery) -> None:
        """Refuse: messages do not come here."""
        del delivery
        raise AmqpError(NOT_ALLOWED, f"nothing is sent to {self.link!r}")

    def disposed(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Note that the client settled what it was sent."""
        del state, settled
        self.link.forget(deliveries)

    async def close(self) -> None:
        """Do nothing."""
