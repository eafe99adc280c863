"""The gateway: listens, and has what all of its clients share."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any

from typing_extensions import Self

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.enums import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode, ServiceBusSubQueue
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus._runtime.turns import FairLock, Turns
from kafkabus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.gateway.amqp.conditions import DETACH_FORCED, NOT_ALLOWED, AmqpError
from kafkabus.gateway.amqp.events import Limits
from kafkabus.gateway.amqp.performatives import Coordinator, Target
from kafkabus.gateway.amqp.session import Link
from kafkabus.gateway.claims import Policies
from kafkabus.gateway.server import rights
from kafkabus.gateway.server.addresses import CLAIMS, Address, parse, path_of
from kafkabus.gateway.server.browsers import BrowserNode
from kafkabus.gateway.server.budget import Budget, Strangers
from kafkabus.gateway.server.claims_node import ClaimsNode
from kafkabus.gateway.server.coordinator import CoordinatorNode
from kafkabus.gateway.server.errors import told
from kafkabus.gateway.server.management import ManagementNode
from kafkabus.gateway.server.peer import Node, Peer
from kafkabus.gateway.server.receivers import ReceiverNode
from kafkabus.gateway.server.requests import ReplyNode
from kafkabus.gateway.server.senders import SenderNode
from kafkabus.gateway.server.sources import AskedSource, refuse_dynamic
from kafkabus.gateway.server.transactions import SharedRoom, TransactionLimits
from kafkabus.gateway.server.undelivered import Undelivered
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath

LOGGER = logging.getLogger("kafkabus.gateway")

STORING_HELD = 1.0
"""After how long, in seconds, those of the next client begin in any case: a partition may have no leader."""
LISTING_HELD = 0.5
"""After how long, in seconds, a list that waits for something lets the next one begin."""
HANDSHAKE_WITHIN = 10.0
"""How long, in seconds, a client may take to agree on TLS."""
READ_BYTES = 1 << 18
"""How many bytes are read from a client's socket at once."""


