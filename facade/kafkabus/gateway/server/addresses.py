"""Addresses of nodes, as clients write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkabus.gateway.amqp.conditions import NOT_FOUND, AmqpError
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath, NameRuleError, SubQueue, check_entity, check_part

CLAIMS: Final = "$cbs"
"""The node that takes claims."""
MANAGEMENT: Final = "/$management"
"""The end of the address of an entity's node for management, after the entity's own."""

_SUB_QUEUES: Final = {
    "/$transfer/$deadletterqueue": SubQueue.TRANSFER_DEAD_LETTER,
    "/$deadletterqueue": SubQueue.DEAD_LETTER,
}


@dataclass(frozen=True)
class Address:
    """The address of an entity's node.

    Attributes:
        path: The entity, with its sub-queue.
        is_management: Whether it is that of the node for the entity's management.
    """

    path: EntityPath
    is_management: bool = False


def path_of(address: object) -> str:
    """Return the path in an address, which may be a whole URI, without the slash that it begins with."""
    text = address if isinstance(address, str) else ""
    _, scheme, rest = text.partition("://")
    if scheme:
        text = rest.partition("/")[2]
    return text.strip("/")


def parse(address: object) -> Address:
    """Return what an address names.

    Raises:
        AmqpError: It names no node.
    """
    name = path_of(address)
    if not name:
        raise AmqpError(
            NOT_FOUND,
            "The messaging entity '' could not be found: the link's address is empty, which asks for a dynamic node or for one "
            "that sends each message to the address in its 'to'; there are neither, so name a queue, a topic or a subscription",
        )
    is_management = f"/{name}".lower().endswith(MANAGEMENT)
    if is_management:
        name = name[: -len(MANAGEMENT)]
    sub_queue = SubQueue.NONE
    for suffix, kind in _SUB_QUEUES.items():
        if name.lower().endswith(suffix):
            name, sub_queue = name[: -len(suffix)], kind
            break
    try:
        return Address(EntityPath(_checked(name), sub_queue), is_management)
    except NameRuleError as error:
        raise AmqpError(NOT_FOUND, f"The messaging entity '{path_of(address)}' could not be found: {error}") from error


def _checked(name: str) -> str:
    at = name.lower().find(SUBSCRIPTIONS.lower())
    if at < 0:
        return check_entity(name)
    topic, subscription = name[:at], name[at + len(SUBSCRIPTIONS) :]
    return f"{check_entity(topic)}{SUBSCRIPTIONS}{check_part('subscription', subscription)}"
