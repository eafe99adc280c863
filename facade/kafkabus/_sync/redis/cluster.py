# Generated from facade/kafkabus/_async/redis/cluster.py by tools/generate_blocking.py. Do not edit.
"""A Redis Cluster behind the interface of one Redis: each command goes to the node that has its keys.

redis-py's own client of a cluster is not used: its blocking half sends ``ASKING`` and the command on different connections, and
it raises other errors than a client of one server. See decision 0045.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from redis import Redis
from redis.client import Pipeline, PubSub
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ConnectionError,
    MovedError,
    NoPermissionError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from typing_extensions import override

from kafkabus._redis.errors import NO_CLUSTER_REPLY
from kafkabus._redis.replies import text_of
from kafkabus._sync.compat import Lock, all_of

Node = tuple[str, int]
"""The host and the port of a node."""
Command = tuple[tuple[Any, ...], dict[str, Any]]
"""The words of a command, and the options by which redis-py reads the reply."""

REDIRECTIONS = 4
"""How often a command goes where a node says that its slot is by now; after that, the nodes do not agree yet."""
_KEYLESS = {"CONFIG", "ECHO", "INFO", "PUBLISH", "SCRIPT", "TIME"}
"""The commands without keys that are used; any node carries them out."""


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key."""
    return key_slot(key.encode() if isinstance(key, str) else key)


def by_slot(keys: Iterable[str]) -> list[list[str]]:
    """Return keys in groups that one script may use at once."""
    groups: defaultdict[int, list[str]] = defaultdict(list)
    for key in keys:
        groups[slot_of(key)].append(key)
    return list(groups.values())


