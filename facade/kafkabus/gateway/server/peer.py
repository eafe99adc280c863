"""One client's connection: the engine that speaks AMQP, and what the client's socket, links and tasks have in common."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final

from kafkabus._runtime.log_format import shown_error, shown_name
from kafkabus.gateway.amqp.conditions import CONNECTION_FORCED, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED, AmqpError
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
from kafkabus.gateway.server.client_links import INCOMPLETE, ClientLinks, NodeFactory
from kafkabus.gateway.server.client_load import ClientLoad
from kafkabus.gateway.server.client_socket import ClientSocket
from kafkabus.gateway.server.client_tasks import ClientTasks
from kafkabus.gateway.server.commons import Commons
from kafkabus.gateway.server.connection_claims import Claims
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.index import Index
from kafkabus.gateway.server.keepalive import Keepalive
from kafkabus.gateway.server.logins import PLAIN, log_in, offered
from kafkabus.gateway.server.namespace import ServedNamespace
from kafkabus.gateway.server.outbox import Outbox
from kafkabus.gateway.server.service_bus_conditions import MESSAGE_LOCK_LOST
from kafkabus.gateway.server.transactions import Transactions

LOGGER = logging.getLogger("kafkabus.gateway")

RIGHT_WITHIN: Final = 30.0
"""How long, in seconds, a client may be connected without a right, if policies give rights."""
LINK_BYTES: Final = 6_000
"""About how many bytes the gateway keeps for a link."""
UNSETTLED_BYTES: Final = 400
"""About how many bytes the gateway keeps for a message that a client holds."""
WORK_WITHIN: Final = 3.0
"""How long, in seconds, a gateway that ends waits for the work that clients have asked for."""

_LOST: Final = AmqpError(
    MESSAGE_LOCK_LOST, "a message was sent, or settled, over a link that is gone: attach a link, and begin again"
)


class PeerRequests:
    """The requests of one client.

    Attributes:
        replies: The nodes that take answers.
        reading: Held while a request is read, so that many do not keep other clients waiting.
        scheduling: Held while a request's many messages are scheduled, for the same reason.
    """

    def __init__(self) -> None:
        self.replies: Index[Any] = Index()
        self.reading = asyncio.Lock()
        self.scheduling = asyncio.Lock()


class Peer:
    """A client.

    Args:
        commons: The resources that all clients share.
        namespace: The namespace.
        node_factory: Creates the nodes of the client's links.

    Attributes:
        commons: The resources that all clients share.
        namespace: The namespace.
        engine: Speaks AMQP.
        socket: The client's socket.
        outbox: The way of the engine's output to the socket.
        tasks: The client's tasks.
        keepalive: Keeps the connection alive.
        load: The amounts that the client makes the gateway keep, with their bounds.
        links: The client's links, with their nodes.
        requests: The client's requests.
        claims: The client's permissions.
        transactions: The client's transactions.
        is_java: Whether the client is Azure's SDK for Java.
        is_ending: Whether it will be closed: nothing new begins.
    """

    def __init__(self, commons: Commons[Peer], namespace: ServedNamespace, node_factory: NodeFactory[Peer]) -> None:
        self.commons = commons
        self.namespace = namespace
        settings = commons.settings
        self.engine = Connection(
            f"kafkabus-{uuid.uuid4().hex}", offered(settings.policies), settings.limits, self._log_in
        )
        self.socket = ClientSocket(self, commons.incoming)
        self.outbox = Outbox(self.engine.output, self.socket, commons.undelivered, self._on_flush)
        self.tasks = ClientTasks(self.socket)
        self.keepalive = Keepalive(self.engine, self.socket, self.outbox)
        self.load = ClientLoad(commons, self.socket, self._note_kept)
        self.links = ClientLinks(self, node_factory, commons.undelivered)
        self.requests = PeerRequests()
        self.claims = Claims(settings.policies, self.links.check_claims)
        self.transactions = Transactions(
            namespace.client.transaction, settings.transactions, commons.transaction_room, self.tasks.start
        )
        self.is_java = self.is_ending = False
        self._events = PeerEvents(self)
        self._right: asyncio.TimerHandle | None = None
        self._waits_for_turn = self._is_cut = False
        # Set when the engine was lost, and when everything was let go of after that.
        self._is_lost = False
        self._is_gone = asyncio.Event()

    @property
    def network(self) -> str:
        """The network under which the client counts."""
        return self.socket.network

    # The socket.

    def on_connect(self) -> None:
        """Count the client, and expect that it opens the connection."""
        if not self.commons.add(self):
            LOGGER.warning("connection_refused peer=%s connections=%d", self.socket.name, len(self.commons.clients))
            self.socket.abort()
            return
        self.keepalive.await_open()
        if self.commons.settings.policies is not None:
            self._expect_right()

    def on_read(self, data: bytes | memoryview) -> None:
        """Take bytes of the client; they are looked at in its turn."""
        self.engine.feed(data)
        self.commons.turns.begin(self)

    def on_writable(self) -> None:
        """Note that the client has read what was sent to it."""
        self.load.largest_answer = 0
        self._note_kept()

    def on_end_of_input(self) -> None:
        """Forget what has gone out: a message that the client has read would go to another one as well."""
        self.outbox.look_at_way()

    def on_lost(self, *, is_all_sent: bool) -> None:
        """Let go of everything when all was done that the client has asked for.

        Args:
            is_all_sent: Whether the operating system has got all bytes that were written.
        """
        self.keepalive.stop()
        if self._right is not None:
            self._right.cancel()
        self.outbox.stop_looking()
        self.commons.release(self)
        self.tasks.note_change()
        self.transactions.lose()
        if is_all_sent:
            self.outbox.forget_sent()
        if not self._waits_for_turn:
            self._lose()

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self.engine.lose()
        self.outbox.give_up()
        self.links.give_up_unsent()
        self.tasks.start(self._let_go())

    async def _let_go(self) -> None:
        """Let go of everything that the connection had."""
        try:
            await self.links.close()
            self.claims.close()
            await self.transactions.close()
            # The messages that they delete may be kept for others.
            await self.tasks.wait_for_requested()
        finally:
            self.commons.remove(self)
            self.engine.forget()
            self._is_gone.set()

    # Turns.

    def step(self) -> bool:
        """Do what the client's next frame asks for; return whether there was one."""
        try:
            events = self.engine.step()
            for event in events or ():
                self._events.handle(event)
        except Exception as error:  # noqa: BLE001 - an internal error costs this connection only
            self.engine.close(to_amqp_error(error))
            return True
        return events is not None

    def fail(self) -> None:
        """End the connection."""
        self.socket.abort()

    def end_turn(self, *, is_through: bool) -> None:
        """Send what there is to say; read on, unless frames are left, for which there will be another turn."""
        self._waits_for_turn = not is_through
        self.outbox.flush()
        if not is_through:
            self.socket.pause("turn")
            return
        self.socket.resume("turn")
        if self.engine.is_held:
            self.socket.pause("end")
        else:
            self.socket.resume("end")
        self.tasks.note_change()
        if self.socket.is_lost:
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
                self.on_read(b"")
            self.tasks.note_change()

    @property
    def holds_ends(self) -> bool:
        """Whether an end that the client asked for is held back; nothing may begin that would hold it back for longer."""
        return self.engine.is_held

    async def wait_for_ends(self) -> None:
        """Wait until no end is held back."""
        await self.tasks.wait_while(lambda: self.engine.is_held)

    @property
    def is_open(self) -> bool:
        """Whether the client takes what is sent to it."""
        return not (self.socket.is_lost or self.engine.is_closing)

    # Bounds.

    def _on_flush(self) -> None:
        self._note_kept()
        if self.engine.is_closing:
            self.socket.close_in_time(is_answered=self.engine.is_closed)

    def _note_kept(self) -> None:
        """Count what the client makes the gateway keep."""
        if self._is_cut or self.socket.is_closing or self.engine.is_closing:
            # Nothing more is done to a client that is going, for others.
            self.commons.budget.note(self, 0)
        else:
            self.commons.budget.note(self, self.engine.kept_bytes + self.load.answer_bytes, self.shared_bytes)

    @property
    def shared_bytes(self) -> int:
        """The bytes that count in total alone; see ``Budget.note``."""
        usage, load = self.engine.usage, self.load
        lasting = self.claims.kept_bytes + LINK_BYTES * usage.links + UNSETTLED_BYTES * usage.unsettled
        return lasting + max(0, self.socket.buffered_bytes - load.largest_answer) + load.carried_bytes

    def end_for_bytes(self) -> None:
        """Close the connection: the client makes the gateway keep too much."""
        LOGGER.warning(
            "keeps_too_much peer=%s bytes=%d shared=%d links=%d",
            self.socket.name,
            self.engine.kept_bytes + self.load.answer_bytes,
            self.shared_bytes,
            len(self.links.nodes),
        )
        self._cut(
            "the client makes the gateway keep too many bytes: it does not read answers, does not end messages that it began, "
            "or has many links, messages and claims"
        )

    def end_without_right(self) -> None:
        """Close the connection: the client has no right, and others need its place."""
        LOGGER.warning("without_right peer=%s", self.socket.name)
        self._cut("the client has no right, by login or by a token that it put to $cbs: connect again with a key")

    def _cut(self, why: str) -> None:
        self._is_cut = True
        self.engine.close(AmqpError(RESOURCE_LIMIT_EXCEEDED, why))
        self.outbox.flush()
        if self.socket.buffered_bytes:
            self.socket.abort()
        else:
            self.socket.close()

    def _check_right(self) -> None:
        """Close the connection if the client has no right; else look again, as rights end."""
        if not self.claims.has_any:
            self.end_without_right()
            return
        self._expect_right()

    def _expect_right(self) -> None:
        self._right = asyncio.get_running_loop().call_later(RIGHT_WITHIN, self._check_right)

    def on_claim(self) -> None:
        """Note that the client has put a claim."""
        if self.claims.has_any:
            self.commons.strangers.discard(self)

    def _log_in(self, mechanism: str, response: bytes) -> None:
        policies = self.commons.settings.policies
        if policies is not None and mechanism == PLAIN:
            log_in(self.claims, policies, response, self.socket.address)
            self.on_claim()

    def fail_unfinished(self, name: bytes) -> None:
        """Have a transaction fail if frames of a message that is part of it are missing."""
        for link in self.engine.sessions.links:
            state = None if link.partial is None else link.partial.state
            if isinstance(state, TransactionalState) and state.txn_id == name:
                self.transactions.fail(state, INCOMPLETE)

    async def close(self) -> None:
        """Close the connection, and let go of everything that it had."""
        if self.socket.transport is None:
            return
        self.is_ending = True
        self.socket.pause("end of the gateway")
        # Answers to what is under way come before the end: a client would do it again.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.tasks.wait_while(self._is_busy), WORK_WITHIN)
        self.socket.resume("end of the gateway")
        # No link is detached before: some clients take that for the end of the link, and would not attach it again.
        self.engine.close(AmqpError(CONNECTION_FORCED, "the gateway is stopped: connect again"))
        self.outbox.flush()
        # Also if it was not open yet, so that there is nothing to answer.
        self.socket.close_in_time(is_answered=False)
        await self._is_gone.wait()

    def _is_busy(self) -> bool:
        """Return whether the client waits for something that is under way."""
        return bool(self.tasks.is_any_requested or self.engine.holds or self._waits_for_turn)


