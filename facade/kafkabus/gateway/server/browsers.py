"""Nodes at which clients look at messages that stay where they are."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkabus._async.receiving.peek import MessagePeeker
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus._core.record import size_of
from kafkabus._runtime.turns import Pace
from kafkabus.gateway.amqp.conditions import NOT_ALLOWED, AmqpError
from kafkabus.gateway.amqp.deliveries import OutgoingDelivery
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import SETTLED, Accepted, Composite, Rejected, TransactionalState, error_of
from kafkabus.gateway.server.messages import encode_message
from kafkabus.gateway.server.peer import BaseNode
from kafkabus.gateway.server.sources import AskedSource
from kafkabus.gateway.server.transactions import in_transaction
from kafkabus_mapping.names import EntityPath

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

AT_ONCE: Final = 100
"""The most messages that are looked at at once."""
MOST_FRAMES_WAITING: Final = 10
"""How many frames may wait for the client's window before no more messages are looked at."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
"""How long, in seconds, a client waits at the end before it is seen whether messages have come: first, and at last."""


class BrowserNode(BaseNode):
    """Sends copies of the messages of a queue or a subscription over a link, each once, and leaves the messages alone.

    Args:
        peer: The client.
        link: Its link.
        path: The queue or subscription, with its sub-queue.
        asked: The source that the client asks for.
    """

    needs_claims = True

    def __init__(self, peer: Peer, link: Link, path: EntityPath, asked: AskedSource) -> None:
        super().__init__(peer, link)
        self._asked = asked
        self._path = path
        self._peeker = MessagePeeker()
        self._is_settled = link.attach.snd_settle_mode == SETTLED
        self._pump: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()

    async def open(self) -> None:
        """Accept the link if there is such an entity.

        Raises:
            ServiceBusError: There is none.
            AmqpError: The client asks for something that is not in force.
        """
        asked = self._asked
        await self.peer.namespace.entity_with_messages(self._path)
        if asked.session_id is not None:
            self._peeker.keep_to(asked.session_id)
        self.link.accept(source=asked.granted(asked.session_id), max_message_size=self.peer.engine.limits.message_bytes)
        self._pump = self.peer.tasks.start(self._run())

    def on_flow(self) -> None:
        """Go on with another credit, or give up what is left of it."""
        if self.link.credit > 0 or self.link.drain:
            self._wanted.set()

    def on_disposition(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Answer as if the message were settled: it is a copy. A transaction that is to settle it fails."""
        outcome: Composite = Accepted()
        if isinstance(state, TransactionalState):
            error = AmqpError(
                NOT_ALLOWED, f"{self._path}: copies that a browser gets are not settled, also in no transaction"
            )
            self.peer.transactions.fail(state, error)
            outcome = in_transaction(state, Rejected(error_of(error)))
        if settled:
            self.link.forget(deliveries)
        elif state is not None:
            self.link.settle(deliveries, outcome)
        self._wanted.set()

    async def _run(self) -> None:
        """Send messages as long as the link is attached."""
        link, wait = self.link, FIRST_WAIT
        try:
            while link.is_attached:
                self._wanted.clear()
                messages = await self._next() if self._is_ready else []
                sent = await self._send(messages)
                await self.peer.load.wait_for_turn(hurries=link.drain)
                if sent:
                    wait = FIRST_WAIT
                if messages and (sent or self._is_ready):
                    continue
                if link.drain:
                    link.give_up_credit()
                    self.peer.outbox.flush_soon()
                await self._rest(wait)
                wait = min(2 * wait, LONGEST_WAIT)
        except Exception as error:  # noqa: BLE001 - reported to the client
            problem = await self.peer.namespace.to_link_error(error, self._path)
            if link.is_attached:
                self.peer.links.detach(link, problem)

    async def _send(self, messages: Sequence[ServiceBusReceivedMessage]) -> int:
        """Send messages as long as the client takes them; return how many. The others are looked at again."""
        link, peer, sent, pace = self.link, self.peer, 0, Pace()
        carried = sum(size_of(receipt_of(message).record) for message in messages)
        peer.load.carry(carried)
        try:
            while sent < len(messages) and link.is_attached and self._is_ready and peer.socket.can_write.is_set():
                payload = encode_message(messages[sent], for_java=peer.is_java)
                link.send(uuid.uuid4().bytes, payload, settled=self._is_settled)
                sent += 1
                peer.outbox.add_message(len(payload))
                await pace.keep()
        finally:
            peer.load.carry(-carried)
        self._peeker.put_back(messages[sent:])
        return sent

    @property
    def _is_ready(self) -> bool:
        """Whether the client takes messages: it has given credit, has room, and has settled most of the copies that it got."""
        link, peer = self.link, self.peer
        most = peer.commons.settings.unsettled
        return (
            link.credit > 0
            and link.session.window.waiting < MOST_FRAMES_WAITING
            and link.unsettled < most
            and not peer.is_ending
        )

    async def _next(self) -> list[ServiceBusReceivedMessage]:
        namespace = self.peer.namespace
        entity = await namespace.entity(self._path)
        count = min(self.link.credit, AT_ONCE, self.peer.commons.settings.unsettled - self.link.unsettled)
        messages = await self._peeker.look_on(namespace.context.receiving.peek_parts, entity, count)
        return messages if self.link.is_attached else []

    async def _rest(self, wait: float) -> None:
        """Wait until the client wants more; if it does already, a while, because there were none."""
        resting = asyncio.ensure_future(self._wanted.wait())
        if self.link.credit > 0:
            self.link.session.window.await_room(self.link, 1)
        try:
            await asyncio.wait([resting], timeout=wait if self._is_ready else None)
        finally:
            resting.cancel()

    async def close(self) -> None:
        """End the link."""
        if self._pump is not None and not self._pump.done():
            self._pump.cancel()
            await asyncio.wait([self._pump])
