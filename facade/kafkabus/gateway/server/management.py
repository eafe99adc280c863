"""The node ``ENTITY/$management``: operations on messages, sessions and rules."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkabus._async.engine.held_session import held_session_of
from kafkabus._async.engine.receiver_engine import engine_of
from kafkabus._async.receiving.session_reader import SessionLock, lock_lost
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageLockLostError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._core.settlement import raise_lost
from kafkabus._runtime.turns import Pace
from kafkabus.aio import ServiceBusReceiver, ServiceBusSession
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.server import rights
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus.gateway.server.deferred_messages import delete_deferred, receive_deferred
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.held import message_of
from kafkabus.gateway.server.messages import ShownLock
from kafkabus.gateway.server.peeking import peek_encoded
from kafkabus.gateway.server.receivers import ReceiverNode
from kafkabus.gateway.server.request_fields import read_array, read_count_to_delete, read_number, read_time
from kafkabus.gateway.server.requests import Answer, Request, RequestNode
from kafkabus.gateway.server.rule_requests import RuleRequests
from kafkabus.gateway.server.scheduling import Scheduling
from kafkabus.gateway.server.settlements import settlement_of_request, texts
from kafkabus_mapping.amqp.types import Array, Int, Symbol
from kafkabus_mapping.names import EntityPath
from kafkabus_mapping.numbers import LockToken

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

LOGGER = logging.getLogger("kafkabus.gateway")

PREFIX: Final = "com.microsoft:"
TRACKING_ID: Final = "com.microsoft:tracking-id"
MOST_PEEKED: Final = 1_000
RENEWED_AT_ONCE: Final = 500
"""How many messages' locks are renewed in one go."""
ALL_FROM_YEAR: Final = 9_999
"""The year from which on a time means all sessions, not those with a younger state."""

_STATUS: Final[Mapping[Symbol, int]] = {
    c.NOT_FOUND: 404,
    service_bus.MESSAGE_NOT_FOUND: 404,
    c.NOT_IMPLEMENTED: 501,
    c.UNAUTHORIZED_ACCESS: 401,
    c.RESOURCE_LIMIT_EXCEEDED: 403,
    service_bus.MESSAGE_LOCK_LOST: 410,
    service_bus.SESSION_LOCK_LOST: 410,
    service_bus.SESSION_CANNOT_BE_LOCKED: 410,
    c.INTERNAL_ERROR: 500,
    service_bus.ARGUMENT_ERROR: 400,
    c.NOT_ALLOWED: 400,
    service_bus.ENTITY_DISABLED: 400,
    service_bus.ENTITY_ALREADY_EXISTS: 409,
    c.MESSAGE_SIZE_EXCEEDED: 400,
    service_bus.TIMEOUT: 408,
    service_bus.SERVER_BUSY: 503,
}
NO_CONTENT: Final = 204
_TELLING: Final = frozenset(
    {
        "peek-message",
        "renew-lock",
        "renew-session-lock",
        "get-session-state",
        "get-message-sessions",
        "enumerate-rules",
    }
)
"""Operations of which nothing is left when their client is gone."""

_Result = tuple[int, Any]
_Operation = Callable[[Request, Mapping[str, Any]], Awaitable[_Result]]


