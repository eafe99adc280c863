"""The rights that requests need, by method and kind of resource: a client needs one of them, for the resource's path.

As Service Bus documents them: Manage for entities, and to create and delete rules; Manage or Listen to list rules. The right to
list rules suffices to read a single one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkabus.gateway.administration.resources import (
    Entity,
    Namespace,
    Queues,
    Resource,
    Rule,
    Rules,
    Subscription,
    Subscriptions,
    Topics,
)
from kafkabus.gateway.sas_tokens import Right

_MANAGE: Final = (Right.MANAGE,)
_LIST_RULES: Final = (Right.MANAGE, Right.LISTEN)

REQUESTS: Final[Mapping[tuple[str, type[Resource]], tuple[Right, ...]]] = {
    ("GET", Namespace): _MANAGE,
    ("GET", Queues): _MANAGE,
    ("GET", Topics): _MANAGE,
    ("GET", Entity): _MANAGE,
    ("GET", Subscriptions): _MANAGE,
    ("GET", Subscription): _MANAGE,
    ("GET", Rules): _LIST_RULES,
    ("GET", Rule): _LIST_RULES,
    ("PUT", Entity): _MANAGE,
    ("PUT", Subscription): _MANAGE,
    ("PUT", Rule): _MANAGE,
    ("DELETE", Entity): _MANAGE,
    ("DELETE", Subscription): _MANAGE,
    ("DELETE", Rule): _MANAGE,
}
"""The rights of requests; those that are missing here, such as the deletion of a list, need Manage before they are refused."""


def rights_of(method: str, resource: Resource | None) -> tuple[Right, ...]:
    """Return the rights of which a request needs one.

    Args:
        method: The request's method; HEAD needs the rights of GET.
        resource: The resource; None if there is none at the path.
    """
    if resource is None:
        return _MANAGE
    return REQUESTS.get(("GET" if method == "HEAD" else method, type(resource)), _MANAGE)
