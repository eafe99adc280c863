"""Run the scripts as a Redis user who may touch only the keys that each call declares.

The tests use Redis 6.2 and the machine's own. The usual user may touch anything, so that an access to an undeclared key
would go unnoticed. Here the user's rights are set before each call, and Redis refuses every other access.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.client import Pipeline
from redis.exceptions import ResponseError

from kafkabus._ledger.keys import description_index_key, receivers_key
from kafkabus._ledger.operations import Claim, Granted, Mark, Seen, Settlement, SettlementVerb, TakeSnapshot
from kafkabus._ledger.scripts import (
    Script,
    create_script,
    describe_script,
    figures_script,
    find_descriptions_script,
    heartbeat_script,
    request_script,
    request_scripts,
    reserve_script,
    restore_script,
)
from kafkabus._ledger.snapshot import StoredState
from kafkabus._sync.redis.connection import DescriptionCache, DescriptionRecord, RedisConnection
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import OLDEST, RedisProgram
from kafkabus.exceptions import ServiceBusAuthorizationError
from kafkabus_mapping.names import EntityPath
from tests.effort import effort
from tests.integration.ledger.bench import LOCK_MS, WINDOW_MS, Bench, SettlementBatch
from tests.integration.ledger.test_model import Both, BothWithSessions, run
from tests.redis_server import all_programs, serving

EXAMPLES = effort(30, 60)
USER = "scripts"
COMMANDS = (
    *("eval", "evalsha", "time", "publish", "del", "exists", "expire", "get", "set"),
    *("hdel", "hexists", "hget", "hgetall", "hincrby", "hkeys", "hlen", "hmget", "hset", "hvals", "unlink"),
    *("zadd", "zcard", "zrange", "zrangebyscore", "zrem", "zremrangebyscore", "zrevrangebyscore", "zscore"),
)
"""All commands that the scripts need; none of them reaches a key or a channel that it does not name."""


SERVERS = all_programs()
NEWEST = max(one.version for one in SERVERS)


class Narrow(redis.Redis):
    """A client whose scripts run as a user who may touch what the call declares and nothing else; for one thread.

    All other commands run as the default user.

    Attributes:
        calls: How often each script was called, by SHA-1.
        operations: How often each operation was asked for.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.calls: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command; a script as a pipeline of one."""
        if not _is_script(args):
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        pipeline = self.pipeline(transaction=False)
        pipeline.command_stack.append((args, options))
        (reply,) = pipeline.execute(raise_on_error=False)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """A pipeline that does the same for each script in it."""
        assert not transaction, "AUTH cannot be part of a transaction"
        return NarrowPipeline(self, shard_hint)

    def acl_rules(self, *command: Any) -> list[str]:
        """Return the user's rights for one call of a script: no right for another call is left."""
        name, script, count, *rest = command
        keys, arguments = rest[: int(count)], rest[int(count) :]
        self.calls[script if name == "EVALSHA" else _sha(script)] += 1
        channels = []
        if len(arguments) in {4, 5} and str(arguments[3]).startswith("[{"):
            # The script serves a request.
            channels += [arguments[1], arguments[1].partition("/")[0] + "/$upkeep"]
            self.operations.update(operation["op"] for operation in json.loads(arguments[3]))
        return [
            *("reset", "on", "nopass", "resetkeys", "resetchannels"),
            *(f"~{_literally(key)}" for key in keys),
            *(f"&{_literally(channel)}" for channel in channels),
            *(f"+{name}" for name in COMMANDS),
        ]

    def refusals(self) -> set[tuple[str, str]]:
        """Return the refusals to the scripts' user since the last call: the reason, and the key, channel or command."""
        log = self.acl_log()
        self.acl_log_reset()
        assert all(entry["username"] == USER for entry in log)
        return {(str(entry["reason"]), str(entry["object"])) for entry in log}


