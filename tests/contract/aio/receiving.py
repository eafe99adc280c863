"""Receiving as many messages as a test sent."""

from __future__ import annotations

from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus.aio import ServiceBusReceiver

PATIENCE = 60.0
"""How long is waited for the next one, at the most, in seconds."""


async def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Receive so many messages: a single call returns what is at hand, which may be fewer."""
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count:
        more = await receiver.receive_messages(count - len(messages), max_wait_time=PATIENCE)
        assert more, f"{len(messages)} of {count} messages came"
        messages += more
    return messages


async def receive_all(
    receiver: ServiceBusReceiver, count: int, *, quiet: float = 0.5, settle: bool = True
) -> list[ServiceBusReceivedMessage]:
    """Receive so many messages, and those that still come after them.

    Args:
        receiver: From where.
        count: How many are waited for; more would be a fault of the code under test.
        quiet: For how long, in seconds, nothing comes at the end.
        settle: Whether they are completed.
    """
    messages: list[ServiceBusReceivedMessage] = []
    while more := await receiver.receive_messages(100, max_wait_time=PATIENCE if len(messages) < count else quiet):
        messages += more
        if settle:
            await receiver.complete_messages(more)
    return messages
