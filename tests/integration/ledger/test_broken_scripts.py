"""Scripts with one fault each, which the comparison with the ledger in memory must notice."""

from __future__ import annotations

import pytest
import redis
from hypothesis import Phase
from hypothesis.errors import FlakyFailure

from kafkabus._ledger.scripts import Script
from tests.integration.ledger.test_model import COUNTS, Both, BothDetecting, BothWithSessions, run, text_of

BROKEN = {
    "upkeep is notified too late": ("if at < ledger.look_at then", "if at < ledger.look_at - 3600000 then"),
    "a change has no name": ("ledger.wrote = true", "ledger.wrote = false"),
    "no token is looked at": (
        "operations.complete = function(op)",
        "operations.complete = function(op)\n  op.lease = redis.call('HKEYS', LEASES)[1] or op.lease",
    ),
    "an expired token settles": (
        "if segment.expiry <= now then\n        lose(at, stop)",
        "if false then\n        lose(at, stop)",
    ),
    "a claim jumps over offsets": (
        "if op.from then\n    if op.from > ledger.cursor then",
        "if op.from then\n    if false then",
    ),
    "an expiry forgets the count": (
        "put_back(segment, first, last, delivered(segment)) end)\n        end",
        "put_back(segment, first, last, segment.count) end)\n        end",
    ),
    "what is settled settles again": ("if bit_at == '0' then\n            visit", "if true then\n            visit"),
    "a request's number is forgotten": ("if tonumber(last) == number then", "if false then"),
    "a transfer ends when it begins": (
        "write('HSET', MOVING, num(offset), join_move(segment.count, op.intent))",
        "write('HSET', MOVED, num(offset), '0')\n      ledger.in_flight = ledger.in_flight - 1",
    ),
    "what is abandoned is not counted": (
        "put_back(segment, first, last, segment.count + 1, due)\n  end)",
        "put_back(segment, first, last, segment.count, due)\n  end)",
    ),
    "deliveries that return are not counted": ("if count > segment.count then", "if false then"),
    "another leader is not noticed": ("if ledger.leader ~= '' and", "if false and"),
    "messages overtake each other": (
        "op.exclusive and (redis.call('HLEN', LEASES) > 0 or redis.call('HLEN', MOVING) > #refused_copies())",
        "false",
    ),
    "a refused copy is new each time": ("return { new = bytes == '0' }", "return { new = true }"),
    "another's transfer is given up": ("if intent == op.intent then", "if intent then"),
    "a transfer that was given up goes on": (
        "write('HDEL', MOVING, offset)\n    write('ZREM', MOVES, padded(op.offset))\n    renote_late(op.offset, '')\n  end",
        "end",
    ),
}
"""Scripts with one fault each: the text, and its replacement."""

BROKEN_SESSIONS = {
    "a locked session is locked again": (
        "if other and (other.expiry > now or in_doubt(session.lease)) then",
        "if false then",
    ),
    "what an expired lock held does not come back": (
        "if held then\n      expire_holder(id, held, 1)",
        "if held then\n      write('ZREM', EXPIRIES, id)",
    ),
    "a session's messages come out of order": (
        "(some[i] and some[i][1] < others[j][1])",
        "some[i]",
    ),
    "a session in doubt is another's": ("or in_doubt(session.lease)", "or false"),
    "what is not placed is passed over": ("if unfiled() then", "if false then"),
    "an older state counts": ("if state.version ~= op.version then", "if false then"),
    "an expired lock of a session settles": ("if not text or not locked_by(op.lease) then", "if not text then"),
    "a chunk is forgotten when the next one begins": (
        "if at <= #words then\n      session.high = session.high + 1\n    end\n  end\n  while",
        "if at <= #words then\n      session.high = session.high + 1\n    session.low = session.high\n    end\n  end\n  while",
    ),
    "sessions do not take turns": ("return num(ledger.version * 4096", "return num(-ledger.version * 4096"),
}
"""The same, for sessions."""


BROKEN_SCHEDULING = {
    "what waits for its time is granted": (
        "write('ZADD', SKIPPED, num(offset), num(offset))\n      ledger.skipped, ledger.in_flight = 1",
        "ledger.skipped, ledger.in_flight = 1",
    ),
    "what is cancelled is due all the same": ("write('ZREM', DUE, padded(offset))", ""),
    "what is not due is activated": (
        "'ZRANGEBYSCORE', DUE, '-inf', num(op.upto_ms or now), 'LIMIT', 0, op.limit",
        "'ZRANGE', DUE, 0, op.limit - 1",
    ),
    "what may be scheduled is settled unseen": (
        "if op.settle_on_claim and (ledger.schedules or",
        "if op.settle_on_claim and (false or",
    ),
}
"""The same, for scheduled messages."""

