"""Asyncio administration: the names of ``azure.servicebus.aio.management``."""

from kafkabus._async.admin.queues import ServiceBusAdministrationClient

__all__ = ["ServiceBusAdministrationClient"]
