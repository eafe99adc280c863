"""Azure Service Bus's queues and topics on your own Kafka and Redis: the names of ``azure.servicebus``.

A name is imported when it is first used, so that the command line need not wait for Kafka's and Redis's clients.

The blocking classes in ``_sync`` are generated from the asyncio classes in ``_async``: read and change those.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkabus._core.enums import (
        NEXT_AVAILABLE_SESSION,
        ServiceBusReceiveMode,
        ServiceBusSessionFilter,
        ServiceBusSubQueue,
        TransportType,
    )
    from kafkabus._core.message import (
        ServiceBusMessage,
        ServiceBusMessageBatch,
        ServiceBusMessageState,
        ServiceBusReceivedMessage,
    )
    from kafkabus._core.settings import ServiceBusConnectionStringProperties, parse_connection_string
    from kafkabus._sync.handles.client import ServiceBusClient
    from kafkabus._sync.handles.lock_renewer import AutoLockRenewer
    from kafkabus._sync.handles.receiver import ServiceBusReceiver
    from kafkabus._sync.handles.sender import ServiceBusSender
    from kafkabus._sync.handles.session import ServiceBusSession
    from kafkabus._sync.handles.transaction import ServiceBusTransaction

    __version__: str

__all__ = [
    "NEXT_AVAILABLE_SESSION",
    "AutoLockRenewer",
    "ServiceBusClient",
    "ServiceBusConnectionStringProperties",
    "ServiceBusMessage",
    "ServiceBusMessageBatch",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusReceivedMessage",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSession",
    "ServiceBusSessionFilter",
    "ServiceBusSubQueue",
    "ServiceBusTransaction",
    "TransportType",
    "parse_connection_string",
]

_HOME = {
    "NEXT_AVAILABLE_SESSION": "_core.enums",
    "ServiceBusReceiveMode": "_core.enums",
    "ServiceBusSessionFilter": "_core.enums",
    "ServiceBusSubQueue": "_core.enums",
    "TransportType": "_core.enums",
    "ServiceBusConnectionStringProperties": "_core.settings",
    "parse_connection_string": "_core.settings",
    "ServiceBusMessage": "_core.message",
    "ServiceBusMessageBatch": "_core.message",
    "ServiceBusMessageState": "_core.message",
    "ServiceBusReceivedMessage": "_core.message",
    "ServiceBusClient": "_sync.handles.client",
    "ServiceBusReceiver": "_sync.handles.receiver",
    "AutoLockRenewer": "_sync.handles.lock_renewer",
    "ServiceBusSender": "_sync.handles.sender",
    "ServiceBusSession": "_sync.handles.session",
    "ServiceBusTransaction": "_sync.handles.transaction",
}
"""The module that defines each name."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        # Not read from a file that a build writes: in a checkout it would be that of an earlier build.
        return import_module("kafkabus_mapping.version").installed_version()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
