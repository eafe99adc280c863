"""The contents of a request to a ledger, and the parts of its reply for each caller."""

from __future__ import annotations

import json

import pytest

from kafkabus._ledger.keys import LedgerKeys
from kafkabus._ledger.operations import (
    BeginTransfer,
    Claim,
    Ledger,
    LedgerRequest,
    Operation,
    Settlement,
    SettlementVerb,
)
from kafkabus_mapping.names import EntityPath


@pytest.fixture
def ledger() -> Ledger:
    """A ledger of which only the name matters."""
    return Ledger(LedgerKeys.of("unit", EntityPath("q"), "topic", 0), partition=0, channel="bell", client_id="me")


def completing(ledger: Ledger, *offsets: int, lease: str = "aa", verb: SettlementVerb = "complete") -> list[Operation]:
    """Return one settlement for each offset."""
    return [Settlement(ledger, verb, lease, [(offset, offset)]) for offset in offsets]


def said(*operations: Operation) -> list[dict[str, object]]:
    """Return the values that the script reads from a request."""
    read: list[dict[str, object]] = json.loads(LedgerRequest(operations[0].ledger, 1, list(operations)).payload)
    return read


def test_messages_of_a_lease_that_many_complete_are_one_operation(ledger: Ledger) -> None:
    """The order in which the calls came does not matter."""
    assert said(*completing(ledger, 5, 3, 4, 9)) == [{"op": "complete", "lease": "aa", "ranges": "3-5,9"}]


def test_a_message_named_twice_is_settled_twice(ledger: Ledger) -> None:
    """The second caller must learn that it came too late."""
    assert said(*completing(ledger, 3, 4, 3)) == [
        {"op": "complete", "lease": "aa", "ranges": "3-4"},
        {"op": "complete", "lease": "aa", "ranges": "3"},
    ]


def test_what_is_not_alike_stays_apart(ledger: Ledger) -> None:
    """Another verb, another lease, several messages at once, a transfer, a claim, or a release of the rest stays apart."""
    operations = [
        *completing(ledger, 1),
        *completing(ledger, 2, verb="abandon"),
        *completing(ledger, 3, lease="bb"),
        Settlement(ledger, "complete", "aa", [(4, 5)]),
        BeginTransfer(ledger, "aa", [(6, 6)], "intent", 1000),
        Settlement(ledger, "release", "aa", None),
        Claim(ledger, "cc", want=1, lock_ms=1000),
    ]
    assert len(said(*operations)) == len(operations)


def test_everyone_learns_of_their_own_messages_alone(ledger: Ledger) -> None:
    """A reply to a group names the lost messages. Callers whose message is not among them lost nothing."""
    settlements = [Settlement(ledger, "complete", "aa", [(offset, offset)]) for offset in (3, 4, 5, 9)]
    for settlement in settlements:
        settlement.resolve({"lost": [["4", "5"]]})
    assert [settlement.lost for settlement in settlements] == [[], [(4, 4)], [(5, 5)], []]


def test_a_settlement_of_several_ranges_learns_which_parts_were_lost(ledger: Ledger) -> None:
    """A lost range may lie across two of them, and beyond."""
    settlement = Settlement(ledger, "complete", "aa", [(1, 4), (7, 9)])
    settlement.resolve({"lost": [["3", "4"], ["7", "8"]]})
    assert settlement.lost == [(3, 4), (7, 8)]
