"""Checks of Redis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kafkabus._redis.replies import mode_of
from kafkabus.doctor.check import Check, list_names, of_tls
from kafkabus.doctor.facts import Facts, Missing, require_fact
from kafkabus.doctor.findings import Finding, State, failure, ok, warning

OLDEST = (6, 2)
"""The oldest Redis that the ledgers run on."""
FULL = 0.9
"""The part of ``maxmemory`` from which on clients receive nothing new."""
NEARLY_FULL = 0.75
"""The part of ``maxmemory`` from which on to warn."""
LAGS_S = 10
"""For how many seconds a replica may be silent without a warning."""
_MEBIBYTE = 1 << 20


def _address(facts: Facts) -> Finding:
    reached = require_fact(facts.redis.address)
    return failure(reached.problem) if reached.problem else ok(f"connected to {reached.address}")


def _tls(facts: Facts) -> Finding:
    return of_tls(require_fact(facts.redis.tls), "Redis is used")


def _authentication(facts: Facts) -> Finding:
    refusal = require_fact(facts.redis.refusal)
    return failure(refusal) if refusal else ok("Redis accepts this client")


Info = Mapping[str, Any]
"""The answer of a server to INFO."""


def _of_each(look: Callable[[Info, Facts], Finding]) -> Callable[[Facts], Finding]:
    """Return the rule that the worst finding at any server counts, with the node of a cluster that it is about."""

    def worst(facts: Facts) -> Finding:
        infos = require_fact(facts.redis.infos)
        findings = [(look(info, facts), str(info.get("node", ""))) for info in infos]
        finding, node = max(findings, key=lambda pair: _BADNESS.index(pair[0].state))
        if finding.state is State.OK or not node:
            return finding
        return replace(finding, found=f"node {node}: {finding.found}")

    return worst


_BADNESS = (State.OK, State.NOT_CHECKED, State.WARNING, State.FAILURE)


def _version(info: Info, _: Facts) -> Finding:
    version = str(info.get("redis_version", "0.0"))
    server = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {version}"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return ok(server) if numbers >= OLDEST else failure(f"{server}, and older than 6.2")


def _mode(facts: Facts) -> Finding:
    infos = require_fact(facts.redis.infos)
    mode = mode_of(infos[0])
    if "node" in infos[0]:
        return ok(f"it is a Redis Cluster, with {len(infos)} primaries")
    return failure("it is part of a Redis Cluster") if mode == "cluster" else ok(f"it runs as {mode}")


def _right(trial: str, verb: str) -> Callable[[Facts], Finding]:
    """Return the rule about a right that was tried."""

    def look(facts: Facts) -> Finding:
        refusal = require_fact(require_fact(facts.redis.rights).get(trial, Missing("it was not tried")))
        return failure(refusal) if refusal else ok(f"the user may {verb}")

    return look


def _eviction(info: Info, _: Facts) -> Finding:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        return failure(f"maxmemory-policy is {policy}: a full Redis would drop locks, and clients refuse to work")
    return ok("maxmemory-policy is noeviction")


def _persistence(info: Info, facts: Facts) -> Finding:
    if info.get("aof_enabled"):
        if info.get("aof_last_write_status", "ok") != "ok":
            return failure("the last write to the append-only file failed", "see to the disk of Redis, and to its log")
        return ok("it has an append-only file")
    snapshots = require_fact(facts.redis.settings)["save"]
    if not snapshots:
        return warning("it persists nothing: if it ends, received messages are delivered again")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return failure("the last snapshot failed: Redis takes no writes", "see to the disk of Redis, and to its log")
    return warning(f"it writes snapshots only (save {snapshots}): if it ends, messages since the last one come again")


def _replication(info: Info, facts: Facts) -> Finding:
    if info.get("role", "master") != "master":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        return failure(f"it is a replica of {primary}, and takes no writes")
    replicas = [info[f"slave{number}"] for number in range(int(info.get("connected_slaves", 0)))]
    late = [f"{replica.get('ip')}:{replica.get('port')}" for replica in replicas if _is_late(replica)]
    if late:
        return warning(f"replicas do not keep up: {list_names(late)}", "see whether they run, and to their logs")
    # Redis reports this only if it requires replicas.
    good = int(info.get("min_slaves_good_slaves", len(replicas)))
    needed = 0 if isinstance(facts.redis.settings, Missing) else int(facts.redis.settings["min-replicas-to-write"] or 0)
    if good < needed:
        return failure(
            f"{good} replicas follow it, and it takes no writes below {needed}", "see whether its replicas run"
        )
    return ok(f"it is a primary, with {len(replicas)} replica{'' if len(replicas) == 1 else 's'}")


def _is_late(replica: Mapping[str, Any]) -> bool:
    return replica.get("state") != "online" or int(replica.get("lag", 0)) > LAGS_S


def _memory(info: Info, _: Facts) -> Finding:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not limit:
        return ok(f"{_mebibytes(used)} used, without a limit")
    usage = f"{_mebibytes(used)} of {_mebibytes(limit)} used"
    if used >= limit * FULL:
        return failure(f"{usage}: clients receive nothing new")
    return warning(usage) if used >= limit * NEARLY_FULL else ok(usage)


def _mebibytes(count: int) -> str:
    return f"{count / _MEBIBYTE:,.1f} MB"


_GRANT = "give the user the rights of docs/how-to/secure.md with 'ACL SETUSER', or name another one in the URL"

REDIS_CHECKS = (
    Check(
        "redis-address",
        "the name of Redis's host is known, and it takes connections",
        "see to the URL of Redis, to the name server and the firewall, and whether Redis runs",
        _address,
    ),
    Check(
        "redis-tls",
        "client and Redis agree on TLS or on none, and the certificate is trusted and does not end soon",
        "begin the URL with rediss:// if the server speaks TLS, else with redis://; '?ssl_ca_certs=FILE' names an authority",
        _tls,
    ),
    Check(
        "redis-authentication",
        "Redis accepts the client and its credentials",
        "give user and password in the URL, redis://USER:PASSWORD@HOST:PORT/0, with special characters percent-encoded",
        _authentication,
    ),
    Check("redis-version", "Redis is 6.2 or later, or Valkey", "update Redis", _of_each(_version)),
    Check(
        "redis-mode",
        "the URL says whether Redis is a cluster",
        "begin the URL of a cluster with redis+cluster://",
        _mode,
    ),
    Check(
        "redis-right-keys",
        "the user may read and write the keys of the namespace",
        _GRANT,
        _right("keys", "read and write keys of the namespace"),
    ),
    Check("redis-right-scripts", "the user may run the ledgers' scripts", _GRANT, _right("scripts", "run scripts")),
    Check(
        "redis-right-channels",
        "the user may publish and subscribe to the channels of the namespace",
        _GRANT,
        _right("channels", "use channels of the namespace"),
    ),
    Check(
        "redis-eviction",
        "Redis does not drop keys when it is full",
        "set maxmemory-policy to noeviction",
        _of_each(_eviction),
    ),
    Check(
        "redis-persistence",
        "Redis has an append-only file, and can write it",
        "set 'appendonly yes'",
        _of_each(_persistence),
    ),
    Check(
        "redis-replication",
        "Redis is a primary, and its replicas keep up",
        "let the URL lead to the primary",
        _of_each(_replication),
    ),
    Check("redis-memory", "Redis's memory is not nearly used up", "raise maxmemory", _of_each(_memory)),
)
"""The checks of Redis."""
