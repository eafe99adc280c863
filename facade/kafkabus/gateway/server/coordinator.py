"""The node that begins and ends transactions."""

from __future__ import annotations

from collections.abc import Awaitable

from kafkabus.gateway.amqp.conditions import ILLEGAL_STATE, MESSAGE_SIZE_EXCEEDED, AmqpError
from kafkabus.gateway.amqp.deliveries import IncomingDelivery
from kafkabus.gateway.amqp.frames import described
from kafkabus.gateway.amqp.performatives import Accepted, Composite, Declare, Declared, Discharge, Rejected, error_of
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus.gateway.server.peer import BaseNode
from kafkabus_mapping.amqp.sections import decode_sections

CREDIT = 100
"""How many declarations and discharges may be under way."""
MOST_BYTES, MOST_VALUES = 65_536, 256
"""The size of the largest request, and the most elements of its lists, maps and arrays."""


class CoordinatorNode(BaseNode):
    """Begins and ends the transactions of a client."""

    needs_claims = True

    async def open(self) -> None:
        """Accept the link."""
        self.link.most_bytes = MOST_BYTES
        self.link.accept(max_message_size=MOST_BYTES)
        self.link.give_credit(CREDIT)

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """Begin or end a transaction."""
        try:
            outcome = self._begun(delivery)
        except Exception as error:  # noqa: BLE001 - reported to the client
            self._answer(delivery, Rejected(error_of(to_amqp_error(error))))
        else:
            self.peer.tasks.start(self._finish(delivery, outcome), is_requested=True)

    def _begun(self, delivery: IncomingDelivery) -> Awaitable[Composite]:
        """Begin what the client asks for, in the moment at which it arrives; return the outcome, to be awaited.

        Raises:
            AmqpError: The client asks for nothing that a coordinator does, or for the end of an unknown transaction.
        """
        if delivery.is_too_large:
            raise AmqpError(
                MESSAGE_SIZE_EXCEEDED, f"a request of {delivery.size} bytes: a coordinator takes {MOST_BYTES}"
            )
        asked = described(decode_sections(delivery.payload, MOST_VALUES).value)
        if isinstance(asked, Declare):
            return self._declared()
        if isinstance(asked, Discharge):
            self.peer.fail_unfinished(asked.txn_id)
            return self._discharged(self.peer.transactions.discharge(asked.txn_id, commit=not asked.fail))
        raise AmqpError(ILLEGAL_STATE, f"{asked!r:.60} neither declares nor discharges a transaction")

    async def _declared(self) -> Composite:
        return Declared(await self.peer.transactions.declare(self.link))

    async def _discharged(self, end: Awaitable[None]) -> Composite:
        await end
        return Accepted()

    async def _finish(self, delivery: IncomingDelivery, outcome: Awaitable[Composite]) -> None:
        try:
            state = await outcome
        except Exception as error:  # noqa: BLE001 - reported to the client
            state = Rejected(error_of(to_amqp_error(error)))
        self._answer(delivery, state)

    def _answer(self, delivery: IncomingDelivery, state: Composite) -> None:
        self.link.acknowledge([delivery], state)
        if self.link.is_attached and self.link.credit <= CREDIT // 2:
            self.link.give_credit(CREDIT)
        self.peer.outbox.flush_soon()

    async def close(self) -> None:
        """Roll back the transactions that were declared on the link, unless they are ending."""
        await self.peer.transactions.end_those_of(self.link)
