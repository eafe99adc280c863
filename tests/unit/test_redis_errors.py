"""Redis's errors, as Redis 6.2 and 7 word them, become the SDK's."""

from __future__ import annotations

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError, DataError, RedisError, TimeoutError

from kafkabus._redis.errors import passes, to_sdk_error
from kafkabus.exceptions import (
    LedgerError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusError,
    ServiceBusServerBusyError,
    UnsuitableRedisError,
)

IN_6 = f"ERR Error running script (call to f_{'ab' * 20}): @user_script:176: @user_script: 176: "
IN_7 = f" script: {'ab' * 20}, on @user_script:176."
OOM = "OOM command not allowed when used memory > 'maxmemory'."
READONLY = "READONLY You can't write against a read only replica."
NOPERM = "this user has no permissions to run the 'hset' command or its subcommand"

REPLIES: list[tuple[str, type[ServiceBusError], bool, str]] = [
    (READONLY, ServiceBusCommunicationError, True, "the primary"),
    (f"{IN_6}-{READONLY}", ServiceBusCommunicationError, True, "the primary"),
    (f"{READONLY}{IN_7}", ServiceBusCommunicationError, True, "the primary"),
    ("LOADING Redis is loading the dataset in memory", ServiceBusCommunicationError, True, "loads its data"),
    ("MASTERDOWN Link with MASTER is down", ServiceBusCommunicationError, True, "lost its primary"),
    ("NOREPLICAS Not enough good replicas to write.", ServiceBusCommunicationError, True, "min-replicas-to-write"),
    (f"{IN_6}-NOREPLICAS Not enough good replicas to write.", ServiceBusCommunicationError, True, "min-replicas"),
    ("CLUSTERDOWN Hash slot not served", ServiceBusCommunicationError, True, "its nodes"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", ServiceBusCommunicationError, True, "another node"),
    ("BUSY Redis is busy running a script.", ServiceBusCommunicationError, True, "SCRIPT KILL"),
    ("MOVED 12182 127.0.0.1:6001", UnsuitableRedisError, False, "Redis Cluster"),
    ("ASK 12182 127.0.0.1:6001", UnsuitableRedisError, False, "Redis Cluster"),
    ("CROSSSLOT Keys in request don't hash to the same slot", UnsuitableRedisError, False, "Redis Cluster"),
    (OOM, ServiceBusServerBusyError, False, "maxmemory"),
    (f"{IN_6}-{OOM}", ServiceBusServerBusyError, False, "maxmemory"),
    (f"{OOM}{IN_7}", ServiceBusServerBusyError, False, "maxmemory"),
    ("MISCONF Redis is configured to save RDB snapshots", ServiceBusServerBusyError, False, "its disk"),
    (f"NOPERM {NOPERM}", ServiceBusAuthorizationError, False, "'hset' command"),
    (
        f"{IN_6}The user executing the script can't access at least one of the keys mentioned in the command arguments",
        *(ServiceBusAuthorizationError, False, "~{shop/*"),
    ),
    (f"ERR ACL failure in script: {NOPERM}{IN_7}", ServiceBusAuthorizationError, False, "'hset' command"),
    ("NOAUTH Authentication required.", ServiceBusAuthenticationError, False, "user and password"),
    ("WRONGPASS invalid username-password pair", ServiceBusAuthenticationError, False, "user and password"),
    (f"{IN_6}injected fault", LedgerError, False, "injected fault"),
    ("ERR unknown command `INFO`", LedgerError, False, "unknown command"),
]


@pytest.mark.parametrize(("reply", "kind", "wait", "says"), REPLIES, ids=[str(at) for at in range(len(REPLIES))])
def test_each_refusal_has_one_of_our_errors(reply: str, kind: type[ServiceBusError], wait: bool, says: str) -> None:
    """Refusals of a failover are waited for. Only bugs show where in a script the error happened."""
    error = BaseParser.parse_error(reply)
    told = to_sdk_error(error, address="redis://h:1/0", namespace="shop", tried_for=60, what="a request")
    assert (type(told), passes(error), told.inner_exception) == (kind, wait, error)
    assert says in told.message
    assert "redis://h:1/0" in told.message
    if kind is not LedgerError:
        assert "user_script" not in told.message


@pytest.mark.parametrize("error", [ConnectionError("Connection refused"), TimeoutError("Timeout reading")])
def test_a_connection_that_breaks_is_waited_for(error: RedisError) -> None:
    """The error then says for how long."""
    told = to_sdk_error(error, address="redis://h:1/0", namespace="shop", tried_for=60)
    assert (type(told), passes(error)) == (ServiceBusCommunicationError, True)
    assert "cannot be reached (tried for 60 s)" in told.message


def test_what_a_pipeline_says_before_it_hides_no_code() -> None:
    """redis-py puts the command first."""
    error = BaseParser.parse_error("MISCONF Redis is configured to save")
    error.args = (f"Command # 1 (DEL k) of pipeline caused error: {error}",)
    assert type(to_sdk_error(error, address="r", namespace="shop")) is ServiceBusServerBusyError


def test_what_never_reached_redis_is_not_tried_again() -> None:
    """An argument of a type that redis-py does not take is such a case."""
    assert not passes(DataError("Invalid input"))
