"""Administration: the names of ``azure.servicebus.management``."""

from kafkabus.management.client import ServiceBusAdministrationClient
from kafkabus.management.models import (
    EntityAvailabilityStatus,
    EntityStatus,
    PartitionRuntimeProperties,
    QueueProperties,
    QueueRuntimeProperties,
)

__all__ = [
    "EntityAvailabilityStatus",
    "EntityStatus",
    "PartitionRuntimeProperties",
    "QueueProperties",
    "QueueRuntimeProperties",
    "ServiceBusAdministrationClient",
]
