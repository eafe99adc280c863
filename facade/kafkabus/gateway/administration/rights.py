"""The rights that requests need, by method and kind of resource: a client needs one of them, for the resource's path.

As Service Bus documents them: Manage for entities, and to create and delete rules; Manage or Listen to list rules. The right to
list rules suffices to read a single one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkabus.gateway.administration.resources import (
    EntityResource,
    Namespace,
    Queues,
    Resource,
    RuleList,
    RuleResource,
    SubscriptionResource,
    Subscriptions,
    TopicList,
)
from kafkabus.gateway.sas_tokens import Right

_MANAGE: Final = (Right.MANAGE,)
_LIST_RULES: Final = (Right.MANAGE, Right.LISTEN)

REQUESTS: Final[Mapping[tuple[str, type[Resource]], tuple[Right, ...]]] = {
    ("GET", Namespace): _MANAGE,
    ("GET", Queues): _MANAGE,
    ("GET", TopicList): _MANAGE,
    ("GET", EntityResource): _MANAGE,
    ("GET", Subscriptions): _MANAGE,
    ("GET", SubscriptionResource): _MANAGE,
    ("GET", RuleList): _LIST_RULES,
    ("GET", RuleResource): _LIST_RULES,
    ("PUT", EntityResource): _MANAGE,
    ("PUT", SubscriptionResource): _MANAGE,
    ("PUT", RuleResource): _MANAGE,
    ("DELETE", EntityResource): _MANAGE,
    ("DELETE", SubscriptionResource): _MANAGE,
    ("DELETE", RuleResource): _MANAGE,
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