BROKEN_POSTPONING = {
    "postponed messages are granted at once": ("elseif SESSIONS or not waits then", "else"),
    "an explicit delay is ignored": ("local due = op.delay and now + op.delay", "local due"),
    "the last delivery is postponed": ("return count < policy.most and now", "return policy.most > 0 and now"),
    "a woken message is woken again": ("write('ZREM', WAKES, unpack(offsets))", ""),
    "a purge leaves postponed messages": ("local postponed = SESSIONS and {}", "local postponed = true and {}"),
}
"""The same, for postponed messages."""

BROKEN_POSTPONED_SESSIONS = {
    "messages behind a postponed one are granted": (
        "front, postponed = split_postponed_words(front)",
        "postponed = ''",
    ),
    "a session is free before its first message is due": (
        "if starts_postponed(session) then\n      write('ZREM'",
        "if false then\n      write('ZREM'",
    ),
    "a session is not free once its first message is due": (
        "if session and session.lease == '' and not starts_postponed(session, woken) then",
        "if false then",
    ),
}
"""The same, for postponed messages of sessions."""

BROKEN_TRANSACTIONS = {
    "half of a transaction is prepared": ("if missing > 0 then", "if false then"),
    "what another transaction prepared is settled": ("if transaction == op.transaction then", "if transaction then"),
    "what is rolled back is settled": ("rejoin(lease, coming)\n", "ledger.in_flight = ledger.in_flight - #coming\n"),
    "an expired lease gets its messages back": ("if expiry > now then\n      back", "if true then\n      back"),
    "what is prepared is delivered": (
        "write('HSET', MOVING, num(offset), join_move(segment.count, intent))\n      end",
        "write('HSET', MOVING, num(offset), join_move(segment.count, intent)) give_back(offset, offset, 0)\n      end",
    ),
    "what is committed stays prepared": (
        "write('HDEL', MOVING, num(offset))\n    write('ZREM', MOVES, padded(offset))",
        "",
    ),
}
"""The same, for transactions."""

BROKEN_RULES = {
    "what was read and not wanted says nothing of epochs": ("cursor <= (op.epoch_to or 0) or", "false or"),
    "what earlier rules chose is granted": ("return (op.rules or 0) < ledger.rules", "return false"),
    "stale rules are not reported with messages that are granted again": (
        "if has_stale_rules(op) and (again > 0 or op.from) then",
        "if has_stale_rules(op) and op.from then",
    ),
    "rules count from the end reported last": ("if op.version > ledger.rules or not from then", "if true then"),
    "rules count for what was chosen already": (
        "from = num(math.max(op['end'], ledger.cursor))",
        "from = num(op['end'])",
    ),
}
"""The same, for changed rules."""

BROKEN_DETECTION = {
    "records that were not scanned are granted": (
        "return DUPLICATES and (upto > ledger.dedup_upto or",
        "return DUPLICATES and (false or",
    ),
    "records that were not scanned are activated": (
        "if not DUPLICATES or (offset < ledger.dedup_upto and",
        "if (true or",
    ),
    "a log that was cut is not noticed": ("if one[1] < judged_before and", "if false and"),
    "an id counts for ever": ("before and math.abs(at - before.at) < op.window", "before"),
    "a copy is taken for a duplicate": ("local skip = recent and not copied", "local skip = recent"),
    "a duplicate becomes a first one": ("if offset < ledger.dedup_checkpoint or", "if"),
    "records are passed over before a scan": ("if op.from > ledger.dedup_upto then", "if false then"),
}
"""The same, for duplicate detection."""


