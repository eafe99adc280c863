"""The states that applications keep of their sessions, as bytes and as their ledgers have them."""

from __future__ import annotations

import base64

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageSizeExceededError
from kafkabus._ledger.operations import GetState, SetState


def encode_state(entity: Entity, state: object) -> str | None:
    """Return a state as ledgers have it; None to clear it.

    Raises:
        TypeError: It is neither text nor bytes nor None.
        MessageSizeExceededError: It is too large.
    """
    content = _state_bytes(state)
    if content is None:
        return None
    if len(content) > entity.max_message_bytes:
        raise MessageSizeExceededError(
            f"a state of {len(content)} bytes: the namespace takes {entity.max_message_bytes}; nothing was changed"
        )
    return base64.b64encode(content).decode()


async def stored_state(context: ClientContext, entity: Entity, asked: GetState | SetState) -> bytes | None:
    """Return a state that a ledger replied, once its record is known to be stored.

    Raises:
        ServiceBusError: Kafka or Redis cannot be reached, or Redis lost the state.
    """
    if asked.state is None:
        return None
    if not asked.state.stored:
        # Also if another receiver set the state and did not get to the end: a state that was seen is not taken back.
        await context.stores.session_states.store(entity, asked.ledger, asked.state)
    return None if asked.state.value is None else base64.b64decode(asked.state.value)


def _state_bytes(state: object) -> bytes | None:
    if isinstance(state, str):
        return state.encode()
    if isinstance(state, (bytes, bytearray)):
        return bytes(state)
    if state is None:
        return None
    raise TypeError(f"a state of type {type(state).__name__}: give a str, bytes, or None to clear it")
