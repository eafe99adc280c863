"""Upkeep follows the notifications of ledgers; its sweeps find changes whose notification was lost."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from kafkabus._async.redis.upkeep_events import LOOK_EVERYWHERE, UpkeepEvent, UpkeepEvents
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.upkeep import service
from tests.queues import new_queue
from tests.upkeep import upkeep

PATIENCE = 60.0


@pytest.mark.parametrize("lost", [0.5, 1.0])
def test_what_is_told_in_vain_is_found_by_a_sweep(untended: str, lost: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks end, scheduled messages come and times to live are over, though notifications that they are due are lost.

    It waits for a lock of 5 s and two sweeps.
    """
    chance, heard = random.Random(7), UpkeepEvents.next

    async def next_one(events: UpkeepEvents) -> UpkeepEvent | None:
        event = await heard(events)
        return event if event == LOOK_EVERYWHERE or chance.random() >= lost else None

    monkeypatch.setattr(UpkeepEvents, "next", next_one)
    monkeypatch.setattr(service, "SWEEP_EVERY", 1.0)
    settings = {"lock_duration": timedelta(seconds=5), "max_delivery_count": 1}
    name = new_queue(untended, dead_lettering_on_message_expiration=True, **settings)
    with (
        upkeep(untended),
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusClient.from_connection_string(untended) as client,
        client.get_queue_sender(name) as sender,
    ):
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(timezone.utc) + timedelta(seconds=3))
        sender.send_messages(
            [ServiceBusMessage("left"), ServiceBusMessage("mortal", time_to_live=timedelta(seconds=3))]
        )
        with client.get_queue_receiver(name, max_wait_time=PATIENCE) as receiver:
            (left,) = receiver.receive_messages(1)
            assert str(left) == "left"
        deadline = time.monotonic() + PATIENCE
        counts = None
        # The mortal message expires, the other is given up when its lock ends, the last is enqueued.
        while counts != (1, 2, 0):
            assert time.monotonic() < deadline, counts
            found = administration.get_queue_runtime_properties(name)
            counts = (found.active_message_count, found.dead_letter_message_count, found.scheduled_message_count)
        with client.get_queue_receiver(name, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=PATIENCE) as dead:
            received = dead.receive_messages(2) + dead.receive_messages(2, max_wait_time=1)
    assert sorted(map(str, received)) == ["left", "mortal"]
