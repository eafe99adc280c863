"""Azure Service Bus's queues on your own Kafka and Redis: the names of ``azure.servicebus``.

A name is imported when it is first asked for: the command line need not wait for Kafka's and Redis's clients.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkabus.client import ServiceBusClient
    from kafkabus.connection_string import ServiceBusConnectionStringProperties, parse_connection_string
    from kafkabus.enums import (
        NEXT_AVAILABLE_SESSION,
        ServiceBusReceiveMode,
        ServiceBusSessionFilter,
        ServiceBusSubQueue,
        TransportType,
    )
    from kafkabus.message import (
        ServiceBusMessage,
        ServiceBusMessageBatch,
        ServiceBusMessageState,
        ServiceBusReceivedMessage,
    )
    from kafkabus.receiver import ServiceBusReceiver
    from kafkabus.renewer import AutoLockRenewer
    from kafkabus.sender import ServiceBusSender
    from kafkabus.session import ServiceBusSession
    from kafkabus.transaction import ServiceBusTransaction

__version__ = "0.1.0"

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

_MODULES = (
    "enums",
    "connection_string",
    "message",
    "sender",
    "session",
    "receiver",
    "renewer",
    "transaction",
    "client",
)
"""Where the names are, each where it is defined, the cheapest to import first."""


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
