"""The asyncio client: the names of ``azure.servicebus.aio``.

These modules are the source; the blocking client's modules of the same names are generated from them.
"""

from kafkabus._async.handles.client import ServiceBusClient
from kafkabus._async.handles.lock_renewer import AutoLockRenewer
from kafkabus._async.handles.receiver import ServiceBusReceiver
from kafkabus._async.handles.sender import ServiceBusSender
from kafkabus._async.handles.session import ServiceBusSession
from kafkabus._async.handles.transaction import ServiceBusTransaction

__all__ = [
    "AutoLockRenewer",
    "ServiceBusClient",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSession",
    "ServiceBusTransaction",
]
