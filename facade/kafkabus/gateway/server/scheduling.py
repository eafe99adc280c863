"""Requests to schedule messages, and to cancel them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkabus._async.handles.sender import check_outgoing, schedule_outgoing
from kafkabus._core.message import Outgoing
from kafkabus._runtime.turns import Pace
from kafkabus.aio import ServiceBusSender
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.messages import decode_transfer
from kafkabus.gateway.server.request_fields import read_array
from kafkabus_mapping.names import EntityPath

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer

SCHEDULED_AT_ONCE: Final = 200
"""How many messages of a request are scheduled in one go."""


class Scheduling:
    """Schedules messages of one entity for one client.

    Args:
        peer: The client.
        path: The entity.
    """

    def __init__(self, peer: Peer, path: EntityPath) -> None:
        self._peer = peer
        self._path = path
        self._own_sender: ServiceBusSender | None = None

    async def close(self) -> None:
        """Let go of the sender."""
        if self._own_sender is not None:
            await self._own_sender.close()

    async def _sender(self) -> ServiceBusSender:
        if self._own_sender is None:
            self._own_sender = self._peer.namespace.sender(self._path)
            await self._own_sender.__aenter__()
        return self._own_sender

    async def schedule(self, body: Mapping[str, Any]) -> list[int]:
        """Schedule messages; return their sequence numbers.

        Raises:
            AmqpError: A message is none, or is not to be scheduled.
            ServiceBusError: They cannot be scheduled.
        """
        entries = body.get("messages")
        if not isinstance(entries, Sequence) or not entries:
            raise AmqpError(service_bus.ARGUMENT_ERROR, "messages is a list of one or more")
        outgoing, pace = list[Outgoing](), Pace()
        for entry in entries:
            payload = entry.get("message") if isinstance(entry, Mapping) else None
            if not isinstance(payload, bytes):
                raise AmqpError(service_bus.ARGUMENT_ERROR, "a message to schedule is the bytes of an AMQP message")
            outgoing += decode_transfer(payload, 0, self._peer.namespace.context.descriptions.written_format)
            await pace.keep()
        if any(message.envelope.scheduled_enqueue_time_utc is None for message in outgoing):
            raise AmqpError(service_bus.ARGUMENT_ERROR, "a message to schedule has x-opt-scheduled-enqueue-time")
        sender = await self._sender()
        if len(outgoing) <= SCHEDULED_AT_ONCE:
            return await schedule_outgoing(sender, outgoing)
        async with self._peer.requests.scheduling:
            return await self._schedule_in_parts(sender, outgoing)

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
                if self._peer.socket.is_lost:
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
        if (await self._peer.namespace.entity(self._path)).generation != entity.generation:
            raise AmqpError(
                c.NOT_FOUND,
                f"{self._path} was deleted and created again during the call: messages that were scheduled before are gone",
            )
        return numbers

    async def cancel(self, body: Mapping[str, Any]) -> None:
        """Cancel scheduled messages.

        Raises:
            AmqpError: The request names none.
            ServiceBusError: They cannot be cancelled.
        """
        await (await self._sender()).cancel_scheduled_messages(read_array(body, "sequence-numbers", int))
