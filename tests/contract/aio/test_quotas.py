"""A full queue accepts no messages until some of its messages are settled."""

from __future__ import annotations

import time

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._async.compat import sleep
from kafkabus._async.context import ClientContext
from kafkabus._core.settings import parse_settings
from kafkabus.aio import ServiceBusClient
from kafkabus.exceptions import ServiceBusQuotaExceededError
from kafkabus_mapping.keys import partition_of
from tests.contract.aio.conftest import MakeQueue
from tests.contract.aio.receiving import receive_all

PATIENCE = 40.0
LARGE = 230_000


async def make_small(connection_string: str, queue: str) -> None:
    """Make the quota of each partition a megabyte, which is less than users can choose."""
    context = ClientContext(parse_settings(connection_string))
    try:
        description = await context.descriptions.get(queue)
        assert description is not None
        await context.descriptions.put(description.model_copy(update={"max_size_in_megabytes": 1}))
    finally:
        await context.close()


async def send_until(client: ServiceBusClient, queue: str, *, full: bool) -> str:
    """Send small messages of one key until its partition is full, or is not; return the error's text."""
    deadline, said = time.monotonic() + PATIENCE, ""
    async with client.get_queue_sender(queue) as sender:
        while time.monotonic() < deadline:
            try:
                await sender.send_messages(ServiceBusMessage("small", partition_key="k"))
            except ServiceBusQuotaExceededError as error:
                said = str(error)
            if bool(said) == full:
                return said
            said = ""
            await sleep(0.1)
    raise TimeoutError(said)


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "plain"])
async def test_a_full_queue_takes_nothing_more(
    client: ServiceBusClient, make_queue: MakeQueue, connection_string: str, partitioned: bool
) -> None:
    """The quota holds for each partition: other keys go on, and messages without a key go to another partition."""
    queue = await make_queue(partitioned=partitioned)
    await make_small(connection_string, queue)
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for _ in range(5):
            await sender.send_messages(ServiceBusMessage(b"x" * LARGE, partition_key="k"))
        said = await send_until(client, queue, full=True)
        assert queue in said
        assert "1 MB" in said
        if partitioned:
            other = next(key for key in "abcdefgh" if partition_of(key, 16) != partition_of("k", 16))
            await sender.send_messages(ServiceBusMessage("other", partition_key=other))
            for _ in range(20):
                await sender.send_messages(ServiceBusMessage("any"))
        else:
            with pytest.raises(ServiceBusQuotaExceededError, match="nothing was sent"):
                await sender.send_messages(ServiceBusMessage("any"))
        messages = await receive_all(receiver, 26 if partitioned else 5, quiet=2.0)
        places = [(message.sequence_number or 0) >> 48 for message in messages if str(message) == "any"]
        assert len(places) == (20 if partitioned else 0)
        assert partition_of("k", 16) not in places
        assert await send_until(client, queue, full=False) == ""
