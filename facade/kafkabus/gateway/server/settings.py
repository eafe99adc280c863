"""Settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.sas_tokens import Policies
from kafkabus.gateway.server.transactions import TransactionLimits


@dataclass(frozen=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        limits: Bounds of each connection.
        connections: The most connections.
        credit: How many messages a client may send over a link before the first is stored.
        unsettled: How many messages a client may hold over a link.
        held_bytes: How many bytes of a client may wait to be stored before no more are read.
        all_held_bytes: How many bytes of all clients may wait to be stored before less is read of each.
        kept_bytes: How many bytes all clients may make the gateway keep: of messages that they have begun, of answers that
            they do not take, of links and claims. The client that has the most at the address that has the most is ended for
            others.
        address_bytes: How many of these bytes the clients of one address may have.
        policies: The policies that clients' tokens are checked against; None: they are carried, and not checked.
        transactions: Bounds of a client's transactions.
    """

    limits: Limits = field(default_factory=Limits)
    connections: int = 10_000
    credit: int = 1_000
    unsettled: int = 10_000
    held_bytes: int = 16 * 1024 * 1024
    all_held_bytes: int = 256 * 1024 * 1024
    kept_bytes: int = 256 * 1024 * 1024
    address_bytes: int = 24 * 1024 * 1024
    policies: Policies | None = None
    transactions: TransactionLimits = field(default_factory=TransactionLimits)
