"""Idle queues are deleted while a sender begins to use them."""

from __future__ import annotations

import asyncio
import operator
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest
import redis.asyncio
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from kafkabus import ServiceBusMessage, ServiceBusSubQueue
from kafkabus._async.entities.catalog import DESCRIPTION_AGE
from kafkabus._async.entities.lifecycle import EntityLifecycle
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.keys import idle_key
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import MessagingEntityNotFoundError
from kafkabus.upkeep import idleness
from kafkabus.upkeep.service import Upkeep
from kafkabus_mapping.entities import EntityDescription, EntityStatus
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.effort import SEED, effort

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

IDLE = timedelta(minutes=5)
GRACE = timedelta(seconds=DESCRIPTION_AGE + 1)
"""For how long all senders are refused here before a queue is deleted: the minimum."""
SLOW = 2.0
"""How long, in seconds, a deletion is about to begin.

Unless refused, a message that is sent in this time is deleted as well.
"""
SPREAD = 5.0
"""In how many seconds queues begin to be idle."""
AFTER = GRACE.total_seconds() + 5
"""How many seconds later a sender may still send."""
PATIENCE = 60.0
NOT_FORWARDED = ServiceBusSubQueue.TRANSFER_DEAD_LETTER


@dataclass
class Race:
    """A queue that is idle from a moment on, and a sender that begins to use it.

    Attributes:
        queue: Its name.
        source: The entity that the message is sent to: the queue, or one that forwards its messages there.
        idle_at: When the queue has been idle for as long as it may be, in seconds.
        known_at: When the sender asks what the queue is, in seconds; this may be earlier.
        sent_at: When it sends, at most so much later that it may rely on the answer.
        outcome: Whether the message was acknowledged.
    """

    queue: str
    source: str
    idle_at: float
    known_at: float
    sent_at: float
    outcome: str = ""

    async def run(self, client: ServiceBusClient, redis_url: str, namespace: str) -> None:
        """Have the time pass for the queue, and send."""
        idle = asyncio.create_task(self._be_idle(redis_url, namespace))
        sender = client.get_queue_sender(self.source)
        await asyncio.sleep(self.known_at)
        try:
            async with sender:
                await asyncio.sleep(self.sent_at - self.known_at)
                await idle
                await sender.send_messages(ServiceBusMessage(self.source))
            self.outcome = "acknowledged"
        except MessagingEntityNotFoundError:
            self.outcome = "refused"
        await idle

    async def _be_idle(self, redis_url: str, namespace: str) -> None:
        await asyncio.sleep(self.idle_at)
        await asyncio.to_thread(advance, redis_url, namespace, self.queue, IDLE.total_seconds() + 20)


def races(chance: random.Random, count: int) -> list[Race]:
    """Return so many races, whose senders begin at random; every third message is forwarded to the queue."""
    found: list[Race] = []
    for number in range(count):
        source = f"source-{number}" if number % 3 == 0 else f"idle-{number}"
        idle_at = chance.uniform(0, SPREAD)
        sent_at = idle_at + chance.uniform(0, AFTER)
        known_at = max(0.0, sent_at - chance.uniform(0, DESCRIPTION_AGE))
        found.append(Race(f"idle-{number}", source, idle_at, known_at, sent_at))
    return found


async def found_in(client: ServiceBusClient, queue: str, part: ServiceBusSubQueue | None = None) -> list[str]:
    """Take the messages out of a queue or its dead-letter queue and return them; nothing if it does not exist."""
    try:
        async with client.get_queue_receiver(queue, sub_queue=part, receive_mode="receiveanddelete") as receiver:
            return [str(message) for message in await receiver.receive_messages(10, max_wait_time=1)]
    except MessagingEntityNotFoundError:
        return []


@retry(retry=retry_if_result(operator.not_), stop=stop_after_delay(PATIENCE), wait=wait_fixed(0.1))
async def until(is_so: Callable[[], Awaitable[bool]]) -> bool:
    """Wait until a condition holds."""
    return await is_so()


@pytest.mark.extended
def test_what_is_acknowledged_is_not_deleted(
    runtime: RunningNamespace, untended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No acknowledged message is lost, whenever it is sent or forwarded; a late one is refused.

    The test takes half a minute, most of it waiting.
    """
    monkeypatch.setattr(idleness, "GRACE", GRACE)
    monkeypatch.setattr(idleness, "LOOK_EVERY", 0.5)
    delete, deleted = EntityLifecycle.delete, list[str]()

    async def delete_slowly(self: EntityLifecycle, description: EntityDescription) -> None:
        await asyncio.sleep(SLOW)
        deleted.append(description.name)
        await delete(self, description)

    monkeypatch.setattr(EntityLifecycle, "delete", delete_slowly)
    settings = parse_settings(untended)
    runners = races(random.Random(SEED), effort(24, 60))
    queues = [race.queue for race in runners]
    sources = [race.source for race in runners if race.source != race.queue]

    async def run() -> list[str]:
        stop = asyncio.Event()
        async with (
            ServiceBusAdministrationClient.from_connection_string(untended) as administration,
            ServiceBusClient.from_connection_string(untended) as client,
            redis.asyncio.Redis.from_url(runtime.redis_url) as store,
        ):

            async def all_are_looked_at() -> bool:
                keys = [idle_key(settings.namespace, EntityPath(queue)) for queue in queues]
                return await store.exists(*keys) == len(keys)

            async def all_are_decided() -> bool:
                with suppress(MessagingEntityNotFoundError):
                    for queue in sources:
                        if (await administration.get_queue_runtime_properties(queue)).active_message_count:
                            return False
                present = [queue async for queue in administration.list_queues()]
                return all(queue.status is EntityStatus.ACTIVE for queue in present)

            for queue in queues:
                await administration.create_queue(queue, auto_delete_on_idle=IDLE)
            for race in runners:
                if race.source != race.queue:
                    await administration.create_queue(race.source, forward_to=race.queue)
            service = asyncio.create_task(Upkeep(settings).run(stop))
            try:
                await until(all_are_looked_at)
                await asyncio.gather(*(race.run(client, runtime.redis_url, settings.namespace) for race in runners))
                await until(all_are_decided)
            finally:
                stop.set()
                await service
            places = [*((queue, None) for queue in queues), *((source, NOT_FORWARDED) for source in sources)]
            return [body for place in places for body in await found_in(client, *place)]

    found = asyncio.run(run())
    acknowledged = [race.source for race in runners if race.outcome == "acknowledged"]
    assert Counter(found) == Counter(acknowledged)
    assert {race.outcome for race in runners} == {"acknowledged", "refused"}
    assert deleted