class PeerEvents:
    """Handles what the engine says of one client.

    Args:
        peer: The client.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def handle(self, event: Event) -> None:
        """Do what an event asks for."""
        self._handlers[type(event)](self, event)

    def _on_delivery(self, event: Delivered) -> None:
        node = self._peer.links.nodes.get(event.link)
        if node is None:
            self._peer.transactions.fail(event.delivery.state, _LOST)
        else:
            node.on_delivery(event.delivery)

    def _on_disposition(self, event: Disposed) -> None:
        node = self._peer.links.nodes.get(event.link)
        if node is None:
            self._peer.transactions.fail(event.state, _LOST)
        else:
            node.on_disposition(event.deliveries, event.state, event.settled)

    def _on_discard(self, event: Discarded) -> None:
        self._peer.transactions.fail(event.state, _LOST)

    def _on_flow(self, event: LinkFlowed) -> None:
        self._peer.links.on_flow(event.link)

    def _on_attach(self, event: LinkAttached) -> None:
        self._peer.links.attach(event.link)

    def _on_detach(self, event: LinkDetached) -> None:
        self._peer.links.on_detach(event.link)

    def _on_open(self, event: Opened) -> None:
        if not self._peer.socket.is_lost:
            self._peer.keepalive.start()
        properties: Mapping[Any, Any] = fields_of(event.open.properties)
        client = properties.get("user-agent") or properties.get("product")
        self._peer.is_java = str(client).startswith("azsdk-java")
        LOGGER.info(
            "connection_opened peer=%s container=%s client=%s",
            self._peer.socket.name,
            shown_name(event.open.container_id),
            shown_name(client),
        )

    def _on_close(self, event: Closed) -> None:
        self._peer.commons.tally.broken += event.error is not None
        error = event.error or event.by_peer
        if error is not None:
            LOGGER.warning("connection_closed peer=%s error=%s", self._peer.socket.name, shown_error(error))
        else:
            LOGGER.info("connection_closed peer=%s", self._peer.socket.name)

    _handlers: ClassVar[Mapping[type[Event], Callable[..., None]]] = {
        Delivered: _on_delivery,
        Disposed: _on_disposition,
        Discarded: _on_discard,
        LinkFlowed: _on_flow,
        LinkAttached: _on_attach,
        LinkDetached: _on_detach,
        Opened: _on_open,
        Closed: _on_close,
    }


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

    def on_flow(self) -> None:
        """Do nothing."""

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """Refuse: messages do not come here."""
        del delivery
        raise AmqpError(NOT_ALLOWED, f"nothing is sent to {self.link!r}")

    def on_disposition(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Note that the client settled what it was sent."""
        del state, settled
        self.link.forget(deliveries)

    async def close(self) -> None:
        """Do nothing."""
