"""The node that begins and ends transactions."""

from __future__ import annotations

from kafkabus.gateway.amqp.conditions import ILLEGAL_STATE, AmqpError
from kafkabus.gateway.amqp.events import IncomingDelivery
from kafkabus.gateway.amqp.frames import described
from kafkabus.gateway.amqp.performatives import Accepted, Composite, Declare, Declared, Discharge, Rejected, error_of
from kafkabus.gateway.server.errors import told
from kafkabus.gateway.server.peer import BaseNode
from kafkabus_mapping.amqp.sections import decode_sections

CREDIT = 100
"""How many declarations and discharges may be under way."""


class CoordinatorNode(BaseNode):
    """Begins and ends the transactions of a client."""

    async def open(self) -> None:
        """Accept the link."""
        self.link.accept(max_message_size=self.peer.engine.limits.message_bytes)
        self.link.give_credit(CREDIT)

    def delivered(self, delivery: IncomingDelivery) -> None:
        """Begin or end a transaction."""
        self.peer.start(self._do(delivery))

    async def _do(self, delivery: IncomingDelivery) -> None:
        transactions = self.peer.transactions
        state: Composite
        try:
            asked = described(decode_sections(delivery.payload).value)
            if isinstance(asked, Declare):
                state = Declared(await transactions.declare())
            elif isinstance(asked, Discharge):
                await transactions.discharge(asked.txn_id, commit=not asked.fail)
                state = Accepted()
            else:
                raise AmqpError(ILLEGAL_STATE, f"{asked!r:.60} neither declares nor discharges a transaction")
        except Exception as error:  # noqa: BLE001 - the client is told
            state = Rejected(error_of(told(error)))
        self.link.session.acknowledge([delivery], state)
        if self.link.is_attached and self.link.credit <= CREDIT // 2:
            self.link.give_credit(CREDIT)
        self.peer.flush_soon()