class NarrowPipeline(Pipeline):
    """A pipeline in which a connection becomes the scripts' user before each script, and the default user after it."""

    def __init__(self, narrow: Narrow, shard_hint: str | None) -> None:
        super().__init__(narrow.connection_pool, narrow.response_callbacks, False, shard_hint)
        self.narrow = narrow

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the gathered commands; return the replies to them alone."""
        asked, self.command_stack = self.command_stack, []
        places: list[int] = []
        for command, options in asked:
            before: list[tuple[str, ...]] = []
            after: list[tuple[str, ...]] = []
            if _is_script(command):
                before = [("ACL SETUSER", USER, *self.narrow.acl_rules(*command)), ("AUTH", USER, "any")]
                after = [("AUTH", "default", "any")]
            places.append(len(self.command_stack) + len(before))
            self.command_stack += [*((own, {}) for own in before), (command, options), *((own, {}) for own in after)]
        replies = super().execute(raise_on_error=False)
        assert all(reply is True for at, reply in enumerate(replies) if at not in places), replies
        wanted = [replies[place] for place in places]
        for reply in wanted:
            if raise_on_error and isinstance(reply, Exception):
                raise reply
        return wanted


def _is_script(command: tuple[Any, ...]) -> bool:
    return command[0] in {"EVAL", "EVALSHA"}


def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _literally(name: str) -> str:
    """Return the glob that matches this name alone."""
    return re.sub(r"[\\*?\[\]]", r"\\\g<0>", name)


def name_of(server: RedisProgram) -> str:
    """Return the name of a Redis in the names of tests."""
    return "redis-{}.{}".format(*server.version)


@pytest.fixture(scope="module", params=SERVERS, ids=name_of)
def server(request: pytest.FixtureRequest) -> RedisProgram:
    """A Redis on which the scripts run."""
    program: RedisProgram = request.param
    return program


@pytest.fixture(scope="module")
def port(server: RedisProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis that keeps nothing."""
    with serving(server, tmp_path_factory.mktemp("redis")) as number:
        yield number


@pytest.fixture
def store(server: RedisProgram, port: int) -> Iterator[Narrow]:
    """A client of that Redis, which has replies as text."""
    with Narrow(host=HOST, port=port, protocol=2, decode_responses=True) as client:
        client.flushall()
        client.acl_log_reset()
        assert _served(client) == server.version
        yield client


def _served(client: redis.Redis) -> tuple[int, ...]:
    info = client.info("server")
    # A Valkey that goes by the name of redis-server also names the Redis that it is like.
    version: str = info.get("valkey_version", info["redis_version"])
    return tuple(int(part) for part in version.split(".")[:2])


def test_the_oldest_redis_is_among_them() -> None:
    """A check on later versions says little of the oldest one."""
    assert OLDEST in {server.version for server in SERVERS}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("server", "machine"),
    [
        pytest.param(
            one,
            machine,
            id=f"{name_of(one)}-{machine.__name__}",
            marks=[]
            if (machine, one.version) in {(Both, OLDEST), (BothWithSessions, NEWEST)}
            else [pytest.mark.extended],
        )
        for one in SERVERS
        for machine in (Both, BothWithSessions)
    ],
    indirect=["server"],
)
def test_whatever_a_ledger_goes_through_it_touches_declared_keys_alone(
    server: RedisProgram, store: Narrow, machine: type[Both]
) -> None:
    """Three clients do the steps in any order, as in the comparison with the ledger in memory.

    Every change is tried without sessions on the oldest Redis, and with sessions on the newest one.
    """
    assert _served(store) == server.version
    run(store, machine=machine, max_examples=EXAMPLES, print_blob=True)
    assert store.refusals() == set()
    assert sum(store.calls.values()) > EXAMPLES