@dataclass(frozen=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        limits: Bounds of each connection.
        connections: The most connections.
        credit: How many messages a client may send over a link before the first is stored.
        unsettled: How many messages a client may hold over a link.
        held_bytes: How many bytes of a client may wait to be stored before no more are read.
        all_held_bytes: How many bytes of all clients may wait to be stored before less is read of each.
        kept_bytes: How many bytes all clients may make the gateway keep: of messages that they have begun, of answers that
            they do not take, of links and claims. The client that has the most at the address that has the most is ended for
            others.
        address_bytes: How many of these bytes the clients of one address may have.
        policies: The policies that clients' tokens are checked against; None: they are carried, and not checked.
        transactions: Bounds of a client's transactions.
    """

    limits: Limits = field(default_factory=Limits)
    connections: int = 10_000
    credit: int = 1_000
    unsettled: int = 10_000
    held_bytes: int = 16 * 1024 * 1024
    all_held_bytes: int = 256 * 1024 * 1024
    kept_bytes: int = 256 * 1024 * 1024
    address_bytes: int = 24 * 1024 * 1024
    policies: Policies | None = None
    transactions: TransactionLimits = field(default_factory=TransactionLimits)


@dataclass
class Tally:
    """Counts of connections.

    Attributes:
        opened: Those that were made.
        refused: Those beyond the most.
        broken: Those that were closed for an error of the client.
    """

    opened: int = 0
    refused: int = 0
    broken: int = 0


class Gateway:
    """A gateway to a namespace.

    Args:
        connection_string: The namespace, with the addresses of Kafka and Redis.
        settings: Settings.

    Attributes:
        settings: Settings.
        client: The namespace's client, which all peers share.
        administration: The namespace's administration client.
        peers: The clients that are connected.
        held_bytes: How many bytes of clients' messages wait to be stored.
        carried_bytes: How many bytes of messages were claimed for clients, and not sent yet.
        budget: The bytes that clients make the gateway keep.
        strangers: The clients without a right, if policies give rights: up to half of the connections, half of these from one
            address.
        tally: Counts of connections.
        transaction_room: The room that the transactions of all clients share.
        undelivered: Messages that were received and deleted for clients that were lost then.
        session_holders: The links that hold sessions, by place and session; each until its event, when the session was given
            up.
        turns: The turns that clients have.
        parsing: Held while a large message or request is parsed: many at once would keep others waiting.
        storing: Held while many messages of a client are stored: more would fill the line to Kafka, which all clients share.
        listing: Held while all sessions or rules of an entity are asked for: many lists would keep others waiting.
        incoming: Memory for what a socket gives; all peers share it, as each takes its bytes before the next one reads.
        is_closing: Whether it was closed.
    """

    def __init__(self, connection_string: str, settings: GatewaySettings | None = None) -> None:
        self.settings = settings or GatewaySettings()
        self.client = ServiceBusClient.from_connection_string(connection_string)
        self.administration = ServiceBusAdministrationClient.from_connection_string(connection_string)
        self.peers: set[Peer] = set()
        settings = self.settings
        self.budget = Budget[Peer](settings.address_bytes, settings.kept_bytes, Peer.end_for_bytes)
        share = max(1, settings.connections // 2)
        self.strangers = Strangers[Peer](max(1, share // 2), share, Peer.end_without_right)
        self.held_bytes = self.carried_bytes = 0
        self.tally = Tally()
        self.undelivered = Undelivered()
        self.session_holders: dict[tuple[str, str], tuple[Link, asyncio.Event]] = {}
        self.turns = Turns()
        self.parsing = FairLock()
        self.storing = FairLock(STORING_HELD)
        self.listing = FairLock(LISTING_HELD)
        self.transaction_room: SharedRoom = SharedRoom(self.settings.transactions.total_bytes)
        # Memory of this size that each read would allocate anew leaves gaps in the heap that glibc does not give back.
        self.incoming = memoryview(bytearray(READ_BYTES))
        self._servers: list[asyncio.Server] = []
        self.is_closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def listen(
        self,
        host: str | Sequence[str] | None,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        share_port: bool = False,
    ) -> int:
        """Listen on a port; return its number.

        Args:
            host: The addresses to listen at; None for all.
            port: The port; 0 for any that is free.
            tls: Encrypts the connections if it is given.
            share_port: Whether other processes listen on the port as well.

        Raises:
            OSError: The port cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Peer(self),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_WITHIN,
            reuse_port=share_port or None,
            backlog=1_024,
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, close all connections, and let go of the namespace."""
        self.is_closing = True
        for server in self._servers:
            server.close()
        await asyncio.gather(*(peer.close() for peer in list(self.peers)))
        self.undelivered.report_lost()
        await self.client.close()
        await self.administration.close()

    # Clients.

    def joined(self, peer: Peer) -> bool:
        """Note a client that has connected; return whether it may stay."""
        self.tally.opened += 1
        if self.is_closing or len(self.peers) >= self.settings.connections:
            self.tally.refused += 1
            return False
        self.peers.add(peer)
        if self.settings.policies is not None:
            self.strangers.add(peer)
        return True

    def forget(self, peer: Peer) -> None:
        """Count a client whose connection was lost no more."""
        self.budget.note(peer, 0)
        self.strangers.discard(peer)

    def left(self, peer: Peer) -> None:
        """Note a client that is gone."""
        self.peers.discard(peer)

    def node_of(self, peer: Peer, link: Link) -> Node:
        """Return the node that a client attaches a link to.

        Raises:
            AmqpError: There is none, or the client may not use it.
        """
        asked, target = AskedSource(link.attach.source) if link.sends else None, link.attach.target
        if isinstance(target, Target) and not link.sends:
            refuse_dynamic(target)
        address = self.check_claims(peer, link)
        if isinstance(target, Coordinator):
            return CoordinatorNode(peer, link)
        if address is None:
            return ReplyNode(peer, link) if link.sends else ClaimsNode(peer, link)
        if address.is_management:
            return ReplyNode(peer, link) if link.sends else ManagementNode(peer, link, address.path)
        if asked is None:
            return SenderNode(peer, link, address.path)
        asked.is_of(address.path)
        kind = BrowserNode if asked.browses else ReceiverNode
        return kind(peer, link, address.path, asked)

    def check_claims(self, peer: Peer, link: Link) -> Address | None:
        """Return the address of a link to an entity's node, None for another node; check that the client may use it now.

        Raises:
            AmqpError: It may not, or there is no such node.
        """
        if isinstance(link.attach.target, Coordinator):
            peer.claims.check(None, *rights.TRANSACTING)
            return None
        path = _path_of(link)
        if path.lower() == CLAIMS:
            return None
        address = parse(path)
        needed = rights.RECEIVING if link.sends else rights.SENDING
        peer.claims.check(str(address.path), *(rights.MANAGING if address.is_management else needed))
        return address

    @staticmethod
    def entity_of(link: Link) -> str:
        """Return the entity that a link is about, for errors."""
        return _path_of(link)

    # The namespace.

    def sender(self, path: EntityPath) -> ServiceBusSender:
        """Return a sender to a queue or topic.

        Raises:
            AmqpError: It is neither.
        """
        if path.is_dead_letter or SUBSCRIPTIONS in path.name:
            raise AmqpError(NOT_ALLOWED, f"nothing can be sent to {path}: send to a queue or a topic")
        return self.client.get_queue_sender(path.name)

    def receiver(
        self,
        path: EntityPath,
        *,
        takes: bool = False,
        in_session: bool = False,
        session_id: str | None = None,
        wait: float | None = None,
    ) -> ServiceBusReceiver:
        """Return a receiver.

        Args:
            path: The queue or subscription, with its sub-queue.
            takes: Whether messages are deleted when they are received.
            in_session: Whether to receive from a session.
            session_id: Which one; None for the next that is available.
            wait: How long to wait for that session, in seconds.
        """
        options: dict[str, Any] = {
            "receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE if takes else ServiceBusReceiveMode.PEEK_LOCK,
            "sub_queue": ServiceBusSubQueue(path.sub_queue.value) if path.is_dead_letter else None,
        }
        if in_session:
            options["session_id"] = NEXT_AVAILABLE_SESSION if session_id is None else session_id
            options["max_wait_time"] = wait
        topic, separator, subscription = path.name.partition(SUBSCRIPTIONS)
        if separator:
            return self.client.get_subscription_receiver(topic, subscription, **options)
        return self.client.get_queue_receiver(path.name, **options)

    async def entity(self, path: EntityPath) -> Entity:
        """Return an entity.

        Raises:
            MessagingEntityNotFoundError: There is none.
        """
        return await self.context.catalog.entity(path)

    async def entity_with_messages(self, path: EntityPath) -> Entity:
        """Return an entity that messages are received from.

        Raises:
            MessagingEntityNotFoundError: There is none.
            AmqpError: It is a topic.
        """
        entity = await self.entity(path)
        if entity.is_topic:
            raise AmqpError(
                NOT_ALLOWED,
                f"{path} is a topic, and its subscriptions have its messages: name one of them in the address, as "
                f"{path}{SUBSCRIPTIONS}NAME",
            )
        return entity

    async def told(self, error: Exception, path: EntityPath) -> AmqpError:
        """Return an error of a link as the client is told it: a link whose entity was replaced may be attached again."""
        if isinstance(error, MessagingEntityNotFoundError):
            with suppress(ServiceBusError):
                self.context.catalog.look_up_again(await self.entity(path))
                await self.entity(path)
                return AmqpError(DETACH_FORCED, f"{path} was deleted and created again: attach the link again")
        return told(error, path)

    async def max_message_bytes(self, path: EntityPath) -> int:
        """Return how large a message to an entity may be.

        Raises:
            MessagingEntityNotFoundError: There is none.
        """
        return (await self.entity(path)).max_message_bytes

    @property
    def context(self) -> ClientContext:
        """The parts of the client."""
        return self.client._connections()

    def sessions(self, path: EntityPath, updated_after: datetime | None) -> AsyncIterator[str]:
        """Yield the ids of an entity's sessions.

        Raises:
            AmqpError: It is a dead-letter queue, which has none.
        """
        if path.is_dead_letter:
            raise AmqpError(NOT_ALLOWED, f"{path} has no sessions: ask for those of {path.name}")
        topic, separator, subscription = path.name.partition(SUBSCRIPTIONS)
        if separator:
            return aiter(self.client.list_subscription_sessions(topic, subscription, state_updated_after=updated_after))
        return aiter(self.client.list_queue_sessions(path.name, state_updated_after=updated_after))


def _path_of(link: Link) -> str:
    """Return the path of the node that a link is for."""
    end: Any = link.attach.source if link.sends else link.attach.target
    return path_of(getattr(end, "address", None))
