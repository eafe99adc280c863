"""Redis's errors: those that are temporary, and the SDK's errors for the others."""

from __future__ import annotations

import re
from collections.abc import Mapping

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from kafkabus._core.exceptions import (
    LedgerError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusError,
    ServiceBusServerBusyError,
    UnsuitableRedisError,
)
from kafkabus._ledger.keys import rights_of
from kafkabus._runtime.networks import loopback_hint

PASSING = {
    "READONLY": "it is a replica and takes no writes; does the address lead to the primary?",
    "MASTERDOWN": "it is a replica that has lost its primary; does the address lead to the primary?",
    "NOREPLICAS": "fewer replicas follow it than its min-replicas-to-write asks for; do they run?",
    "CLUSTERDOWN": "its cluster does not serve all slots; do its nodes run?",
    "TRYAGAIN": "its cluster moves these keys to another node; wait until it has",
    "LOADING": "it loads its data; wait until it has",
    "BUSY": "it runs a script that does not end; 'SCRIPT KILL' ends it",
}
"""Codes of errors that are temporary during a failover or a restart, and the text for the user if they persist."""

NO_CLUSTER_REPLY = "This instance has cluster support disabled"
"""The reply of a server that is no part of a cluster to ``CLUSTER``."""

_OF_CREDENTIALS = (AuthenticationError, AuthorizationError)
_OWN_CODE = re.compile(r"(?:^|of pipeline caused error: )([A-Z]+)(?: |$)")
_CODE_IN_SCRIPT = re.compile(r"@user_script: ?\d+: -([A-Z]+) ")
"""In Redis 6, the code of a script's error replaces that of the error inside it."""
_NO_RIGHTS_IN_SCRIPT = re.compile(r"user executing the script can't|ACL failure in script", re.IGNORECASE)
_AROUND_IN_SCRIPT = re.compile(r"^.*@user_script: ?\d+: (?:-[A-Z]+ )?|,? script: [0-9a-f]{40}.*$")


def code_of(error: BaseException) -> str:
    """Return the code of an error, a word in capitals; empty if the error has none."""
    if not isinstance(error, RedisError):
        return ""
    text = str(error)
    if NO_CLUSTER_REPLY in text:
        return "NOCLUSTER"
    inside = _CODE_IN_SCRIPT.search(text)
    if inside is not None:
        return inside[1]
    if isinstance(error, NoPermissionError) or _NO_RIGHTS_IN_SCRIPT.search(text):
        return "NOPERM"
    if isinstance(error, OutOfMemoryError):
        return "OOM"
    known = getattr(error, "status_code", None) or _CODES.get(type(error).__name__)
    return known or (own[1] if (own := _OWN_CODE.search(text)) else "")


_CODES = {
    "BusyLoadingError": "LOADING",
    "ReadOnlyError": "READONLY",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "ClusterCrossSlotError": "CROSSSLOT",
}
"""Codes of redis-py's error classes, whose instances do not keep the code before version 7."""


def passes(error: BaseException) -> bool:
    """Return whether an error is temporary, so that the caller retries for a while."""
    if isinstance(error, _OF_CREDENTIALS):
        return False
    return isinstance(error, (ConnectionError, TimeoutError)) or code_of(error) in PASSING


_CLUSTER = (
    "Redis {address} is part of a Redis Cluster: begin its URL with redis+cluster:// or rediss+cluster://, and name some of "
    "its nodes, redis+cluster://:password@node-1:6379,node-2:6379"
)
_NO_CLUSTER = "Redis {address} is no Redis Cluster: begin its URL with redis:// or rediss://"
_TOLD: Mapping[str, tuple[type[ServiceBusError], str]] = {
    "NOAUTH": (
        ServiceBusAuthenticationError,
        "Redis {address} refuses the credentials: {reason}; give user and password in its URL, redis://<user>:<password>@…",
    ),
    "NOPERM": (
        ServiceBusAuthorizationError,
        "Redis {address} refused {what}: {reason}; the user of its URL needs these rights: {rights}",
    ),
    "OOM": (
        ServiceBusServerBusyError,
        "Redis {address} is full and refused {what}: raise its maxmemory, and try again",
    ),
    "MISCONF": (
        ServiceBusServerBusyError,
        "Redis {address} takes no writes as it cannot save them: {reason}; see to its disk, and try again",
    ),
    **dict.fromkeys(("MOVED", "ASK", "CROSSSLOT"), (UnsuitableRedisError, _CLUSTER)),
    "NOCLUSTER": (UnsuitableRedisError, _NO_CLUSTER),
    **{
        code: (
            ServiceBusCommunicationError,
            f"Redis {{address}} refuses to serve (tried for {{tried_for:.0f}} s): {why} ({{reason}})",
        )
        for code, why in PASSING.items()
    },
}
"""The SDK's errors for errors with these codes."""
_REFUSED = (LedgerError, "Redis {address} refused {what}: {error}")
_UNREACHABLE = (
    ServiceBusCommunicationError,
    "Redis {address} cannot be reached (tried for {tried_for:.0f} s): {error}; is it running, and is the address right?{hint}",
)


def to_sdk_error(
    error: RedisError, *, address: str, namespace: str, tried_for: float = 0.0, what: str = "a command"
) -> ServiceBusError:
    """Return the SDK's error for an error of Redis.

    Args:
        error: The error of Redis or redis-py.
        address: The address of Redis, without its password.
        namespace: The namespace whose keys are used.
        tried_for: How long the call was retried, in seconds.
        what: The command that failed, in words.
    """
    code = "NOAUTH" if isinstance(error, _OF_CREDENTIALS) else code_of(error)
    kind, message = _TOLD.get(code, _REFUSED if isinstance(error, ResponseError) else _UNREACHABLE)
    return kind(
        message.format(
            address=address,
            what=what,
            tried_for=tried_for,
            error=error,
            reason=_AROUND_IN_SCRIPT.sub("", str(error)),
            rights=rights_of(namespace),
            hint=loopback_hint(address),
        ),
        error=error,
    )


def of_cluster(address: str) -> UnsuitableRedisError:
    """Return the error for a Redis that is part of a cluster, and whose URL does not say so."""
    return UnsuitableRedisError(_CLUSTER.format(address=address))
