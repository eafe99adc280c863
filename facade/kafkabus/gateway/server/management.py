"""The node ``ENTITY/$management``: operations on messages, sessions and rules."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timezone
from itertools import compress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkabus._async.engine.held_session import held_session_of
from kafkabus._async.engine.receiver_engine import engine_of
from kafkabus._async.handles.sender import check_outgoing, schedule_outgoing
from kafkabus._async.receiving.peek import MessagePeeker
from kafkabus._async.receiving.session_reader import SessionLock, lock_lost
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageLockLostError
from kafkabus._core.message import Outgoing, ServiceBusReceivedMessage
from kafkabus._core.settlement import raise_lost
from kafkabus._runtime.turns import Pace
from kafkabus.aio import ServiceBusReceiver, ServiceBusSender, ServiceBusSession
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.server import conditions as service_bus
from kafkabus.gateway.server import rights
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.held import message_of
from kafkabus.gateway.server.messages import ShownLock, decode_transfer, encode_message
from kafkabus.gateway.server.receivers import ReceiverNode
from kafkabus.gateway.server.requests import Answer, Request, RequestNode
from kafkabus.gateway.server.rules import described_rule, filter_of
from kafkabus.gateway.server.settlements import disposition_of, texts
from kafkabus.gateway.server.undelivered import Deleted, delete, place_of
from kafkabus_mapping.amqp.types import Array, Int, Milliseconds, Symbol
from kafkabus_mapping.codec import to_milliseconds
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath
from kafkabus_mapping.numbers import LockToken, split_sequence_number

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

LOGGER = logging.getLogger("kafkabus.gateway")

PREFIX: Final = "com.microsoft:"
TRACKING_ID: Final = "com.microsoft:tracking-id"
MOST_PEEKED: Final = 1_000
PEEKED_AT_ONCE: Final = 100
RECEIVED_AT_ONCE: Final = 20
"""How many deferred messages are asked for at once."""
MOST_RECEIVED_BYTES: Final = 16 * 1024 * 1024
"""How many bytes the deferred messages have together that a request asks for."""
PEEKED_BYTES: Final = 4 * 1024 * 1024
"""How many bytes an answer to a peek has before it ends: fewer messages than were asked for may come at any time."""
MOST_NUMBERS: Final = 10_000
SCHEDULED_AT_ONCE: Final = 200
"""How many messages of a request are scheduled in one go."""
RENEWED_AT_ONCE: Final = 500
"""How many messages' locks are renewed in one go."""
MOST_DELETED: Final = 4_000
"""The most messages that one request deletes, as Service Bus documents it."""
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
        self._own_sender: ServiceBusSender | None = None
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
        except Exception as error:  # noqa: BLE001 - the client is told
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
        if self._own_sender is not None:
            await self._own_sender.close()

    # Messages.

    def _receiver(self, node: ReceiverNode | None = None, *, takes: bool = False) -> ServiceBusReceiver:
        """Return the receiver of a session's link, or one without a session."""
        if node is not None:
            return node.receiver
        if takes not in self._receivers:
            self._receivers[takes] = self.peer.namespace.receiver(self._path, takes=takes)
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
        tokens = _numbers(body, "lock-tokens", UUID)
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
        settlement, messages = disposition_of(body), list(dict.fromkeys(await self._named_messages(body)))
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
        count = min(_number(body, "message-count", 1), MOST_PEEKED)
        first = max(1, _number(body, "from-sequence-number", 0))
        entity = await self.peer.namespace.entity_with_messages(self._path)
        node, peeker = self._node(request, body), MessagePeeker()
        session = None if node is None else node.session
        if session is not None and session.session_id is not None:
            peeker.keep_to(session.session_id)
        shown: list[dict[str, Any]] = []
        size, pace = 0, Pace()
        while len(shown) < count and size < PEEKED_BYTES:
            asked, place = min(count - len(shown), PEEKED_AT_ONCE), split_sequence_number(first)
            messages = await peeker.look_from(self.peer.namespace.context.receiving.peek_parts, entity, *place, asked)
            for message in messages:
                shown.append({"message": encode_message(message, for_java=self.peer.is_java)})
                size += len(shown[-1]["message"])
                if size >= PEEKED_BYTES:
                    break
                await pace.keep()
            if len(messages) < asked:
                break
            first = (messages[-1].sequence_number or 0) + 1
        return (200, {"messages": shown}) if shown else (NO_CONTENT, None)

    async def _receive(self, request: Request, body: Mapping[str, Any]) -> _Result:
        # One that is said twice is asked for once, also if it is far behind.
        numbers = list(dict.fromkeys(_numbers(body, "sequence-numbers", int)))
        takes = _number(body, "receiver-settle-mode", 1) == 0
        node, entity = self._node(request, body), await self.peer.namespace.entity_with_messages(self._path)
        if node is None and entity.has_sessions:
            raise AmqpError(
                service_bus.ARGUMENT_ERROR,
                f"{self._path} has sessions: name the session, which a receiver of this connection holds",
            )
        receiver = self._receiver(node)
        lock = ShownLock.NONE if takes else ShownLock.OF_REQUEST
        messages, payloads = await self._receive_deferred(receiver, numbers, lock)
        if takes:
            return 200, {"messages": await self._delete_deferred(request, receiver, entity, messages, payloads)}
        return 200, {
            "messages": [
                {"lock-token": message.lock_token or UUID(int=0), "message": payload}
                for message, payload in zip(messages, payloads, strict=True)
            ]
        }

    async def _receive_deferred(
        self, receiver: ServiceBusReceiver, numbers: Sequence[int], lock: ShownLock
    ) -> tuple[list[ServiceBusReceivedMessage], list[bytes]]:
        """Return the deferred messages of some numbers, and their bytes; if one of them cannot be had, none is.

        Raises:
            AmqpError: They have too many bytes for an answer.
            ServiceBusError: There is none of a number, or it cannot be locked.
        """
        messages, payloads, pace = list[ServiceBusReceivedMessage](), list[bytes](), Pace()
        try:
            for at in range(0, len(numbers), RECEIVED_AT_ONCE):
                messages += await receiver.receive_deferred_messages(numbers[at : at + RECEIVED_AT_ONCE])
                for message in messages[len(payloads) :]:
                    payloads.append(encode_message(message, lock, for_java=self.peer.is_java))
                    await pace.keep()
                if sum(map(len, payloads)) > MOST_RECEIVED_BYTES:
                    raise AmqpError(
                        c.RESOURCE_LIMIT_EXCEEDED,
                        f"the messages have more than {MOST_RECEIVED_BYTES:,} bytes together: ask for fewer at once",
                    )
        except BaseException:
            await engine_of(receiver).put_back(messages)
            raise
        return messages, payloads

    async def _delete_deferred(
        self,
        request: Request,
        receiver: ServiceBusReceiver,
        entity: Entity,
        messages: Sequence[ServiceBusReceivedMessage],
        payloads: Sequence[bytes],
    ) -> list[dict[str, Any]]:
        """Complete messages, and return them as the answer to a request holds them.

        Raises:
            AmqpError: The client does not take the answer, or has lost the messages; they stay deferred.
        """
        with nullcontext(False) if request.reply is None else request.reply.promising() as is_taken:
            if not is_taken:
                await engine_of(receiver).put_back(messages)
                raise AmqpError(
                    c.NOT_ALLOWED, "no link takes the answer at once, so that nothing was deleted: give it credit"
                )
            are_deleted, error = await delete(receiver, messages)
        if error is not None:
            LOGGER.warning("deletion_unknown entity=%s count=%d error=%s", self._path, len(messages), error)
        if messages and not any(are_deleted):
            raise AmqpError(
                service_bus.MESSAGE_LOCK_LOST,
                "the messages' locks were lost before they were deleted: they stay deferred",
            )
        session = None if receiver.session is None else receiver.session.session_id
        request.deleted = Deleted(place_of(entity), session, list(compress(payloads, are_deleted)))
        return [{"lock-token": UUID(int=0), "message": payload} for payload in request.deleted.payloads]

    def only_tells(self, request: Request) -> bool:
        """Return whether a request changes nothing that lasts."""
        return request.operation.removeprefix(PREFIX) in _TELLING

    def deletes(self, request: Request) -> bool:
        """Return whether a request deletes messages that its answer holds."""
        body = request.body if isinstance(request.body, Mapping) else {}
        return request.operation.endswith("receive-by-sequence-number") and body.get("receiver-settle-mode") == 0

    async def _purge(self, request: Request, body: Mapping[str, Any]) -> _Result:
        count, before = _number_to_delete(body), _time(body, "enqueued-time-utc")
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

    # Scheduled messages.

    async def _sender(self) -> ServiceBusSender:
        if self._own_sender is None:
            self._own_sender = self.peer.namespace.sender(self._path)
            await self._own_sender.__aenter__()
        return self._own_sender

    async def _schedule(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        entries = body.get("messages")
        if not isinstance(entries, Sequence) or not entries:
            raise AmqpError(service_bus.ARGUMENT_ERROR, "messages is a list of one or more")
        outgoing, pace = list[Outgoing](), Pace()
        for entry in entries:
            payload = entry.get("message") if isinstance(entry, Mapping) else None
            if not isinstance(payload, bytes):
                raise AmqpError(service_bus.ARGUMENT_ERROR, "a message to schedule is the bytes of an AMQP message")
            outgoing += decode_transfer(payload, 0, self.peer.namespace.context.descriptions.written_format)
            await pace.keep()
        if any(message.envelope.scheduled_enqueue_time_utc is None for message in outgoing):
            raise AmqpError(service_bus.ARGUMENT_ERROR, "a message to schedule has x-opt-scheduled-enqueue-time")
        sender = await self._sender()
        if len(outgoing) <= SCHEDULED_AT_ONCE:
            return 200, {"sequence-numbers": Array(await schedule_outgoing(sender, outgoing))}
        async with self.peer.requests.scheduling:
            return 200, {"sequence-numbers": Array(await self._schedule_in_parts(sender, outgoing))}

    async def _schedule_in_parts(self, sender: ServiceBusSender, outgoing: Sequence[Outgoing]) -> list[int]:
        """Schedule many messages; if a part fails, those before stay: cancelled ones would be duplicates if sent again.

        Raises:
            AmqpError: A part failed; the error says how many messages are scheduled.
            ServiceBusError: The first part failed.
        """
        numbers: list[int] = []
        # Before some are stored.
        entity = await check_outgoing(sender, outgoing)
        try:
            for at in range(0, len(outgoing), SCHEDULED_AT_ONCE):
                if self.peer.socket.is_lost:
                    raise AmqpError(c.CONNECTION_FORCED, "the connection is lost, and more requests may wait")
                numbers += await schedule_outgoing(sender, outgoing[at : at + SCHEDULED_AT_ONCE])
        except Exception as error:
            if not numbers:
                raise
            problem = to_amqp_error(error, self._path)
            raise AmqpError(
                problem.condition,
                f"the first {len(numbers)} of {len(outgoing)} messages are scheduled, and come; of those after them: "
                f"{problem.description}",
            ) from error
        if (await self.peer.namespace.entity(self._path)).generation != entity.generation:
            raise AmqpError(
                c.NOT_FOUND,
                f"{self._path} was deleted and created anew meanwhile: messages that were scheduled before are gone",
            )
        return numbers

    async def _cancel(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        await (await self._sender()).cancel_scheduled_messages(_numbers(body, "sequence-numbers", int))
        return 200, None

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
        skip, top = _number(body, "skip", 0), _number(body, "top", 100)
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
        end = skip + top
        if top and end < len(names):
            # The pages of a client that asks for one after the other are those of one list.
            listings.keep(self.peer, (*listed, end), names)
        page = names[skip:end]
        if not page:
            return NO_CONTENT, None
        return 200, {"skip": Int(skip + len(page)), "sessions-ids": Array(page)}

    # Rules.

    def _subscription(self) -> tuple[str, str]:
        topic, separator, subscription = self._path.name.partition(SUBSCRIPTIONS)
        if not separator or self._path.is_dead_letter:
            raise AmqpError(c.NOT_ALLOWED, f"{self._path} is no subscription: it has no rules")
        return topic, subscription

    async def _add_rule(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        filter_, action = filter_of(body.get("rule-description"))
        await self.peer.namespace.administration.create_rule(
            *self._subscription(), _text(body, "rule-name"), filter=filter_, action=action
        )
        return 200, None

    async def _remove_rule(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        await self.peer.namespace.administration.delete_rule(*self._subscription(), _text(body, "rule-name"))
        return 200, None

    async def _rules(self, request: Request, body: Mapping[str, Any]) -> _Result:
        del request
        skip, top = _number(body, "skip", 0), _number(body, "top", 100)
        listed = self.peer.namespace.administration.list_rules(*self._subscription())
        async with self.peer.commons.listing.turn(self.peer):
            rules = [rule async for rule in listed][skip : skip + top]
        if not rules:
            return NO_CONTENT, None
        return 200, {"rules": [{"rule-description": described_rule(rule)} for rule in rules]}


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise AmqpError(service_bus.ARGUMENT_ERROR, f"{name} is {value!r:.60}: it is a number, 0 or more")
    return int(value)


def _number_to_delete(body: Mapping[str, Any]) -> int:
    value = body.get("message-count")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_DELETED:
        raise AmqpError(
            service_bus.ARGUMENT_ERROR,
            f"message-count is {value!r:.60}: it is an int from 1 to {MOST_DELETED:,}; nothing was deleted",
        )
    return int(value)


def _time(body: Mapping[str, Any], name: str) -> int:
    """Return a time in ms since 1970."""
    value = body.get(name)
    if isinstance(value, Milliseconds):
        return int(value)
    if not isinstance(value, datetime):
        raise AmqpError(service_bus.ARGUMENT_ERROR, f"{name} is {value!r:.60}: it is a timestamp; nothing was deleted")
    return to_milliseconds(value)


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise AmqpError(service_bus.ARGUMENT_ERROR, f"{name} is {value!r:.60}: it is a text")
    return str(value)


def _numbers(body: Mapping[str, Any], name: str, kind: type[Any]) -> list[Any]:
    value = body.get(name)
    if (
        not isinstance(value, Sequence)
        or len(value) > MOST_NUMBERS
        or not all(isinstance(item, kind) for item in value)
    ):
        raise AmqpError(service_bus.ARGUMENT_ERROR, f"{name} is {value!r:.60}: it is an array of up to {MOST_NUMBERS}")
    return [int(item) if kind is int else item for item in value]
