"""Locks of up to a day, in a namespace that allows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusMessage
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.exceptions import MessageLockLostError, SessionLockLostError
from tests.contract.aio.conftest import Advance

pytestmark = pytest.mark.own_namespace

HOUR = 3_600.0
"""An hour in seconds."""
SKEW = timedelta(minutes=1)
"""How far the test's clock and the ledger's may differ."""


@pytest.fixture
async def allowed(administration: ServiceBusAdministrationClient) -> AsyncIterator[ServiceBusAdministrationClient]:
    """Administration of the namespace, which allows locks of a day during the test."""
    changed = await administration.update_namespace(longest_lock="P1D")
    assert changed.longest_lock == timedelta(days=1)
    yield administration
    for name in ("long", "long-sessions"):
        await administration.delete_queue(name)
    changed = await administration.update_namespace(longest_lock=timedelta(minutes=5))
    assert changed.longest_lock == timedelta(minutes=5)


async def test_a_lock_may_last_a_day(
    client: ServiceBusClient, allowed: ServiceBusAdministrationClient, later: Advance
) -> None:
    """It ends when it should, and can be renewed for as long; a session's as well."""
    queue = (await allowed.create_queue("long", lock_duration=timedelta(days=1))).name
    sessions = (await allowed.create_queue("long-sessions", lock_duration="P1D", requires_session=True)).name
    assert (await allowed.get_namespace_properties()).longest_lock == timedelta(days=1)
    assert (await allowed.get_queue(queue)).lock_duration == timedelta(days=1)
    for name in (queue, sessions):
        async with client.get_queue_sender(name) as sender:
            await sender.send_messages(ServiceBusMessage("1", session_id="s" if name == sessions else None))
    async with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(queue) as other:
        (message,) = await receiver.receive_messages(max_wait_time=60)
        assert message.locked_until_utc is not None
        assert abs(message.locked_until_utc - datetime.now(timezone.utc) - timedelta(days=1)) < SKEW
        await later(queue, 23 * HOUR)
        assert await other.receive_messages(max_wait_time=1) == []
        await receiver.renew_message_lock(message)
        await later(queue, 23 * HOUR)
        assert await other.receive_messages(max_wait_time=1) == []
        await later(queue, 2 * HOUR)
        (again,) = await other.receive_messages(max_wait_time=60)
        assert again.delivery_count == 1
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        await other.complete_message(again)
    async with client.get_queue_receiver(sessions, session_id="s") as receiver:
        (message,) = await receiver.receive_messages(max_wait_time=60)
        await later(sessions, 23 * HOUR)
        assert receiver.session is not None
        await receiver.session.renew_lock()
        await later(sessions, 25 * HOUR)
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(message)


async def test_the_bound_holds(administration: ServiceBusAdministrationClient) -> None:
    """Five minutes without a longer one, at creation and in an update; the error names the remedy."""
    complaint = "lock_duration=0:06:00: up to 0:05:00 in this namespace, unless a longer longest_lock, of up to a day"
    with pytest.raises(ValueError, match=complaint):
        await administration.create_queue("long", lock_duration=timedelta(minutes=6))
    await administration.create_queue("long", lock_duration=timedelta(minutes=5))
    try:
        properties = await administration.get_queue("long")
        properties.lock_duration = timedelta(minutes=6)
        with pytest.raises(ValueError, match=complaint):
            await administration.update_queue(properties)
        assert (await administration.get_queue("long")).lock_duration == timedelta(minutes=5)
    finally:
        await administration.delete_queue("long")


async def test_the_bound_is_not_set_below_what_entities_have(allowed: ServiceBusAdministrationClient) -> None:
    """Nor beyond a day, nor below the service's."""
    await allowed.create_queue("long", lock_duration=timedelta(hours=2))
    await allowed.create_queue("long-sessions", requires_session=True, lock_duration="PT5M")
    for longest, complaint in (
        (timedelta(hours=1), "longest_lock=1:00:00: queue 'long' has lock_duration=2:00:00; shorten that first"),
        (timedelta(hours=25), "longest_lock=1 day, 1:00:00"),
        (timedelta(minutes=4), "longest_lock=0:04:00"),
        ("an hour", "longest_lock=an hour"),
    ):
        with pytest.raises(ValueError, match=complaint):
            await allowed.update_namespace(longest_lock=longest)
    assert (await allowed.get_namespace_properties()).longest_lock == timedelta(days=1)
    with pytest.raises(ValueError, match="lock_duration=1 day, 0:00:01"):
        await allowed.update_queue(await allowed.get_queue("long"), lock_duration=timedelta(days=1, seconds=1))
