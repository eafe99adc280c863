"""The links of one client of a gateway, each with its node: how they are opened, checked and ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from kafkabus._runtime.log_format import shown_error, shown_name
from kafkabus._runtime.turns import Pace, Slots
from kafkabus.gateway.amqp.conditions import TRANSACTION_ROLLBACK, AmqpError
from kafkabus.gateway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.server.client_socket import ClientSocket
from kafkabus.gateway.server.client_tasks import ClientTasks
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.outbox import Outbox
from kafkabus.gateway.server.transactions import Transactions
from kafkabus.gateway.server.undelivered import Undelivered

LOGGER = logging.getLogger("kafkabus.gateway")

CHECKED_AT_ONCE: Final = 500
"""The claims of how many links are checked before other clients have their turn."""
OPENED_AT_ONCE, ENDED_AT_ONCE, LINK_WITHIN = 20, 100, 0.05
"""How many links of a client are opened at a time, and how many ended; and how long, in seconds, one keeps others waiting.

A link that waits for a session takes long; all others take some milliseconds. Many at once would keep other clients waiting.
"""

INCOMPLETE: Final = AmqpError(TRANSACTION_ROLLBACK, "frames of a message of the transaction are missing")
"""The error of a transaction of which a message did not come as a whole."""


class Node(Protocol):
    """The end of a link; an instance for each link.

    Attributes:
        needs_claims: Whether the client needs claims to use it.
    """

    needs_claims: bool

    async def open(self) -> None:
        """Accept the link, or raise."""

    def on_flow(self) -> None:
        """Note that the link's credit was changed."""

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """Take a message."""

    def on_disposition(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Take the state of messages that were sent."""

    async def close(self) -> None:
        """Let go of everything: the link is gone."""


class LinkOwner(Protocol):
    """The client whose links they are."""

    @property
    def socket(self) -> ClientSocket:
        """Its socket."""
        ...

    @property
    def outbox(self) -> Outbox:
        """The way to its socket."""
        ...

    @property
    def tasks(self) -> ClientTasks:
        """Its tasks."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Its transactions."""
        ...


P = TypeVar("P", bound=LinkOwner)
P_contra = TypeVar("P_contra", bound=LinkOwner, contravariant=True)


class NodeFactory(Protocol[P_contra]):
    """Creates the nodes of links by their addresses."""

    def create_node(self, peer: P_contra, link: Link) -> Node:
        """Return a node for a link that a client attaches.

        Raises:
            AmqpError: There is none, or the client may not use it.
        """
        ...

    def check_claims(self, peer: P_contra, link: Link) -> None:
        """Check that the client may use a link now.

        Raises:
            AmqpError: It may not.
        """
        ...

    def entity_of(self, link: Link) -> str:
        """Return the entity that a link is about, for errors."""
        ...


class ClientLinks(Generic[P]):
    """The links of one client.

    Args:
        owner: The client.
        node_factory: Creates the nodes.
        undelivered: Gets the deleted messages that the client does not get.

    Attributes:
        nodes: The nodes of the links that are open.
    """

    def __init__(self, owner: P, node_factory: NodeFactory[P], undelivered: Undelivered) -> None:
        self.nodes: dict[Link, Node] = {}
        self._owner = owner
        self._node_factory = node_factory
        self._undelivered = undelivered
        self._opening: dict[Link, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._openings = Slots(OPENED_AT_ONCE, LINK_WITHIN)
        self._endings = Slots(ENDED_AT_ONCE, LINK_WITHIN)

    def on_flow(self, link: Link) -> None:
        """Notify the node of a link of its credit, or of room in the client's window."""
        if link in self.nodes:
            self.nodes[link].on_flow()

    # Opening.

    def attach(self, link: Link) -> None:
        """Open a link, or refuse it, in the background."""
        self._opening[link] = self._owner.tasks.start(self._open_in_turn(link))

    async def _open_in_turn(self, link: Link) -> None:
        """Open a link, or refuse it, once few enough others are being opened."""
        async with self._openings.slot():
            await self._open(link)

    async def _open(self, link: Link) -> None:
        """Create the node of a link and have it accept the link; if either raises, refuse the link.

        ``EntityNodes`` has all steps of this decision.
        """
        node: Node | None = None
        try:
            node = self._node_factory.create_node(self._owner, link)
            await node.open()
        except Exception as error:  # noqa: BLE001 - reported to the client
            problem = to_amqp_error(error, self._node_factory.entity_of(link))
            name = shown_name(link.attach.name)
            LOGGER.info("link_refused peer=%s link=%s error=%s", self._owner.socket.name, name, shown_error(problem))
            if (task := self._opening.pop(link, None)) is not None:
                self._note_closing(task)
            if node is not None:
                await node.close()
            link.refuse(problem)
        except asyncio.CancelledError:
            # The client or its link ended during the call.
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
            if self._check_claims_of(link, node):
                node.on_flow()
        self._owner.outbox.flush()

    # Claims.

    def check_claims(self) -> None:
        """Detach the links that no claim allows any more."""
        self._check_claims_of_all(list(self.nodes.items()))

    def _check_claims_of_all(self, links: Sequence[tuple[Link, Node]]) -> None:
        for link, node in links[:CHECKED_AT_ONCE]:
            if link in self.nodes:
                self._check_claims_of(link, node)
        if len(links) > CHECKED_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._check_claims_of_all, links[CHECKED_AT_ONCE:])

    def _check_claims_of(self, link: Link, node: Node) -> bool:
        """Return whether a claim allows a link; detach it if none does."""
        try:
            if node.needs_claims:
                self._node_factory.check_claims(self._owner, link)
        except AmqpError as error:
            self.detach(link, error)
            return False
        return True

    # Ending.

    def detach(self, link: Link, error: AmqpError | None) -> None:
        """Detach a link, for a reason if there is one."""
        link.detach(error)
        self.on_detach(link)
        self._owner.outbox.flush_soon()

    def on_detach(self, link: Link) -> None:
        """Let go of a link that is gone."""
        self._owner.transactions.fail(link.cut_off, INCOMPLETE)
        self._give_up_unsent(link)
        self._end_node(link)

    def _give_up_unsent(self, link: Link) -> None:
        self._undelivered.put_all(link.unsent)
        link.unsent.clear()

    def give_up_unsent(self) -> None:
        """Have other clients get the deleted messages that were not sent: the connection is lost."""
        for link in list(self.nodes):
            self._give_up_unsent(link)

    def _end_node(self, link: Link) -> None:
        """Have the node of a link end, also one that is being opened."""
        task, node = self._opening.pop(link, None), self.nodes.pop(link, None)
        if task is not None:
            task.cancel()
        elif node is not None:
            task = self._owner.tasks.start(self._close_node(node))
        if task is not None:
            self._note_closing(task)

    def _note_closing(self, task: asyncio.Task[None]) -> None:
        """Wait for a task before the client is let go of."""
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_node(self, node: Node) -> None:
        async with self._endings.slot():
            await node.close()

    async def close(self) -> None:
        """Let go of all links."""
        pace = Pace()
        for link in [*self._opening, *self.nodes]:
            self._end_node(link)
            await pace.keep()
        while self._closing:
            await asyncio.wait(self._closing)
