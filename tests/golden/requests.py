"""The requests that a client of a version makes to a ledger: written down once, and made again by later versions' tests.

So a client of that version seems to work beside one of this version.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from redis import Redis

from kafkabus import ServiceBusClient
from kafkabus._sync.redis.ledger_client import LedgerClient
from tests.contract.receiving import take

QUEUE, SENT = "shared", [f"shared {number}" for number in range(10)]
"""A queue whose messages were not received yet, and their bodies."""
LOCKED, COMPLETED = 3, 2
"""How many of them the client receives, and how many of these it completes."""


def record(connection_string: str) -> dict[str, Any]:
    """Receive and complete some of the messages; return the requests for that, and the scripts that they call."""
    scripts: dict[str, str] = {}
    with ServiceBusClient.from_connection_string(connection_string) as client:
        receiver = client.get_queue_receiver(QUEUE)
        with _recorded(scripts) as receive:
            messages = take(receiver, LOCKED)
        with _recorded(scripts) as complete:
            receiver.complete_messages(messages[:COMPLETED])
    assert [str(message) for message in messages] == SENT[:LOCKED]
    return {"scripts": scripts, "receive": receive, "complete": complete}


def repeat(redis: Redis, recorded: dict[str, Any], step: str) -> list[Any]:
    """Make the requests of a step again; return the replies."""
    return [redis.eval(recorded["scripts"][sha], *arguments) for sha, *arguments in recorded[step]]


@contextmanager
def _recorded(scripts: dict[str, str]) -> Generator[list[list[Any]]]:
    calls: list[list[Any]] = []
    exchange = LedgerClient._exchange

    def note(ledger_client: LedgerClient, requests: list[Any]) -> list[Any]:
        for request in requests:
            script = ledger_client._script_for(request.names)
            scripts[script.sha] = script.text
            calls.append([script.sha, *request.script_arguments()])
        return exchange(ledger_client, requests)

    with patch.object(LedgerClient, "_exchange", note):
        yield calls