class ManagementNode(RequestNode):
    """Does operations on an entity's messages, sessions and rules.

    Args:
        peer: The client.
        link: Its link.
        path: The entity, with its sub-queue.
    """

    needs_claims = True

    def __init__(self, peer: Peer, link: Link, path: EntityPath) -> None:
        super().__init__(peer, link)
        self._path = path
        self._receivers: dict[bool, ServiceBusReceiver] = {}
        self._scheduling = Scheduling(peer, path)
        self._rule_requests = RuleRequests(peer, path)
        self._operations: dict[str, _Operation] = {
            "renew-lock": self._renew_lock,
            "renew-session-lock": self._renew_session_lock,
            "peek-message": self._peek,
            "schedule-message": self._schedule,
            "cancel-scheduled-message": self._cancel,
            "receive-by-sequence-number": self._receive,
            "update-disposition": self._settle,
            "get-session-state": self._get_state,
            "set-session-state": self._set_state,
            "get-message-sessions": self._sessions,
            "add-rule": self._add_rule,
            "remove-rule": self._remove_rule,
            "enumerate-rules": self._rules,
            "batch-delete-messages": self._purge,
        }

    async def open(self) -> None:
        """Accept the link if there is such an entity.

        Raises:
            MessagingEntityNotFoundError: There is none.
        """
        await self.peer.namespace.max_message_bytes(self._path)
        await super().open()

    async def answer(self, request: Request) -> Answer:
        """Do an operation."""
        options: dict[str, Any] = {}
        if TRACKING_ID in request.options:
            options[TRACKING_ID] = request.options[TRACKING_ID]
        name = request.operation.removeprefix(PREFIX)
        operation = self._operations.get(name)
        try:
            if operation is None:
                raise AmqpError(c.NOT_IMPLEMENTED, f"no operation is called {request.operation!r}")
            self.peer.claims.check(str(self._path), *rights.OPERATIONS[name])
            if not isinstance(request.body, Mapping):
                raise AmqpError(service_bus.ARGUMENT_ERROR, f"the body of {request.operation!r} is a map")
            if request.part is not None and operation != self._settle:
                raise AmqpError(
                    c.NOT_IMPLEMENTED,
                    f"{request.operation!r} is no part of a transaction: ask for it without one; transactions send and settle",
                )
            status, body = await operation(request, texts(request.body))
        except Exception as error:  # noqa: BLE001 - reported to the client
            problem = to_amqp_error(error, self._path)
            options |= {
                "statusCode": Int(_STATUS.get(problem.condition, 500)),
                "statusDescription": problem.description,
                "errorCondition": problem.condition,
            }
            return Answer(options, error=problem)
        options |= {"statusCode": Int(status), "statusDescription": "OK" if status == 200 else "No content"}
        if status == NO_CONTENT and request.operation.endswith("receive-by-sequence-number"):
            options["errorCondition"] = service_bus.MESSAGE_NOT_FOUND
        return Answer(options, body)

    async def close(self) -> None:
        """Let go of the handles when no request needs them any more."""
        await super().close()
        for receiver in self._receivers.values():
            await receiver.close()
        await self._scheduling.close()

    # Messages.

    def _receiver(self, node: ReceiverNode | None = None, *, takes: bool = False) -> ServiceBusReceiver:
        """Return the receiver of a session's link, or one without a session."""
        if node is not None:
            return node.receiver
        if takes not in self._receivers:
            self._receivers[takes] = self.peer.namespace.receiver(self._path, self.link.attach.name, takes=takes)
        return self._receivers[takes]

    def _node(self, request: Request, body: Mapping[str, Any]) -> ReceiverNode | None:
        """Return the node of the session that a request is for, by the link or the session that it names; None without one.

        Raises:
            AmqpError: The client has no receiver of that session, or that link is gone: another link of the client may have
                locked the session since.
        """
        wanted, name = body.get("session-id"), request.options.get("associated-link-name")
        for link, node in self.peer.links.nodes.items():
            if isinstance(node, ReceiverNode) and node.path.key == self._path.key and node.session is not None:
                is_named = name is None or link.attach.name == name
                if (
                    is_named
                    and (wanted is None or node.session.session_id == wanted)
                    and (name, wanted) != (None, None)
                ):
                    return node
        if wanted is None:
            return None
        raise AmqpError(
            service_bus.SESSION_LOCK_LOST, f"this connection has no receiver of session {wanted!r} of {self._path}"
        )

    def _session(self, request: Request, body: Mapping[str, Any]) -> ServiceBusSession:
        node = self._node(request, body)
        if node is None or node.session is None:
            raise AmqpError(service_bus.ARGUMENT_ERROR, "session-id is missing")
        return node.session

    async def _named_messages(self, body: Mapping[str, Any]) -> list[ServiceBusReceivedMessage]:
        """Return the messages that a request names by their lock tokens."""
        tokens = read_array(body, "lock-tokens", UUID)
        entity, pace = await self.peer.namespace.entity(self._path), Pace()
        # One that is said twice is meant once, and answered as often as it is said.
        held: dict[UUID, ServiceBusReceivedMessage] = {}
        for token in tokens:
            if token not in held:
                held[token] = message_of(entity, LockToken.from_uuid(token))
                await pace.keep()
        return [held[token] for token in tokens]

    async def _renew_lock(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        if (await self.peer.namespace.entity(self._path)).has_sessions:
            raise AmqpError(
                c.NOT_ALLOWED,
                f"{self._path} has sessions, whose locks are those of their messages: renew the session's lock",
            )
        messages, settler = await self._named_messages(body), engine_of(self._receiver()).settler
        renewed, lost = list(dict.fromkeys(messages)), list[ServiceBusReceivedMessage]()
        for at in range(0, len(renewed), RENEWED_AT_ONCE):
            lost += await settler.renew(settler.check(renewed[at : at + RENEWED_AT_ONCE], renewing=True))
        raise_lost("renewed", lost)
        return 200, {"expirations": Array([message.locked_until_utc for message in messages])}

    async def _settle(self, request: Request, body: Mapping[str, Any]) -> _Result:
        settlement, messages = settlement_of_request(body), list(dict.fromkeys(await self._named_messages(body)))
        namespace, part = self.peer.namespace, request.part
        if part is not None:
            part.count(0, len(messages))
        entity = await namespace.entity(self._path)
        try:
            await settlement.apply(namespace.context, entity, self._receiver(), messages, part)
        except MessageLockLostError as error:
            if not entity.has_sessions:
                raise
            # As over a link of the session: its lock is that of its messages.
            raise lock_lost(body.get("session-id"), self._path, error) from error
        return 200, None

    async def _peek(self, request: Request, body: Mapping[str, Any]) -> _Result:
        count = min(read_number(body, "message-count", 1), MOST_PEEKED)
        first = max(1, read_number(body, "from-sequence-number", 0))
        entity = await self.peer.namespace.entity_with_messages(self._path)
        node = self._node(request, body)
        session = None if node is None or node.session is None else node.session.session_id
        payloads = await peek_encoded(self.peer, entity, session, count, first)
        return (200, {"messages": [{"message": payload} for payload in payloads]}) if payloads else (NO_CONTENT, None)

    async def _receive(self, request: Request, body: Mapping[str, Any]) -> _Result:
        # One that is said twice is asked for once, also if it is far behind.
        numbers = list(dict.fromkeys(read_array(body, "sequence-numbers", int)))
        takes = read_number(body, "receiver-settle-mode", 1) == 0
        node, entity = self._node(request, body), await self.peer.namespace.entity_with_messages(self._path)
        if node is None and entity.has_sessions:
            raise AmqpError(
                service_bus.ARGUMENT_ERROR,
                f"{self._path} has sessions: name the session, which a receiver of this connection holds",
            )
        receiver = self._receiver(node)
        lock = ShownLock.NONE if takes else ShownLock.OF_REQUEST
        messages, payloads = await receive_deferred(receiver, numbers, lock, for_java=self.peer.is_java)
        if takes:
            return 200, {"messages": await delete_deferred(self._path, request, receiver, entity, messages, payloads)}
        return 200, {
            "messages": [
                {"lock-token": message.lock_token or UUID(int=0), "message": payload}
                for message, payload in zip(messages, payloads, strict=True)
            ]
        }

    def only_tells(self, request: Request) -> bool:
        """Return whether a request changes nothing that lasts."""
        return request.operation.removeprefix(PREFIX) in _TELLING

    def deletes(self, request: Request) -> bool:
        """Return whether a request deletes messages that its answer holds."""
        body = request.body if isinstance(request.body, Mapping) else {}
        return request.operation.endswith("receive-by-sequence-number") and body.get("receiver-settle-mode") == 0

    async def _purge(self, request: Request, body: Mapping[str, Any]) -> _Result:
        count, before = read_count_to_delete(body), read_time(body, "enqueued-time-utc")
        context, entity = self.peer.namespace.context, await self.peer.namespace.entity_with_messages(self._path)
        deleted = await context.receiving.deletion.delete(
            entity, count, before, self._session_to_delete(entity, request, body)
        )
        return (200, {"message-count": Int(deleted)}) if deleted else (NO_CONTENT, None)

    def _session_to_delete(self, entity: Entity, request: Request, body: Mapping[str, Any]) -> SessionLock | None:
        """Return the lock of the session whose messages are deleted; None if the entity has no sessions.

        Raises:
            AmqpError: The request names no session of an entity with sessions, or one of an entity without, or the client has
                no receiver of it.
        """
        wanted = body.get("session-id")
        if entity.has_sessions and not isinstance(wanted, str):
            raise AmqpError(
                service_bus.ARGUMENT_ERROR,
                f"session-id is {wanted!r:.60}: {self._path} has sessions, so name the session, which a receiver of this "
                "connection holds, whose messages to delete",
            )
        if not entity.has_sessions and wanted is not None:
            raise AmqpError(
                service_bus.ARGUMENT_ERROR,
                f"session-id is {wanted!r:.60}: {self._path} has no sessions, so leave it out",
            )
        if not entity.has_sessions:
            return None
        session = held_session_of(self._session(request, body))
        if session.lock is None:
            # Without a lock, the messages of all sessions would be deleted.
            raise AmqpError(service_bus.SESSION_LOCK_LOST, f"{session} is not locked")
        return session.lock

    # Sessions.

    async def _renew_session_lock(self, request: Request, body: Mapping[str, Any]) -> _Result:
        return 200, {"expiration": await self._session(request, body).renew_lock()}

    async def _get_state(self, request: Request, body: Mapping[str, Any]) -> _Result:
        return 200, {"session-state": await self._session(request, body).get_state()}

    async def _set_state(self, request: Request, body: Mapping[str, Any]) -> _Result:
        await self._session(request, body).set_state(body.get("session-state"))
        return 200, None

    async def _sessions(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        after = body.get("last-updated-time")
        updated = None
        if isinstance(after, datetime) and after.year < ALL_FROM_YEAR:
            updated = after if after.tzinfo else after.replace(tzinfo=timezone.utc)
        skip, top = read_number(body, "skip", 0), read_number(body, "top", 100)
        generation = ""
        if not self._path.is_dead_letter:
            entity = await self.peer.namespace.entity(self._path)
            generation = entity.generation
            if not entity.has_sessions:
                raise AmqpError(c.NOT_ALLOWED, f"{self._path} has no sessions")
        listings, listed = self.peer.commons.listings, (self._path.key, generation, updated)
        names = listings.take(self.peer, (*listed, skip))
        if names is None:
            async with self.peer.commons.listing.turn(self.peer):
                names = [name async for name in self.peer.namespace.sessions(self._path, updated)]
        if top and skip + top < len(names):
            # The pages of a client that asks for one after the other are those of one list.
            listings.keep(self.peer, (*listed, skip + top), names)
        page = names[skip : skip + top]
        if not page:
            return NO_CONTENT, None
        return 200, {"skip": Int(skip + len(page)), "sessions-ids": Array(page)}

    # Scheduled messages and rules.

    async def _schedule(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        return 200, {"sequence-numbers": Array(await self._scheduling.schedule(body))}

    async def _cancel(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        await self._scheduling.cancel(body)
        return 200, None

    async def _add_rule(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        await self._rule_requests.add(body)
        return 200, None

    async def _remove_rule(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        await self._rule_requests.remove(body)
        return 200, None

    async def _rules(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        rules = await self._rule_requests.page(body)
        return (200, {"rules": rules}) if rules else (NO_CONTENT, None)
