"""Receiving as many messages as a test sent."""

from __future__ import annotations

from kafkabus.aio import ServiceBusReceiver
from kafkabus.message import ServiceBusReceivedMessage

PATIENCE = 20.0
"""How long is waited for the next one, at the most, in seconds."""


async def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive so many messages: a single call returns what is at hand, which may be fewer."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        more = await receiver.receive_messages(count - len(messages), max_wait_time=PATIENCE)
        assert more, f"{len(messages)} of {count} messages came"
        messages += more
    return messages
