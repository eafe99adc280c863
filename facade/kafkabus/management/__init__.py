"""Administration: the names of ``azure.servicebus.management``."""

from kafkabus.management.client import ServiceBusAdministrationClient
from kafkabus.management.models import (
    AccessRights,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    MessagingSku,
    NamespaceProperties,
    NamespaceType,
    PartitionRuntimeProperties,
    QueueProperties,
    QueueRuntimeProperties,
)

__all__ = [
    "AccessRights",
    "AuthorizationRule",
    "EntityAvailabilityStatus",
    "EntityStatus",
    "MessagingSku",
    "NamespaceProperties",
    "NamespaceType",
    "PartitionRuntimeProperties",
    "QueueProperties",
    "QueueRuntimeProperties",
    "ServiceBusAdministrationClient",
]
