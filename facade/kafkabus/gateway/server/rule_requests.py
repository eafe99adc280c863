"""Requests about the rules of a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server.request_fields import read_number, read_text
from kafkabus.gateway.server.rules import described_rule, filter_of
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath

if TYPE_CHECKING:
    from kafkabus.gateway.server.peer import Peer


class RuleRequests:
    """Changes and lists the rules of one subscription for one client.

    Args:
        peer: The client.
        path: The subscription.
    """

    def __init__(self, peer: Peer, path: EntityPath) -> None:
        self._peer = peer
        self._path = path

    def _subscription(self) -> tuple[str, str]:
        topic, separator, subscription = self._path.name.partition(SUBSCRIPTIONS)
        if not separator or self._path.is_dead_letter:
            raise AmqpError(c.NOT_ALLOWED, f"{self._path} is no subscription: it has no rules")
        return topic, subscription

    async def add(self, body: Mapping[str, Any]) -> None:
        """Add a rule.

        Raises:
            AmqpError: The rule is malformed, or the entity is no subscription.
            ServiceBusError: It cannot be added.
        """
        filter_, action = filter_of(body.get("rule-description"))
        await self._peer.namespace.administration.create_rule(
            *self._subscription(), read_text(body, "rule-name"), filter=filter_, action=action
        )

    async def remove(self, body: Mapping[str, Any]) -> None:
        """Remove a rule.

        Raises:
            AmqpError: The entity is no subscription.
            ServiceBusError: There is no such rule, or it cannot be removed.
        """
        await self._peer.namespace.administration.delete_rule(*self._subscription(), read_text(body, "rule-name"))

    async def page(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return some of the rules, as the answer has them.

        Raises:
            AmqpError: The entity is no subscription.
            ServiceBusError: They cannot be listed.
        """
        skip, top = read_number(body, "skip", 0), read_number(body, "top", 100)
        listed = self._peer.namespace.administration.list_rules(*self._subscription())
        async with self._peer.commons.listing.turn(self._peer):
            rules = [rule async for rule in listed][skip : skip + top]
        return [{"rule-description": described_rule(rule)} for rule in rules]
