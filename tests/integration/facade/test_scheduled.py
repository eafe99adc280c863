"""Scheduled messages on real logs: senders and movers that die, a Redis that lost everything."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import LedgerState
from kafkabus._sync.context import ClientContext
from kafkabus._sync.dispositions.transfer import ORPHAN_AGE, Transfers
from kafkabus._sync.handles import sender
from kafkabus.embedded import EmbeddedRuntime, RunningNamespace
from kafkabus.exceptions import ServiceBusCommunicationError
from kafkabus_mapping.names import EntityPath
from tests.clock import advance
from tests.contract.receiving import receive_all
from tests.integration.facade.test_rebuild import empty, wait_for_checkpoint
from tests.queues import new_queue

PATIENCE = 60.0
NAMESPACE = "scheduled"
"""A namespace whose Redis may be emptied; see ``own_runtime``."""


def schedule(client: ServiceBusClient, queue: str, count: int) -> list[int]:
    """Schedule numbered messages for an hour from now."""
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    with client.get_queue_sender(queue) as sender:
        return sender.schedule_messages([ServiceBusMessage(str(number)) for number in range(count)], due)


def all_of(client: ServiceBusClient, queue: str, count: int, session: str | None = None) -> list[str]:
    """Receive and complete so many messages, and see that no more come; return their bodies."""
    with client.get_queue_receiver(queue, session_id=session) as receiver:
        return [str(message) for message in receive_all(receiver, count, quiet=2.0)]


def state_of(context: ClientContext, queue: str) -> LedgerState | None:
    """Return the state of a plain queue's ledger."""
    return context.ledger_client.states(context.catalog.entity(EntityPath(queue)).ledgers)[0]


def wait_for_ledger(context: ClientContext, queue: str, ready: Callable[[LedgerState], bool]) -> None:
    """Wait until a plain queue has a ledger again, and its state is as wanted."""
    deadline = time.monotonic() + PATIENCE
    while (state := state_of(context, queue)) is None or not ready(state):
        assert time.monotonic() < deadline, state
        time.sleep(0.05)


@pytest.mark.parametrize("checkpoint", [True, False], ids=["written down", "not written down"])
@pytest.mark.parametrize("sessions", [True, False], ids=["sessions", "plain"])
def test_what_is_scheduled_outlives_redis(
    own_runtime: EmbeddedRuntime, context: ClientContext, checkpoint: bool, sessions: bool
) -> None:
    """A receiver may have passed the messages before or not: they come at their time, once, and not before."""
    queue = new_queue(own_runtime.connection_string, requires_session=sessions)
    session = "s" if sessions else None
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        sender = client.get_queue_sender(queue)

        sender.schedule_messages(ServiceBusMessage("0", session_id=session), due)
        sender.send_messages(ServiceBusMessage("at once", session_id=session))
        assert all_of(client, queue, 1, session) == ["at once"]
        numbers = sender.schedule_messages(
            [ServiceBusMessage(str(number), session_id=session) for number in range(1, 4)], due
        )
        if checkpoint:
            wait_for_checkpoint(context, queue, 0, lambda one: len(one.scheduled) == 4)
        empty(own_runtime)
        wait_for_ledger(context, queue, lambda _: True)
        # Messages whose settlement was not written down may come again.
        assert all_of(client, queue, 0, session) in ([], ["at once"])
        sender.cancel_scheduled_messages(numbers[1])
        advance(own_runtime.redis_url, "scheduled", queue, 3601)
        assert all_of(client, queue, 3, session) == ["0", "1", "3"]


def test_a_sender_that_dies_before_it_could_tell(
    own_runtime: EmbeddedRuntime, context: ClientContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages that it stored are found: they count as scheduled, and come at their time."""
    queue = new_queue(own_runtime.connection_string)
    with ServiceBusClient.from_connection_string(own_runtime.connection_string) as client:
        with monkeypatch.context() as patch:
            patch.setattr(sender, "schedules", _fail)
            with pytest.raises(ServiceBusCommunicationError):
                schedule(client, queue, 3)
        wait_for_ledger(context, queue, lambda state: state.scheduled == 3)
        assert all_of(client, queue, 0) == []
        advance(own_runtime.redis_url, "scheduled", queue, 3601)
        assert all_of(client, queue, 3) == ["0", "1", "2"]


@pytest.mark.parametrize("step", ["produce", "end"])
def test_whoever_enqueues_may_die(
    untended: str, runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It dies before the copies are stored, or before the ledger knows. Others finish it, and each message comes once."""
    queue, namespace = new_queue(untended), parse_settings(untended).namespace
    context = ClientContext(parse_settings(untended))
    try:
        with ServiceBusClient.from_connection_string(untended) as client:
            numbers = schedule(client, queue, 5)
            advance(runtime.redis_url, namespace, queue, 3601)
            entity = context.catalog.entity(EntityPath(queue))
            end = context.topics.ends(entity.topic, [0])[0]
            with monkeypatch.context() as patch:
                patch.setattr(Transfers, step, _fail)
                with pytest.raises(ServiceBusCommunicationError):
                    context.transfers.activate(entity, 0, end)
            bodies = [str(number) for number in range(5)]
            # Stored copies are messages like any other, even if the ledger does not know their origin.
            first, then = (bodies, []) if step == "end" else ([], bodies)
            assert all_of(client, queue, len(first)) == first
            advance(runtime.redis_url, namespace, queue, ORPHAN_AGE + 1)
            assert all_of(client, queue, len(then)) == then
            state = state_of(context, queue)
            assert state is not None
            assert (state.in_flight, state.scheduled, len(numbers)) == (0, 0, 5)
    finally:
        context.close()


def test_receivers_enqueue_where_nobody_else_does(untended: str, runtime: RunningNamespace) -> None:
    """They do so a while later than upkeep would."""
    queue, namespace = new_queue(untended), parse_settings(untended).namespace
    with ServiceBusClient.from_connection_string(untended) as client:
        schedule(client, queue, 3)
        assert all_of(client, queue, 0) == []
        advance(runtime.redis_url, namespace, queue, 3601 + 2)
        assert all_of(client, queue, 3) == ["0", "1", "2"]


def _fail(*_arguments: Any, **_named: Any) -> None:
    raise ServiceBusCommunicationError("killed")
