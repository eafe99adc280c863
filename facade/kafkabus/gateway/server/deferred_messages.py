"""Deferred messages that a client receives by a request, which may delete them as well."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import compress
from typing import Any, Final
from uuid import UUID

from kafkabus._async.engine.receiver_engine import engine_of
from kafkabus._core.entity import Entity
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._runtime.turns import Pace
from kafkabus.aio import ServiceBusReceiver
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus.gateway.server.messages import ShownLock, encode_message
from kafkabus.gateway.server.requests import Request
from kafkabus.gateway.server.undelivered import Deleted, delete, place_of
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.gateway")

RECEIVED_AT_ONCE: Final = 20
"""How many deferred messages are asked for at once."""
MOST_RECEIVED_BYTES: Final = 16 * 1024 * 1024
"""How many bytes the deferred messages have together that a request asks for."""


async def receive_deferred(
    receiver: ServiceBusReceiver, numbers: Sequence[int], lock: ShownLock, *, for_java: bool
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
                payloads.append(encode_message(message, lock, for_java=for_java))
                await pace.keep()
            if sum(map(len, payloads)) > MOST_RECEIVED_BYTES:
                raise AmqpError(
                    c.RESOURCE_LIMIT_EXCEEDED,
                    f"the messages have more than {MOST_RECEIVED_BYTES:,} bytes together: ask for fewer at once",
                )
    except BaseException:
        await engine_of(receiver).release(messages)
        raise
    return messages, payloads


async def delete_deferred(
    path: EntityPath,
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
            await engine_of(receiver).release(messages)
            raise AmqpError(
                c.NOT_ALLOWED, "no link takes the answer at once, so that nothing was deleted: give it credit"
            )
        are_deleted, error = await delete(receiver, messages)
    if error is not None:
        LOGGER.warning("deletion_unknown entity=%s count=%d error=%s", path, len(messages), error)
    if messages and not any(are_deleted):
        raise AmqpError(
            service_bus.MESSAGE_LOCK_LOST,
            "the messages' locks were lost before they were deleted: they stay deferred",
        )
    session = None if receiver.session is None else receiver.session.session_id
    request.deleted = Deleted(place_of(entity), session, list(compress(payloads, are_deleted)))
    return [{"lock-token": UUID(int=0), "message": payload} for payload in request.deleted.payloads]
