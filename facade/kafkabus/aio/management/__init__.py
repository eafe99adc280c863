"""Administration, asyncio: the names of ``azure.servicebus.aio.management``."""

from kafkabus.aio.management.client import ServiceBusAdministrationClient

__all__ = ["ServiceBusAdministrationClient"]