class ClusterRedis(Redis):
    """A client of all nodes of a cluster; safe to share.

    Args:
        hosts: Nodes to ask first which nodes there are.
        open_node: Returns a client of a node; it connects when it is first used.
    """

    def __init__(self, hosts: Sequence[Node], open_node: Callable[[Node], Redis]) -> None:
        first = open_node(hosts[0])
        super().__init__(connection_pool=first.connection_pool)
        self._hosts = list(hosts)
        self._open_node = open_node
        self._clients: dict[Node, Redis] = {hosts[0]: first}
        self._known: dict[Node, None] = {}
        self._receiving: dict[Node, None] = {}
        self._heard = 0
        self._owners: dict[int, Node] = {}
        self._is_current = False
        self._looking = Lock()

    def look_again(self) -> None:
        """Have the nodes and their slots looked up again before the next command."""
        self._is_current = False

    @override
    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command on the node that has its keys; on any, if it has none.

        Raises:
            RedisError: The command's error, or no node can be reached.
        """
        (reply,) = self.run([(args, options)])
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def run(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands, those of each node in one round trip; return their replies, or errors, in order.

        Raises:
            RedisError: A node cannot be reached; whether its commands were done is unknown.
        """
        replies: list[Any] = [None] * len(commands)
        left: Sequence[int] = range(len(commands))
        for _ in range(REDIRECTIONS):
            self._look()
            there: defaultdict[Node, list[int]] = defaultdict(list)
            for index in left:
                there[self._place_of(commands[index][0])].append(index)
            works = [
                partial(self._run_at, node, [commands[index] for index in indexes]) for node, indexes in there.items()
            ]
            for (node, indexes), found in zip(there.items(), all_of(works), strict=True):
                for index, reply in zip(indexes, found, strict=True):
                    replies[index] = self._follow(commands[index], reply, node)
            left = [index for index in left if isinstance(replies[index], MovedError)]
            if not left:
                return replies
        raise ConnectionError(f"the nodes of the cluster do not agree who has slot {replies[left[0]].slot_id}")

    def _run_at(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        client = self._client_of(node)
        if len(commands) == 1:
            ((words, options),) = commands
            try:
                return [client.execute_command(*words, **options)]
            except (ConnectionError, TimeoutError):
                raise
            except RedisError as error:
                return [error]
        pipeline = client.pipeline(transaction=False)
        for words, options in commands:
            pipeline.execute_command(*words, **options)
        found: list[Any] = pipeline.execute(raise_on_error=False)
        return found

    def _follow(self, command: Command, reply: Any, asked: Node) -> Any:
        """Return the reply to a command; that of another node, if the one that was asked names one while a slot moves."""
        if not isinstance(reply, AskError):
            return reply
        # A node that does not know its own host leaves it out.
        node = reply.host or asked[0], reply.port
        if isinstance(reply, MovedError):
            # Not looked up again: other nodes may learn later than this one.
            self._owners[int(reply.slot_id)] = node
            return reply
        words, options = command
        self._receiving[node] = None
        pipeline = self._client_of(node).pipeline(transaction=False)
        pipeline.execute_command("ASKING")
        pipeline.execute_command(*words, **options)
        _, answer = pipeline.execute(raise_on_error=False)
        return answer

    def _place_of(self, words: Sequence[Any]) -> Node:
        """Return the node that has the keys of a command."""
        name = str(words[0]).split(" ", 1)[0].upper()
        if name in _KEYLESS:
            return next(iter(self._primaries()))
        key = words[3] if name in {"EVAL", "EVALSHA"} else words[1]
        slot = slot_of(key)
        if slot not in self._owners:
            raise ConnectionError(f"no node of the cluster has slot {slot}")
        return self._owners[slot]

    def _primaries(self) -> dict[Node, None]:
        return dict.fromkeys(self._owners.values())

    def _client_of(self, node: Node) -> Redis:
        client = self._clients.get(node)
        if client is None:
            client = self._clients.setdefault(node, self._open_node(node))
        return client

    def _look(self) -> None:
        """Look up which node has which slots, unless that is known."""
        if self._is_current:
            return
        with self._looking:
            if not self._is_current:
                self._look_up()

    def _look_up(self) -> None:
        causes: list[RedisError] = []
        for node in dict.fromkeys([*self._known, *self._hosts]):
            try:
                ranges: Any = self._client_of(node).execute_command("CLUSTER SLOTS")
            except (ConnectionError, TimeoutError) as error:
                causes.append(error)
                continue
            except NoPermissionError as error:
                self._refuse_single_server(node, error)
                raise
            self._take(node, ranges)
            return
        raise causes[0]

    def _refuse_single_server(self, node: Node, error: NoPermissionError) -> None:
        """Raise the error of a server without cluster support, which checks rights to ``CLUSTER`` before it says so."""
        try:
            info: Any = self._client_of(node).info("cluster")
        except ResponseError:
            return  # The credentials may not ask.
        if info.get("cluster_enabled") == 0:
            raise ResponseError(NO_CLUSTER_REPLY) from error

    def _take(self, asked: Node, ranges: Sequence[Any]) -> None:
        """Take over a node's answer: the first and the last of some slots, with their primary and its replicas."""
        owners: dict[int, Node] = {}
        known: dict[Node, None] = {}
        for first, last, *servers in ranges:
            # A node that does not know its own host leaves it out.
            primary, *replicas = ((text_of(host) or asked[0], int(port)) for host, port, *_ in servers)
            owners |= dict.fromkeys(range(int(first), int(last) + 1), primary)
            known |= dict.fromkeys([primary, *replicas])
        if not owners:
            raise ConnectionError("no node of the cluster has any slot")
        self._owners, self._known, self._is_current = owners, known, True
        self._receiving.clear()

    # Commands of one server that a cluster takes several for.

    @override
    def mget(self, keys: Any, *args: Any) -> Any:
        """Return several values, each from its node."""
        return [_check_reply(reply) for reply in self.run([(("GET", key), {}) for key in [*keys, *args]])]

    @override
    def script_load(self, script: Any) -> Any:
        """Load a script into all nodes that are in use."""
        self._look()
        nodes = dict.fromkeys([*self._primaries(), *self._receiving])
        works = [partial(self._run_at, node, [(("SCRIPT LOAD", script), {})]) for node in nodes]
        replies = [_check_reply(reply) for (reply,) in all_of(works)]
        return replies[0]

    def infos(self, section: str | None = None) -> list[Any]:
        """Return each primary's reply to INFO, with its address as ``node``; see ``info``."""
        self._look()
        words = ("INFO",) if section is None else ("INFO", section)
        nodes = list(self._primaries())
        replies = all_of([partial(self._run_at, node, [(words, {})]) for node in nodes])
        return [
            {**_check_reply(reply), "node": f"{host}:{port}"}
            for (host, port), (reply,) in zip(nodes, replies, strict=True)
        ]

    @override
    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Return commands that go to their nodes together; they are no transaction."""
        return ClusterPipeline(self)

    @override
    def pubsub(self, **options: Any) -> PubSub:
        """Return an object that hears messages of all nodes at one of them, each time at another one."""
        nodes = list(self._primaries()) or self._hosts
        self._heard += 1
        heard: PubSub = self._client_of(nodes[self._heard % len(nodes)]).pubsub(**options)
        return heard

    @override
    def close(self, *args: Any, **options: Any) -> None:
        """Close the connections to all nodes."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()


class ClusterPipeline(Pipeline):
    """Commands that go to the nodes of a cluster together, each to the node that has its keys.

    Args:
        cluster: The client of the nodes.
    """

    def __init__(self, cluster: ClusterRedis) -> None:
        super().__init__(cluster.connection_pool, cluster.response_callbacks, False, None)
        self._cluster = cluster

    @override
    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the commands; return their replies, and errors if they are not to be raised."""
        commands, self.command_stack = self.command_stack, []
        replies = self._cluster.run([(tuple(words), dict(options)) for words, options in commands])
        return [_check_reply(reply) for reply in replies] if raise_on_error else replies


def _check_reply(reply: Any) -> Any:
    if isinstance(reply, RedisError):
        raise reply
    return reply
