"""Requests: a number seen before gets its reply again, a lower one is refused, else the operations run.

See ``lua/request.lua``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from kafkabus.testing.ledger.checkpoint import take_snapshot
from kafkabus.testing.ledger.claim import claim
from kafkabus.testing.ledger.deferred import recall, seize, seize_undeliverable
from kafkabus.testing.ledger.duplicates import detect_duplicates
from kafkabus.testing.ledger.inspect import mark, peek, purge, set_rules_version
from kafkabus.testing.ledger.layout import MemoryLedger, MessageState, RetryDelays
from kafkabus.testing.ledger.locks import break_lock, list_locks
from kafkabus.testing.ledger.prelude import Arguments, Reply, Run
from kafkabus.testing.ledger.schedule import activate, cancel, schedule, schedule_held
from kafkabus.testing.ledger.session import (
    accept,
    extend,
    file_messages,
    grant_next,
    leave,
    list_sessions,
    place_messages,
)
from kafkabus.testing.ledger.session_state import get_state, list_updated_states, note_stored_state, set_state
from kafkabus.testing.ledger.settle import abandon, complete, defer, release, renew
from kafkabus.testing.ledger.transaction import commit, prepare, rollback
from kafkabus.testing.ledger.transfer import (
    adopt_transfers,
    begin_transfer,
    end_transfer,
    note_refusal,
    retreat,
    skip_record,
)

OPERATIONS: Mapping[str, Run] = {
    "claim": claim,
    "complete": complete,
    "abandon": abandon,
    "release": release,
    "defer": defer,
    "renew": renew,
    "begin_transfer": begin_transfer,
    "end_transfer": end_transfer,
    "adopt_transfers": adopt_transfers,
    "note_refusal": note_refusal,
    "retreat": retreat,
    "skip_record": skip_record,
    "prepare": prepare,
    "commit": commit,
    "rollback": rollback,
    "schedule": schedule,
    "schedule_held": schedule_held,
    "cancel": cancel,
    "activate": activate,
    "recall": recall,
    "seize": seize,
    "seize_undeliverable": seize_undeliverable,
    "mark": mark,
    "set_rules_version": set_rules_version,
    "peek": peek,
    "purge": purge,
    "file_messages": file_messages,
    "place_messages": place_messages,
    "accept": accept,
    "grant_next": grant_next,
    "extend": extend,
    "leave": leave,
    "list_sessions": list_sessions,
    "list_locks": list_locks,
    "break_lock": break_lock,
    "get_state": get_state,
    "set_state": set_state,
    "note_stored_state": note_stored_state,
    "list_updated_states": list_updated_states,
    "detect_duplicates": detect_duplicates,
    "take_snapshot": take_snapshot,
}
"""The function of each operation."""

LOOKING = frozenset({"claim", "list_locks", "peek", "take_snapshot", "note_refusal"})
"""Operations that may change nothing; if one does, messages get into other states, or the cursor moves."""


def run_request(
    ledger: MemoryLedger,
    slot: str,
    number: int,
    operations: Sequence[Arguments],
    now: int,
    policy: RetryDelays | None = None,
) -> str:
    """Run a client's request, once for each of its numbers.

    Args:
        ledger: The ledger.
        slot: The client's slot.
        number: The number of the request, which the client raises by one each time.
        operations: The operations to run, in order.
        now: The time, ms since 1970.
        policy: The entity's retry policy, if it has one.

    Returns:
        The reply as JSON.
    """
    last, reply = ledger.slots.get(slot, (0, ""))
    ledger.notify = False
    if number == last:
        return reply
    if number < last:
        return json.dumps({"status": "stale"})
    ledger.now, ledger.postponing.policy, ledger.duplicates.log_truncated = now, policy, False
    before = outline(ledger)
    replies = [OPERATIONS[op["op"]](ledger, op) for op in operations]
    ledger.version += 1
    if outline(ledger) != before or not all(op["op"] in LOOKING for op in operations):
        ledger.changed = f"{ledger.version}:{now}"
    answer: Reply = {"status": "ok", "now": str(now), "replies": replies}
    reply = json.dumps(answer | ({"changes": True} if ledger.properties.may_exist else {}))
    ledger.slots[slot] = (number, reply)
    return reply


def outline(ledger: MemoryLedger) -> tuple[int, Counter[MessageState]]:
    """Return the cursor, and how many messages are in each state."""
    return ledger.cursor, Counter(message.state for message in ledger.messages.values())