@pytest.mark.core
def test_each_operation_touches_declared_keys_alone(server: RedisProgram, store: Narrow) -> None:
    """Each operation runs in each of its ways, as chance may leave one out."""
    assert _served(store) == server.version
    bench = Bench(store, "t")
    held = bench.claim(11, upto=11)
    verbs: tuple[SettlementVerb, ...] = ("complete", "abandon", "release", "defer", "renew")
    for number, verb in enumerate(verbs):
        assert bench.settle(verb, held, (number, number)) == []
    assert bench.settle("defer", held, (8, 8)) == []
    assert bench.begin(held, (5, 6)) == []
    assert bench.moved(5, 500) == 500
    bench.pass_time(LOCK_MS + 1)
    assert bench.adopt() == [6]
    # The transfer that ended is forgotten by now.
    bench.pass_time(2 * LOCK_MS)
    assert bench.adopt() == [6]
    assert bench.claim(11, upto=12, exclusive=True).granted.limited
    assert bench.skip(12)
    # Half of a waiting range, and the rest without the skipped records.
    for again in (bench.claim(5), bench.claim(9, upto=13)):
        bench.ledger_client.execute(Settlement(bench.ledger, "release", again.lease, None))
    assert again.offsets == [10, 11]
    bench.ledger_client.execute(Mark(bench.ledger, "has_message_ttl"))
    assert bench.recall((3, 3))[0].offsets == [3]
    seized = bench.seize((1, 1), (8, 8), (13, 13))
    assert seized.offsets == [1, 8, 13]
    assert bench.seize_hopeless(1).offsets == [4, 7, 9, 10]
    assert bench.settle("abandon", seized, (1, 1), change={"a": "1"}) == []
    assert bench.changes((0, 20)) == {1: {"a": "1"}}
    assert bench.peek(0, 100).found
    assert bench.locks().found
    assert bench.break_lock(13) == (True, None)
    assert bench.break_lock(13) == (False, None)
    assert bench.purge(100).purged
    assert bench.refused(6, 5)
    assert bench.figures().refused == ((6, 5),)
    bench.retreat(6, "intent")
    assert bench.claim(1).offsets == [6]
    snapshot = bench.snapshot_to_keep()
    bench.lose_everything()
    assert bench.restore(snapshot)
    assert bench.rule(1, 0) == bench.cursor
    go_through_sessions(Bench(store, "s", sessions=True))
    go_through_detection(Bench(store, "d", detects=True))
    go_through_scheduling(Bench(store, "w"))
    go_through_postponing(Bench(store, "p"))
    go_through_postponed_sessions(Bench(store, "q", sessions=True))
    go_through_transactions(Bench(store, "x"))
    go_through_transactions_of_sessions(Bench(store, "y", sessions=True))
    assert store.refusals() == set()
    programs = {script.sha for script in request_scripts()}
    assert set(store.calls) == programs | {script().sha for script in (create_script, restore_script, figures_script)}
    assert set(store.operations) == set(re.findall(r"^operations\.(\w+) =", request_script().text, re.MULTILINE))


def go_through_transactions(bench: Bench) -> None:
    """Run each operation of transactions, in each of its ways."""
    bench.ledger_client.execute(Mark(bench.ledger, "transacts"))
    held = bench.claim(8, upto=8)
    assert bench.prepare(("complete", held, [(0, 1)]), ("defer", held, [(2, 2)]), ("abandon", held, [(3, 3)])) == [
        [],
        [],
        [],
    ]
    bench.resolve((0, 7))
    assert bench.claim(1).offsets == [3]
    assert bench.prepare(("complete", held, [(4, 5)])) == [[]]
    bench.resolve((4, 5), committed=False)
    assert bench.prepare(("complete", held, [(4, 4)])) == [[]]
    bench.pass_time(LOCK_MS + 1)
    assert bench.adopt() == [4]
    bench.resolve((4, 4), committed=False)
    again = bench.claim(9)
    assert again.offsets == [3, 4, 5, 6, 7]
    keep = TakeSnapshot(bench.ledger, close=True)
    bench.ledger_client.execute(keep)
    assert bench.prepare(("complete", again, [(6, 7)])) == [[(6, 7)]]
    assert bench.settle("complete", again) == []


