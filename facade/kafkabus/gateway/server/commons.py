"""The resources that all clients of a gateway share: bounds, turns, and messages kept for the next client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kafkabus._runtime.turns import FairLock, Turns
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.server.budget import Budget, Holder, Strangers
from kafkabus.gateway.server.listings import Listings
from kafkabus.gateway.server.settings import GatewaySettings
from kafkabus.gateway.server.transactions import SharedRoom
from kafkabus.gateway.server.undelivered import Undelivered

STORING_HELD = 1.0
"""After how long, in seconds, those of the next client begin in any case: a partition may have no leader."""
LISTING_HELD = 0.5
"""After how long, in seconds, a list that waits for something lets the next one begin."""
READ_BYTES = 1 << 18
"""How many bytes are read from a client's socket at once."""


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


class Client(Holder, Protocol):
    """A client that is connected."""

    def end_for_bytes(self) -> None:
        """Close the connection: the client makes the gateway keep too much."""

    def end_without_right(self) -> None:
        """Close the connection: the client has no right, and others need its place."""


C = TypeVar("C", bound=Client)


class Commons(Generic[C]):
    """The resources that all clients of a gateway share.

    Args:
        settings: The gateway's settings.

    Attributes:
        settings: The gateway's settings.
        clients: The clients that are connected.
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
        listings: The lists of sessions that clients get page by page.
        listing: Held while all sessions or rules of an entity are asked for: many lists would keep others waiting.
        incoming: Memory for what a socket gives, as each client takes its bytes before the next one reads.
        is_closing: Whether the gateway was closed.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.clients: set[C] = set()
        self.budget = Budget[C](settings.address_bytes, settings.kept_bytes, lambda client: client.end_for_bytes())
        share = max(1, settings.connections // 2)
        self.strangers = Strangers[C](max(1, share // 2), share, lambda client: client.end_without_right())
        self.held_bytes = self.carried_bytes = 0
        self.tally = Tally()
        self.undelivered = Undelivered()
        self.session_holders: dict[tuple[str, str], tuple[Link, asyncio.Event]] = {}
        self.turns = Turns()
        self.parsing = FairLock()
        self.storing = FairLock(STORING_HELD)
        self.listings = Listings()
        self.listing = FairLock(LISTING_HELD)
        self.transaction_room: SharedRoom = SharedRoom(settings.transactions.total_bytes)
        # Memory of this size, if each read allocated it, would leave gaps in the heap that glibc does not give back.
        self.incoming = memoryview(bytearray(READ_BYTES))
        self.is_closing = False

    def add(self, client: C) -> bool:
        """Count a client that has connected; return whether it may stay."""
        self.tally.opened += 1
        if self.is_closing or len(self.clients) >= self.settings.connections:
            self.tally.refused += 1
            return False
        self.clients.add(client)
        if self.settings.policies is not None:
            self.strangers.add(client)
        return True

    def release(self, client: C) -> None:
        """Release what a client whose connection was lost made the gateway keep."""
        self.budget.note(client, 0)
        self.strangers.discard(client)

    def remove(self, client: C) -> None:
        """Count a client no more that is gone."""
        self.listings.forget(client)
        self.clients.discard(client)
