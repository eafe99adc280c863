"""Azure Service Bus's queues on your own Kafka and Redis: the names of ``azure.servicebus``."""

from kafkabus.client import ServiceBusClient
from kafkabus.connection_string import ServiceBusConnectionStringProperties, parse_connection_string
from kafkabus.enums import ServiceBusReceiveMode, ServiceBusSubQueue, TransportType
from kafkabus.message import (
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
)
from kafkabus.receiver import ServiceBusReceiver
from kafkabus.sender import ServiceBusSender

__version__ = "0.1.0"

__all__ = [
    "ServiceBusClient",
    "ServiceBusConnectionStringProperties",
    "ServiceBusMessage",
    "ServiceBusMessageBatch",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusReceivedMessage",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSubQueue",
    "TransportType",
    "parse_connection_string",
]