NOTICED_WITH = {
    (Both, "an expired lease gets its messages back"): 1,
    (Both, "an expired token settles"): 6,
    (Both, "a claim jumps over offsets"): 5,
    (Both, "an expiry forgets the count"): 5,
    (Both, "what is settled settles again"): 3,
    (Both, "a request's number is forgotten"): 3,
    (Both, "what is abandoned is not counted"): 1,
    (Both, "another leader is not noticed"): 8,
    (Both, "messages overtake each other"): 4,
    (Both, "another's transfer is given up"): 4,
    (Both, "a refused copy is new each time"): 19,
    (Both, "what waits for its time is granted"): 6,
    (Both, "what is cancelled is due all the same"): 9,
    (Both, "what may be scheduled is settled unseen"): 2,
    (Both, "an explicit delay is ignored"): 32,
    (BothWithSessions, "messages behind a postponed one are granted"): 17,
    (BothWithSessions, "a session is free before its first message is due"): 6,
    (Both, "half of a transaction is prepared"): 6,
    (Both, "what another transaction prepared is settled"): 3,
    (Both, "what is prepared is delivered"): 4,
    (Both, "what is committed stays prepared"): 4,
    (Both, "what was read and not wanted says nothing of epochs"): 4,
    (Both, "what earlier rules chose is granted"): 4,
    (Both, "rules count from the end reported last"): 1,
    (Both, "rules count for what was chosen already"): 5,
    (Both, "no token is looked at"): 9,
    (Both, "a transfer that was given up goes on"): 2,
    (Both, "what is not due is activated"): 3,
    (Both, "what is rolled back is settled"): 4,
    (Both, "stale rules are not reported with messages that are granted again"): 12,
    (Both, "a transfer ends when it begins"): 3,
    (BothWithSessions, "what an expired lock held does not come back"): 3,
    (BothWithSessions, "what is not placed is passed over"): 9,
    (BothWithSessions, "an expired lock of a session settles"): 9,
    (BothWithSessions, "rules count from the end reported last"): 3,
    (BothWithSessions, "rules count for what was chosen already"): 4,
    (BothWithSessions, "a locked session is locked again"): 6,
    (BothWithSessions, "a chunk is forgotten when the next one begins"): 2,
    (BothWithSessions, "sessions do not take turns"): 5,
    (BothWithSessions, "what was read and not wanted says nothing of epochs"): 1,
    (BothWithSessions, "what earlier rules chose is granted"): 4,
    (BothWithSessions, "a session in doubt is another's"): 4,
    (BothWithSessions, "an older state counts"): 5,
    (BothWithSessions, "a session's messages come out of order"): 17,
    (BothWithSessions, "stale rules are not reported with messages that are granted again"): 19,
    (BothDetecting, "records that were not scanned are granted"): 4,
    (BothDetecting, "a log that was cut is not noticed"): 2,
    (BothDetecting, "an id counts for ever"): 4,
    (BothDetecting, "a copy is taken for a duplicate"): 5,
    (BothDetecting, "records are passed over before a scan"): 5,
    (BothDetecting, "a duplicate becomes a first one"): 3,
}
"""Seeds with which the comparison notices the fault within a few stories.

They only save time: if one fails, others are tried.
"""
STORIES, SEEDS = 10, 150
"""How many stories are made up with each seed, and how many seeds are tried."""


CASES = [
    *((Both, fault) for fault in BROKEN),
    *((BothWithSessions, fault) for fault in BROKEN_SESSIONS),
    *((BothDetecting, fault) for fault in BROKEN_DETECTION),
    *((Both, fault) for fault in BROKEN_SCHEDULING),
    *((Both, fault) for fault in BROKEN_POSTPONING),
    *((BothWithSessions, fault) for fault in BROKEN_POSTPONED_SESSIONS),
    *((Both, fault) for fault in BROKEN_TRANSACTIONS),
    *((machine, fault) for machine in (Both, BothWithSessions) for fault in BROKEN_RULES),
]
FAULTS = {
    **BROKEN,
    **BROKEN_SESSIONS,
    **BROKEN_DETECTION,
    **BROKEN_SCHEDULING,
    **BROKEN_POSTPONING,
    **BROKEN_POSTPONED_SESSIONS,
    **BROKEN_TRANSACTIONS,
    **BROKEN_RULES,
}
FOR_EVERY_CHANGE = {
    (Both, "no token is looked at"),
    (Both, "an expired token settles"),
    (Both, "a claim jumps over offsets"),
    (BothWithSessions, "a locked session is locked again"),
    (BothDetecting, "an id counts for ever"),
    (Both, "what waits for its time is granted"),
    (BothWithSessions, "messages behind a postponed one are granted"),
    (Both, "what is rolled back is settled"),
    (Both, "what earlier rules chose is granted"),
}
"""One or more of each kind. The others are left to `make test-all`: they show that the comparison is still worth something."""
assert set(CASES) >= FOR_EVERY_CHANGE


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("machine", "fault"),
    [case if case in FOR_EVERY_CHANGE else pytest.param(*case, marks=pytest.mark.extended) for case in CASES],
)
def test_a_broken_script_is_noticed(
    store: redis.Redis, capsys: pytest.CaptureFixture[str], machine: type[Both], fault: str
) -> None:
    """The comparison is worth something only if it notices faults."""
    right, wrong = FAULTS[fault]
    text = text_of(machine)
    assert text.count(right) == 1
    broken = Script(text.replace(right, wrong), store.script_load(text.replace(right, wrong)))
    steps = 0
    for number in (NOTICED_WITH.get((machine, fault), 0), *range(1, SEEDS)):
        noticed = is_noticed(store, broken, machine, number)
        steps += COUNTS["steps"]
        if noticed:
            break
    else:
        pytest.fail(f"the comparison did not notice it in {steps} steps")
    with capsys.disabled():
        print(f" {fault}: noticed after {steps} steps, with seed {number}")  # noqa: T201 - a figure of the run


def is_noticed(store: redis.Redis, broken: Script, machine: type[Both], number: int) -> bool:
    """Return whether the comparison fails within a few stories."""
    try:
        run(store, broken, machine, number, max_examples=STORIES, phases=[Phase.generate])
    except AssertionError:
        return True
    except FlakyFailure as error:
        # The fault shows by chance, as by the order of random leases, and did not show a second time.
        return error.subgroup(AssertionError) is not None
    return False