def go_through_transactions_of_sessions(bench: Bench) -> None:
    """Go through transactions of sessions, in which a lock ends while a transaction's outcome is unknown."""
    bench.file({"a": [0, 1, 2]}, upto=3)
    for leaves in (True, False):
        lock = bench.accept("a")
        held = SettlementBatch(lock.lease, Granted(bench.next(lock.lease, 3).again, [], 0, False, 0, 0, 0, None, False))
        assert bench.prepare(("complete", held, [(1, 1)])) == [[]]
        if leaves:
            bench.leave(lock.lease)
        else:
            bench.pass_time(LOCK_MS + 1)
        assert bench.accept("a").held
        bench.resolve((1, 1), committed=not leaves)
        assert bench.claim(0).offsets == []


def go_through_sessions(bench: Bench) -> None:
    """Run each operation on sessions, in each of its ways."""
    strays = bench.file({"a": [0, 1, 2], "b": [3, 5]}, upto=6, strays=[4])
    assert strays.offsets == [4]
    bench.ledger_client.execute(Settlement(bench.ledger, "release", strays.lease, None))
    lock = bench.accept()
    assert (lock.accepted, bench.accept("a").held) == ("a", True)
    redeliverable = bench.claim(9)
    assert bench.place(redeliverable, {4: "new"}).lost == []
    held = SettlementBatch(lock.lease, Granted(bench.next(lock.lease, 2).again, [], 0, False, 0, 0, 0, None, False))
    assert bench.settle("defer", held, (0, 0)) == bench.settle("abandon", held, (1, 1)) == []
    assert bench.recall((0, 0), lease=lock.lease)[0].offsets == [0]
    assert bench.extend(lock.lease)
    changed = bench.set_state(lock.lease, "eA==").state
    assert changed is not None
    assert bench.states_updated(-1) == ["a"]
    assert bench.state_stored("a", changed.version).state is None
    assert bench.get_state(lock.lease).state is not None
    assert bench.state_stored("b", 1).state is not None
    assert bench.settle("renew", held, (0, 0)) == [(0, 0)]
    assert bench.seize((3, 3), session=lock.lease).offsets == [3]
    bench.leave(lock.lease)
    assert bench.seize((5, 5), session=lock.lease).offsets == []
    lock = bench.accept("a", most=1)
    assert bench.locks().sessions
    assert bench.break_lock("a") == (True, None)
    lock = bench.accept("a", most=1)
    assert bench.next(lock.lease, 1).again
    bench.pass_time(LOCK_MS + 1)
    assert not bench.extend(lock.lease)
    assert bench.sessions() == ["a", "b", "new"]
    assert bench.seize((5, 5)).offsets == [5]
    assert bench.peek(0, 100, "a").found
    snapshot = bench.snapshot_to_keep()
    assert bench.purge(100).purged
    bench.lose_everything()
    assert bench.restore(snapshot, [StoredState("a", 3, 1, "eA==")])
    assert bench.next(bench.accept("a").lease, 1).unfiled


