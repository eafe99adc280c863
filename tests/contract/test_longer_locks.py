# Generated from tests/contract/aio/test_longer_locks.py by tools/generate_blocking.py. Do not edit.
"""Locks of up to a day, in a namespace that allows them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.exceptions import MessageLockLostError, SessionLockLostError
from kafkabus.management import ServiceBusAdministrationClient
from tests.contract.conftest import Advance

pytestmark = pytest.mark.own_namespace

HOUR = 3_600.0
"""An hour in seconds."""
SKEW = timedelta(minutes=1)
"""How far the test's clock and the ledger's may differ."""


@pytest.fixture
def allowed(administration: ServiceBusAdministrationClient) -> Iterator[ServiceBusAdministrationClient]:
    """Administration of the namespace, which allows locks of a day during the test."""
    changed = administration.update_namespace(longest_lock="P1D")
    assert changed.longest_lock == timedelta(days=1)
    yield administration
    for name in ("long", "long-sessions"):
        administration.delete_queue(name)
    changed = administration.update_namespace(longest_lock=timedelta(minutes=5))
    assert changed.longest_lock == timedelta(minutes=5)


def test_a_lock_may_last_a_day(
    client: ServiceBusClient, allowed: ServiceBusAdministrationClient, later: Advance
) -> None:
    """It ends when it should, and can be renewed for as long; a session's as well."""
    queue = (allowed.create_queue("long", lock_duration=timedelta(days=1))).name
    sessions = (allowed.create_queue("long-sessions", lock_duration="P1D", requires_session=True)).name
    assert (allowed.get_namespace_properties()).longest_lock == timedelta(days=1)
    assert (allowed.get_queue(queue)).lock_duration == timedelta(days=1)
    for name in (queue, sessions):
        with client.get_queue_sender(name) as sender:
            sender.send_messages(ServiceBusMessage("1", session_id="s" if name == sessions else None))
    with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(queue) as other:
        (message,) = receiver.receive_messages(max_wait_time=60)
        assert message.locked_until_utc is not None
        assert abs(message.locked_until_utc - datetime.now(timezone.utc) - timedelta(days=1)) < SKEW
        later(queue, 23 * HOUR)
        assert other.receive_messages(max_wait_time=1) == []
        receiver.renew_message_lock(message)
        later(queue, 23 * HOUR)
        assert other.receive_messages(max_wait_time=1) == []
        later(queue, 2 * HOUR)
        (again,) = other.receive_messages(max_wait_time=60)
        assert again.delivery_count == 1
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        other.complete_message(again)
    with client.get_queue_receiver(sessions, session_id="s") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=60)
        later(sessions, 23 * HOUR)
        assert receiver.session is not None
        receiver.session.renew_lock()
        later(sessions, 25 * HOUR)
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)


def test_the_bound_holds(administration: ServiceBusAdministrationClient) -> None:
    """Five minutes without a longer one, at creation and in an update; the error names the remedy."""
    complaint = "lock_duration=0:06:00: up to 0:05:00 in this namespace, unless a longer longest_lock, of up to a day"
    with pytest.raises(ValueError, match=complaint):
        administration.create_queue("long", lock_duration=timedelta(minutes=6))
    administration.create_queue("long", lock_duration=timedelta(minutes=5))
    try:
        properties = administration.get_queue("long")
        properties.lock_duration = timedelta(minutes=6)
        with pytest.raises(ValueError, match=complaint):
            administration.update_queue(properties)
        assert (administration.get_queue("long")).lock_duration == timedelta(minutes=5)
    finally:
        administration.delete_queue("long")


def test_the_bound_is_not_set_below_what_entities_have(allowed: ServiceBusAdministrationClient) -> None:
    """Nor beyond a day, nor below the service's."""
    allowed.create_queue("long", lock_duration=timedelta(hours=2))
    allowed.create_queue("long-sessions", requires_session=True, lock_duration="PT5M")
    for longest, complaint in (
        (timedelta(hours=1), "longest_lock=1:00:00: queue 'long' has lock_duration=2:00:00; shorten that first"),
        (timedelta(hours=25), "longest_lock=1 day, 1:00:00"),
        (timedelta(minutes=4), "longest_lock=0:04:00"),
        ("an hour", "longest_lock=an hour"),
    ):
        with pytest.raises(ValueError, match=complaint):
            allowed.update_namespace(longest_lock=longest)
    assert (allowed.get_namespace_properties()).longest_lock == timedelta(days=1)
    with pytest.raises(ValueError, match="lock_duration=1 day, 0:00:01"):
        allowed.update_queue(allowed.get_queue("long"), lock_duration=timedelta(days=1, seconds=1))
