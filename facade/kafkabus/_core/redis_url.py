"""URLs of Redis: a server, servers that Sentinels watch, or a cluster.

``redis+sentinel://user:password@sentinel-1:26379,sentinel-2:26379/service/0`` and ``redis+cluster://node-1:6379,node-2:6379``
have several hosts; ``rediss`` in front means TLS. The rest is as in redis-py's own URLs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from kafkabus._core import in_memory_registry
from kafkabus_mapping.secret import Secret


class Topology(Enum):
    """The kinds of installations of Redis; values as in the schemes of URLs, behind the plus sign."""

    SERVER = ""
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_PORTS: Final = {Topology.SENTINEL: 26379, Topology.CLUSTER: 6379}
"""The ports of hosts that are given without one."""
_SCHEMES: Final = {
    **dict.fromkeys(("redis", "rediss", "unix", in_memory_registry.ADDRESS), Topology.SERVER),
    **{f"{plain}+{kind.value}": kind for kind in _PORTS for plain in ("redis", "rediss")},
}
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:/@,\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_OF_SENTINELS: Final = "sentinel_"
"""The beginning of the options in a URL that are for connections to Sentinels."""


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """The parts of a URL of Redis.

    Attributes:
        topology: The kind of installation.
        plain: The URL as redis-py reads it, with the first host, user, password, database and options.
        address: The URL without user, password and options, for errors and logs.
        hosts: Hosts and ports: of Sentinels, or of nodes of a cluster; of a single server none.
        service: The name by which Sentinels know the servers; else empty.
        sentinel_options: The options of connections to Sentinels, such as ``username``.
    """

    topology: Topology
    plain: Secret
    address: str
    hosts: tuple[tuple[str, int], ...]
    service: str
    sentinel_options: Mapping[str, Secret]


def parse_redis_url(url: str) -> RedisUrl:
    """Return the parts of a URL of Redis.

    Raises:
        ValueError: Redis's client would refuse the URL, or read it in another way than it was meant. The error hides it.
    """
    scheme, _, rest = url.partition("://")
    topology = _SCHEMES.get(scheme)
    parsed = None
    if topology is Topology.SERVER:
        parsed = _of_server(url)
    elif topology is not None:
        parsed = _of_several(topology, scheme, rest)
    if parsed is None:
        raise ValueError(
            "Redis: a URL begins with redis://, rediss:// or unix://, and special characters in its password are "
            "percent-encoded (@ is %40, / is %2F, ? is %3F, # is %23): redis://:password@host:6379/0; several hosts are "
            "written redis+sentinel://:password@host:26379,host:26379/service/0 or redis+cluster://:password@host:6379,host:6379"
        ) from None
    return parsed


def with_password(url: str, password: str) -> str:
    """Return a URL with this password, unless it has one."""
    scheme, separator, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    credentials, _, hosts = netloc.rpartition("@")
    user, colon, present = credentials.partition(":")
    if colon and present:
        return url
    return f"{scheme}{separator}{user}:{quote(password, safe='')}@{hosts}{slash}{path}"


def _of_server(url: str) -> RedisUrl | None:
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        # The port is no number. The message of this error shows the text in its place: part of the password.
        return None
    # No address has an '@' behind the host: there it ends a password that holds a '/' or '#'.
    if "@" in split.path + split.fragment or port == 0:
        return None
    address = f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}"
    return RedisUrl(Topology.SERVER, Secret(url), address, (), "", {})


def _of_several(topology: Topology, scheme: str, rest: str) -> RedisUrl | None:
    # Not urlsplit, which takes no list of hosts.
    before, _, query = rest.partition("?")
    netloc, _, path = before.partition("/")
    credentials, at, listed = netloc.rpartition("@")
    found = [_HOST.fullmatch(host) for host in listed.split(",")]
    if "@" in path + query or "#" in rest:
        return None
    hosts = tuple((host["host"].strip("[]"), int(host["port"] or _PORTS[topology])) for host in found if host)
    service, _, database = path.partition("/") if topology is Topology.SENTINEL else ("", "", path)
    valid = len(hosts) == len(found) and all(0 < port < 65_536 for _, port in hosts)
    if not valid or bool(service) != (topology is Topology.SENTINEL) or not (database or "0").isdigit():
        return None
    options = dict(parse_qsl(query, keep_blank_values=True))
    sentinel = {
        option.removeprefix(_OF_SENTINELS): Secret(value)
        for option, value in options.items()
        if option.startswith(_OF_SENTINELS)
    }
    ours = urlencode({option: value for option, value in options.items() if not option.startswith(_OF_SENTINELS)})
    first = _write_host(hosts[0])
    plain = f"{scheme.partition('+')[0]}://{credentials}{at}{first}/{database}{'?' if ours else ''}{ours}"
    address = f"{scheme}://{','.join(map(_write_host, hosts))}{'/' if path else ''}{path}"
    return RedisUrl(topology, Secret(plain), address, hosts, unquote(service), sentinel)


def _write_host(host: tuple[str, int]) -> str:
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