def go_through_detection(bench: Bench) -> None:
    """Send ids again, let the window pass several times, and make the ledger again."""
    for offset in range(20):
        assert (
            bench.detect_duplicates(
                offset, offset + 1, [(offset, f"{offset // 2}", offset * WINDOW_MS // 3)]
            ).dedup_upto
            == offset + 1
        )
    assert bench.detect_duplicates(30, 31, []).ahead
    assert bench.detect_duplicates(20, 20, [], 2).dedup_upto == 20
    snapshot = bench.snapshot_to_keep()
    bench.lose_everything()
    assert bench.restore(snapshot, window_start=15)
    assert bench.detect_duplicates(15, 20, [(15, "7", 5 * WINDOW_MS)]).dedup_upto == 20
    assert bench.claim(20, upto=20).granted.fresh


def go_through_scheduling(bench: Bench) -> None:
    """Go through messages that wait, are cancelled, and are due; their senders report them, or a claim finds them."""
    bench.schedule([(0, 1), (1, 1), (2, 1 << 45)])
    held = bench.claim(2, upto=5)
    assert bench.schedule_held(held, [(3, 1), (4, 1 << 45)]) == []
    assert bench.cancel(0, 4, 9) == [9]
    assert bench.peek(0, 100).found
    snapshot = bench.snapshot_to_keep()
    bench.lose_everything()
    assert bench.restore(snapshot)
    assert bench.activate() == [1, 3]
    assert bench.state.scheduled == 1


def go_through_postponing(bench: Bench) -> None:
    """Go through messages that are postponed by their receiver and by a policy, and come back, or are deleted before."""
    held = bench.claim(6, upto=6)
    bench.settle("abandon", held, (0, 2), delay_ms=1000)
    bench.use_policy(1000, 2000)
    bench.expire()
    assert {one.postponed_until is not None for one in bench.peek(3, 100).found} == {True}
    snapshot = bench.snapshot_to_keep()
    bench.lose_everything()
    assert bench.restore(snapshot)
    assert bench.figures().postponed == 3
    assert bench.seize((3, 3)).offsets == [3]
    assert bench.purge(5).purged == 4
    # The clock of a ledger that was lost is Redis's again.
    bench.pass_time(LOCK_MS + 2000)
    assert bench.claim(6).offsets == [5]


def go_through_postponed_sessions(bench: Bench) -> None:
    """Go through sessions whose first message is postponed: they are free again once it is due."""
    bench.file({"a": [0, 1, 2], "b": [3]}, upto=4)
    accepted = bench.accept("a")
    following = bench.next(accepted.lease, 2)
    assert following.again == [(0, 1, 0)]
    abandon = Settlement(bench.ledger, "abandon", accepted.lease, [(0, 0)], delay_ms=1000)
    bench.ledger_client.execute(abandon)
    nothing = bench.next(accepted.lease, 9)
    assert (nothing.again, nothing.due_in is None) == ([], False)
    snapshot = bench.snapshot_to_keep()
    bench.leave(accepted.lease)
    assert (bench.accept().accepted, bench.accept().accepted) == ("b", None)
    bench.pass_time(1001)
    assert bench.accept().accepted == "a"
    bench.lose_everything()
    assert bench.restore(snapshot)
    held = bench.claim(9)
    assert bench.place(held, {0: "a", 1: "a", 2: "a", 3: "b"}).lost == []
    assert (bench.accept().accepted, bench.accept().accepted) == ("b", None)


def test_requests_that_share_a_round_trip_touch_declared_keys_alone(store: Narrow) -> None:
    """Each request has only the rights that it needs."""
    first, second = Bench(store, "first"), Bench(store, "second")
    claims = [
        Claim(bench.ledger, "aa" * 8, want=2, lock_ms=LOCK_MS, seen=Seen(0, 2, [(0, 1)])) for bench in (first, second)
    ]
    first.ledger_client.execute(*claims)
    assert [claim.granted.fresh for claim in claims] == [[(0, 1)], [(0, 1)]]
    # This notifies on both channels.
    first.ledger_client.execute(*(Settlement(claim.ledger, "abandon", claim.lease, [(0, 1)]) for claim in claims))
    assert store.refusals() == set()
    assert store.calls[request_script(frozenset({"claim", "abandon"})).sha] >= 4


def test_heartbeats_and_descriptions_touch_declared_keys_alone(store: Narrow, port: int) -> None:
    """The scripts belong to no ledger; their client has replies as bytes."""
    with Narrow(host=HOST, port=port, protocol=2) as client:
        ledger_client = Bench(client, "t").ledger_client
        receivers = receivers_key("acl", EntityPath("q"))
        assert ledger_client.heartbeat(receivers, "one", 60) == ["one"]
        assert sorted(ledger_client.heartbeat(receivers, "two", 60)) == ["one", "two"]
        ledger_client.leave([receivers], "one", 60)
        assert ledger_client.heartbeat(receivers, "two", 60) == ["two"]
        ledger_client.leave([receivers], "two", 60)
        # When the last client was heard of is still known, if a minute too early.
        assert ledger_client.last_heartbeat(receivers) is not None
        assert ledger_client.heartbeat(receivers, "three", 60) == ["three"]

        descriptions = DescriptionCache(RedisConnection(client, address="redis", namespace="acl"), "acl")
        descriptions.keep({"q": DescriptionRecord(1, "text"), "gone": DescriptionRecord(2, None)})
        descriptions.keep({"q": DescriptionRecord(0, "older")}, all_of=descriptions.life(), upto=3)
        assert descriptions.all() == (3, {"q": "text"})
        assert descriptions.find("q").texts == ["text"]
        for seconds, entities in ((60, 1), (0, 0), (60, 1)):
            store.delete(description_index_key("acl"))
            assert descriptions.reserve("new", "token", partitioned=True, seconds=seconds).entities == entities
        own = (heartbeat_script, describe_script, find_descriptions_script, reserve_script)
        assert set(client.calls) == {script().sha for script in (create_script, *own)}
    assert store.refusals() == set()


SABOTAGE = {
    "an undeclared key is read": ("redis.call('GET', SLOT)", "redis.call('GET', SLOT .. '-')", "key", "{slot}-"),
    "an undeclared key is written": ("write('SET', SLOT,", "write('SET', SLOT .. '-',", "key", "{slot}-"),
    "another channel is notified": ("'PUBLISH', ARGV[2]", "'PUBLISH', ARGV[2] .. '-'", "channel", "{channel}-"),
    "a key is found": ("local time, skew =", "redis.call('RANDOMKEY')\nlocal time, skew =", "command", "randomkey"),
}
"""Requests with one fault each: the text, its replacement, Redis's reason to refuse it, and the refused name."""


@pytest.mark.parametrize("fault", SABOTAGE)
def test_a_request_that_touches_more_is_refused(store: Narrow, fault: str) -> None:
    """The other tests are worth something only if a bad request fails."""
    right, wrong, reason, name = SABOTAGE[fault]
    text = request_script().text
    assert text.count(right) == 1
    bench = Bench(store, uuid.uuid4().hex)
    held = bench.claim(2, upto=2)
    assert store.refusals() == set()

    broken = text.replace(right, wrong)
    bench.ledger_client._script_for = lambda _names: Script(broken, _sha(broken))
    with pytest.raises(ServiceBusAuthorizationError, match="refused a request"):
        bench.settle("abandon", held)
    refused = name.format(slot=bench.keys.slot(bench.client_id), channel=bench.ledger.channel)
    assert store.refusals() == {(reason, refused)}


def test_a_call_has_no_rights_of_another(store: Narrow) -> None:
    """It has neither the rights of the call before nor of the call after, nor any by a name that is a glob."""
    get = "return redis.call('GET', ARGV[1])"
    globs = r"*", "?", "[ab]", "\\a"
    store.mset(dict.fromkeys(("a", "b", *globs), "here"))
    pipeline = store.pipeline(transaction=False)
    for declared, touched in (("a", "a"), ("b", "a"), ("a", "b"), ("b", "b")):
        pipeline.eval(get, 1, declared, touched)
    pipeline.get("a")
    replies = pipeline.execute(raise_on_error=False)
    assert ["here" if reply == "here" else type(reply) for reply in replies] == [
        *("here", ResponseError, ResponseError, "here"),
        "here",
    ]
    assert store.refusals() == {("key", "a"), ("key", "b")}
    for key in globs:
        assert store.eval(get, 1, key, key) == "here"
        with pytest.raises(ResponseError):
            store.eval(get, 1, key, "a")
    assert store.refusals() == {("key", "a")}
