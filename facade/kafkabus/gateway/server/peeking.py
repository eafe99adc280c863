"""Messages that a client peeks by a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkabus._async.receiving.peek import MessagePeeker
from kafkabus._core.entity import Entity
from kafkabus._runtime.turns import Pace
from kafkabus.gateway.server.messages import encode_message
from kafkabus_mapping.numbers import split_sequence_number

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

PEEKED_AT_ONCE: Final = 100
PEEKED_BYTES: Final = 4 * 1024 * 1024
"""How many bytes an answer to a peek has before it ends: fewer messages than were asked for may come at any time."""


async def peek_encoded(peer: Peer, entity: Entity, session: str | None, count: int, first: int) -> list[bytes]:
    """Return the bytes of messages of an entity, in the order of their sequence numbers.

    Args:
        peer: The client.
        entity: The entity.
        session: The session whose messages to return; None for all messages.
        count: The most messages.
        first: The first sequence number.

    Raises:
        ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
    """
    peeker, payloads = MessagePeeker(), list[bytes]()
    if session is not None:
        peeker.keep_to(session)
    size, pace = 0, Pace()
    while len(payloads) < count and size < PEEKED_BYTES:
        asked, place = min(count - len(payloads), PEEKED_AT_ONCE), split_sequence_number(first)
        messages = await peeker.look_from(peer.namespace.context.receiving.peek_parts, entity, *place, asked)
        for message in messages:
            payloads.append(encode_message(message, for_java=peer.is_java))
            size += len(payloads[-1])
            if size >= PEEKED_BYTES:
                break
            await pace.keep()
        if len(messages) < asked:
            break
        first = (messages[-1].sequence_number or 0) + 1
    return payloads
