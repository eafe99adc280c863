"""Nodes that answer requests: one link brings them, another one takes the answers."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Generator, Hashable, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkabus._runtime.turns import Pace
from kafkabus.gateway.amqp.conditions import CONNECTION_FORCED, MESSAGE_SIZE_EXCEEDED, AmqpError
from kafkabus.gateway.amqp.deliveries import IncomingDelivery
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import Accepted, Rejected, Target, error_of
from kafkabus.gateway.server.addresses import CLAIMS, path_of
from kafkabus.gateway.server.messages import LARGE, MOST_VALUES
from kafkabus.gateway.server.peer import BaseNode
from kafkabus.gateway.server.service_bus_conditions import ARGUMENT_ERROR
from kafkabus.gateway.server.transactions import Enlistment, in_transaction
from kafkabus.gateway.server.undelivered import Deleted
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp_values import nearest_value

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

AT_ONCE: Final = 100
"""How many requests of a link are answered at once; a client that sends more waits."""
MOST_WAITING: Final = 1_000
"""How many answers wait for the client to take them; those that come later are dropped, as the client does not listen."""
MOST_WAITING_BYTES: Final = 2 * 1024 * 1024
"""How many bytes of answers wait, over all links of a client."""


@dataclass(slots=True)
class Request:
    """A request.

    Attributes:
        properties: Its properties, by their names.
        options: Its application properties.
        body: The value of its body.
        part: Its part in a transaction; None without one.
        reply: The node that takes the answer; None if there is none.
        deleted: The messages that were deleted for the answer; None without any.
    """

    properties: Mapping[str, Any]
    options: Mapping[Any, Any]
    body: Any
    part: Enlistment | None = None
    reply: ReplyNode | None = None
    deleted: Deleted | None = None

    @property
    def operation(self) -> str:
        """The name of the operation."""
        return str(self.options.get("operation"))


@dataclass(slots=True)
class Answer:
    """An answer.

    Attributes:
        options: Its application properties.
        body: The value of its body.
        error: Why the request was refused; None if it was not.
    """

    options: dict[str, Any]
    body: Any = None
    error: AmqpError | None = None


class ReplyNode(BaseNode):
    """Sends answers to the client."""

    def __init__(self, peer: Peer, link: Link) -> None:
        super().__init__(peer, link)
        self._waiting: deque[tuple[bytes, Deleted | None]] = deque()
        self._promised = self._count = 0
        self._is_closed = False

    @property
    def path(self) -> str:
        """The node's path."""
        return path_of(self.link.attach.source.address).lower()

    async def open(self) -> None:
        """Accept the link."""
        self.peer.requests.replies.add(self, self._keys)
        self.link.accept()

    @property
    def _keys(self) -> list[Hashable]:
        """The keys by which requests name it: its target's address, its name, and its node and session."""
        target = self.link.attach.target
        address = [("address", target.address)] if isinstance(target, Target) and target.address is not None else []
        return [*address, ("name", self.link.attach.name), ("node", self.path, self.link.session)]

    def send(self, payload: bytes, deleted: Deleted | None = None) -> None:
        """Send an answer as soon as the client takes it.

        Args:
            payload: The answer.
            deleted: The messages that were deleted for it.
        """
        peer = self.peer
        if deleted is not None and (self._is_closed or not self.link.is_attached):
            peer.commons.undelivered.put(deleted)
            return
        waiting = peer.load.answer_bytes + peer.engine.usage.waiting_bytes
        # One is kept whatever its size is.
        has_room = len(self._waiting) < MOST_WAITING and (not waiting or waiting + len(payload) <= MOST_WAITING_BYTES)
        if has_room or deleted is not None:
            self._waiting.append((payload, deleted))
            peer.load.answer_bytes += len(payload)
            if self.path != CLAIMS:
                peer.load.largest_answer = max(peer.load.largest_answer, len(payload))
        self.on_flow()

    @contextmanager
    def promising(self) -> Generator[bool]:
        """Reserve credit for an answer while the block runs; yield whether there is some: the client takes the answer then."""
        self._promised += 1
        try:
            yield self.link.is_attached and self.link.credit >= self._promised and not self._waiting
        finally:
            self._promised -= 1

    def on_flow(self) -> None:
        """Send the waiting answers for which the client has given credit."""
        while self._waiting and self.link.credit > 0 and self.link.is_attached and self.peer.is_open:
            self._count += 1
            payload, deleted = self._waiting.popleft()
            self.peer.load.answer_bytes -= len(payload)
            self.link.send(self._count.to_bytes(4, "big"), payload, settled=True, content=deleted)
        if self.link.drain and self.link.is_attached:
            self.link.give_up_credit()

    async def close(self) -> None:
        """Forget the answers that wait, and keep the messages that were deleted for them for other clients."""
        self._is_closed = True
        self.peer.requests.replies.remove(self, self._keys)
        for payload, deleted in self._waiting:
            self.peer.load.answer_bytes -= len(payload)
            if deleted is not None:
                self.peer.commons.undelivered.put(deleted)
        self._waiting.clear()


