"""The asyncio client: the names of ``azure.servicebus.aio``.

These modules are the source; the blocking client's modules of the same names are generated from them.
"""

from kafkabus.aio.client import ServiceBusClient
from kafkabus.aio.receiver import ServiceBusReceiver
from kafkabus.aio.renewer import AutoLockRenewer
from kafkabus.aio.sender import ServiceBusSender
from kafkabus.aio.session import ServiceBusSession
from kafkabus.aio.transaction import ServiceBusTransaction

__all__ = [
    "AutoLockRenewer",
    "ServiceBusClient",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSession",
    "ServiceBusTransaction",
]
