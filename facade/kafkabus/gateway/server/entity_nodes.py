"""The nodes of a namespace's addresses, and the rights that they need."""

from __future__ import annotations

from typing import Any

from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import Coordinator, Target
from kafkabus.gateway.server import rights
from kafkabus.gateway.server.addresses import CLAIMS, Address, parse, path_of
from kafkabus.gateway.server.browsers import BrowserNode
from kafkabus.gateway.server.claims_node import ClaimsNode
from kafkabus.gateway.server.client_links import Node
from kafkabus.gateway.server.coordinator import CoordinatorNode
from kafkabus.gateway.server.management import ManagementNode
from kafkabus.gateway.server.peer import Peer
from kafkabus.gateway.server.receivers import ReceiverNode
from kafkabus.gateway.server.requests import ReplyNode
from kafkabus.gateway.server.senders import SenderNode
from kafkabus.gateway.server.sources import AskedSource, refuse_dynamic


class EntityNodes:
    """Creates nodes for links by their addresses; see ``NodeFactory``.

    This is the second of four steps that decide whether a link is opened:

    1. ``Session._on_attach`` of ``amqp/session.py`` checks the bounds of the connection.
    2. ``create_node`` checks the address and the client's rights.
    3. The node's ``open`` checks the entity, locks a session if the client asks for one, and accepts the link.
    4. ``ClientLinks._open`` refuses the link with the error of step 2 or 3, if there is one; else it checks the rights again.
    """

    def create_node(self, peer: Peer, link: Link) -> Node:
        """Return a node for a link that a client attaches.

        Raises:
            AmqpError: There is none, or the client may not use it.
        """
        asked, target = AskedSource.read(link.attach.source) if link.sends else None, link.attach.target
        if isinstance(target, Target) and not link.sends:
            refuse_dynamic(target)
        self.check_claims(peer, link)
        if isinstance(target, Coordinator):
            return CoordinatorNode(peer, link)
        address = address_of(link)
        if address is None:
            return ReplyNode(peer, link) if link.sends else ClaimsNode(peer, link)
        if address.is_management:
            return ReplyNode(peer, link) if link.sends else ManagementNode(peer, link, address.path)
        if asked is None:
            return SenderNode(peer, link, address.path)
        asked.decide_for(address.path)
        kind = BrowserNode if asked.browses else ReceiverNode
        return kind(peer, link, address.path, asked)

    def check_claims(self, peer: Peer, link: Link) -> None:
        """Check that the client may use a link now.

        Raises:
            AmqpError: It may not, or there is no such node.
        """
        if isinstance(link.attach.target, Coordinator):
            peer.claims.check(None, *rights.TRANSACTING)
            return
        address = address_of(link)
        if address is not None:
            needed = rights.RECEIVING if link.sends else rights.SENDING
            peer.claims.check(str(address.path), *(rights.MANAGING if address.is_management else needed))

    def entity_of(self, link: Link) -> str:
        """Return the entity that a link is about, for errors."""
        return _path_of(link)


def address_of(link: Link) -> Address | None:
    """Return the address of the node that a link is for; None if that is the node for claims.

    Raises:
        AmqpError: There is no such node.
    """
    path = _path_of(link)
    return None if path.lower() == CLAIMS else parse(path)


def _path_of(link: Link) -> str:
    """Return the path of the node that a link is for."""
    end: Any = link.attach.source if link.sends else link.attach.target
    return path_of(getattr(end, "address", None))