class RequestNode(BaseNode):
    """Takes requests of the client.

    Attributes:
        most_bytes: The size of the largest request, if it is less than that of a message.
        most_values: The most elements of lists, maps and arrays of a request.
    """

    most_bytes = sys.maxsize
    most_values = MOST_VALUES

    def __init__(self, peer: Peer, link: Link) -> None:
        super().__init__(peer, link)
        self._pace = Pace()
        self._under_way: set[asyncio.Task[None]] = set()
        self._dispensable: set[asyncio.Task[None] | None] = set()

    async def open(self) -> None:
        """Accept the link."""
        self.link.most_bytes = min(self.most_bytes, self.link.most_bytes)
        self.link.accept(max_message_size=self.link.most_bytes)
        self.link.give_credit(AT_ONCE)

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """Begin to answer a request."""
        self.peer.load.hold(delivery.size + delivery.overhead)
        part = self.peer.transactions.join(delivery.state, delivery.size, 0)
        task = self.peer.tasks.start(self._take(delivery, part), is_requested=True)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _take(self, delivery: IncomingDelivery, part: Enlistment | None) -> None:
        task = asyncio.current_task()
        # Only from here on: of a task that has not begun, nothing would be given back.
        self._dispensable.add(task)
        # Of a request that is given up, its transaction must not be committed without it.
        error: AmqpError | None = AmqpError(CONNECTION_FORCED, "the request was given up, as its connection is lost")
        try:
            large = delivery.size > LARGE
            async with self.peer.commons.parsing.turn(self.peer) if large else self.peer.requests.reading:
                request = self._request(delivery, part)
                await self._pace.keep()
        except AmqpError as problem:
            error = problem
            self.link.acknowledge([delivery], in_transaction(delivery.state, Rejected(error_of(error))))
        else:
            self.link.acknowledge([delivery], in_transaction(delivery.state, Accepted()))
            request.reply = self._reply_node(request)
            if not self.only_tells(request):
                self._dispensable.discard(task)
            with self.peer.holding_ends() if self.deletes(request) else nullcontext():
                answer = await self.answer(request)
                error = answer.error
                if request.reply is not None:
                    request.reply.send(_encoded(request.properties.get("message_id"), answer), request.deleted)
        finally:
            self._dispensable.discard(task)
            self.peer.load.hold(-delivery.size - delivery.overhead)
            if part is not None:
                part.end(error)
            if self.link.is_attached and self.link.credit <= AT_ONCE // 2:
                self.link.give_credit(AT_ONCE)
            self.peer.outbox.flush_soon()

    def _request(self, delivery: IncomingDelivery, part: Enlistment | None) -> Request:
        """Return the request in a delivery.

        Raises:
            AmqpError: There is none.
        """
        if delivery.is_too_large:
            raise AmqpError(MESSAGE_SIZE_EXCEEDED, f"a request of {delivery.size} bytes is too large")
        try:
            message = decode_sections(delivery.payload, self.most_values)
        except ValueError as error:
            raise AmqpError(ARGUMENT_ERROR, f"the request is no AMQP message: {error}") from error
        return Request(message.properties, message.application_properties, message.value, part)

    async def answer(self, request: Request) -> Answer:
        """Return the answer to a request."""
        raise NotImplementedError

    async def close(self) -> None:
        """Wait for the requests that are under way: they may delete messages, which are kept for other clients then.

        If the client is lost, those end that have not begun, or of which nothing would be left but an answer.
        """
        if self.peer.socket.is_lost:
            for task in self._dispensable:
                if task is not None:
                    task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)

    def only_tells(self, request: Request) -> bool:
        """Return whether nothing of a request is left when its client is gone."""
        del request
        return False

    def deletes(self, request: Request) -> bool:
        """Return whether a request deletes messages that its answer holds: then links end after the answer."""
        del request
        return False

    def _reply_node(self, request: Request) -> ReplyNode | None:
        """Return the node that takes the answer: by its target's address, else its name, else the node and the session."""
        wanted = request.properties.get("reply_to")
        named = [("address", wanted), ("name", wanted)] if isinstance(wanted, str) else []
        path = path_of(self.link.attach.target.address).lower()
        found: ReplyNode | None = self.peer.requests.replies.first([*named, ("node", path, self.link.session)])
        return found


def _encoded(message_id: Any, answer: Answer) -> bytes:
    """Return the bytes of an answer; values that AMQP cannot carry, such as a rule's, become the nearest ones that it can."""
    sections = Sections(
        properties={"correlation_id": message_id}, application_properties=answer.options, value=answer.body
    )
    try:
        return encode_sections(sections)
    except (TypeError, ValueError, OverflowError):
        sections.properties = nearest_value(sections.properties)
        sections.application_properties = nearest_value(sections.application_properties)
        sections.value = nearest_value(sections.value)
        return encode_sections(sections)
