"""URLs of Redis with several hosts: Sentinels and the nodes of a cluster."""

from __future__ import annotations

import pytest

from kafkabus._core.redis_url import Topology, parse_redis_url, with_password

SENTINEL = "redis+sentinel://app:p%2Fw@one:26380,two,[::1]:26381/ledgers/3?socket_timeout=5&sentinel_password=hush"


def test_sentinels_have_hosts_a_service_and_passwords_of_their_own() -> None:
    """A host without a port is heard at the usual one. redis-py reads the rest as it reads the URL of a server."""
    url = parse_redis_url(SENTINEL)
    assert (url.topology, url.service) == (Topology.SENTINEL, "ledgers")
    assert url.hosts == (("one", 26380), ("two", 26379), ("::1", 26381))
    assert url.plain.reveal() == "redis://app:p%2Fw@one:26380/3?socket_timeout=5"
    assert {name: value.reveal() for name, value in url.sentinel_options.items()} == {"password": "hush"}


def test_nodes_of_a_cluster_have_tls() -> None:
    """The scheme says so, and the options name files, as for a server."""
    url = parse_redis_url("rediss+cluster://:pw@one:7000,two:7001?ssl_ca_certs=/ca.pem")
    assert (url.topology, url.hosts) == (Topology.CLUSTER, (("one", 7000), ("two", 7001)))
    assert url.plain.reveal() == "rediss://:pw@one:7000/?ssl_ca_certs=%2Fca.pem"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (SENTINEL, "redis+sentinel://one:26380,two:26379,[::1]:26381/ledgers/3"),
        ("rediss+cluster://:hush@one:7000,two:7001?ssl_ca_certs=/ca.pem", "rediss+cluster://one:7000,two:7001"),
        ("redis://app:hush@one:6379/0?socket_timeout=5", "redis://one:6379/0"),
    ],
)
def test_errors_show_an_address_without_secrets(url: str, address: str) -> None:
    """It has hosts, service and database."""
    parsed = parse_redis_url(url)
    assert parsed.address == address
    assert "hush" not in repr(parsed)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://one:26379",
        "redis+sentinel://one:26379/ledgers/hush",
        "redis+sentinel://one:hush/ledgers",
        "redis+sentinel://one:70000/ledgers",
        "redis+sentinel://one,,two/ledgers",
        "redis+sentinel://:hush/x@one/ledgers",
        "redis+sentinel://:hush#x@one/ledgers",
        "redis+cluster://",
        "redis+cluster://one:7000/hush",
        "redis+other://hush",
    ],
)
def test_a_malformed_url_is_refused_without_showing_it(url: str) -> None:
    """The error has an example of each form."""
    with pytest.raises(ValueError, match=r"redis\+sentinel://:password@host:26379,host:26379/service/0") as caught:
        parse_redis_url(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "with_it"),
    [
        ("redis://one:6379/0", "redis://:p%2Fw@one:6379/0"),
        ("redis://app@one:6379/0", "redis://app:p%2Fw@one:6379/0"),
        ("redis+sentinel://app@one,two/ledgers", "redis+sentinel://app:p%2Fw@one,two/ledgers"),
        ("redis://app:other@one:6379/0", "redis://app:other@one:6379/0"),
        ("unix:///run/redis.sock", "unix://:p%2Fw@/run/redis.sock"),
    ],
)
def test_a_password_from_a_file_gets_into_the_url(url: str, with_it: str) -> None:
    """The file holds it as it is; a password in the URL comes first."""
    assert with_password(url, "p/w") == with_it
