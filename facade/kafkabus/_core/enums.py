"""Choices that users make, with the names and values of ``azure.servicebus``."""

from __future__ import annotations

from enum import Enum


class ServiceBusReceiveMode(str, Enum):
    """Whether received messages are locked until they are settled, or settled by being received."""

    PEEK_LOCK = "peeklock"
    RECEIVE_AND_DELETE = "receiveanddelete"


class ServiceBusSubQueue(str, Enum):
    """A queue that belongs to an entity."""

    DEAD_LETTER = "deadletter"
    TRANSFER_DEAD_LETTER = "transferdeadletter"


class ServiceBusSessionFilter(Enum):
    """The session of a receiver that names none."""

    NEXT_AVAILABLE = 0


NEXT_AVAILABLE_SESSION = ServiceBusSessionFilter.NEXT_AVAILABLE
"""As a receiver's ``session_id``: the next session that has messages and is not locked."""


class TransportType(Enum):
    """Kept so that existing imports work: kafkabus speaks Kafka's protocol."""

    Amqp = 1
    AmqpOverWebsocket = 2
