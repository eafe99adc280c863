"""The settings that name the servers of a namespace, from a connection string and the environment.

Azure's own strings are taken unchanged. Extra parts of the string (``KafkaBootstrapServers=…;Redis=…``) or the environment
(``KAFKABUS_BOOTSTRAP_SERVERS``, ``KAFKABUS_REDIS_URL``) name the addresses of Kafka and Redis.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kafkabus._core import in_memory_registry
from kafkabus_mapping.connection import (
    ServiceBusConnectionStringProperties,
    bootstrap_servers_of,
    host_of,
    kafka_options,
    namespace_of,
    parse_connection_string,
    parse_parts,
    properties_of,
)
from kafkabus_mapping.secret import Secret

_REDIS_SCHEMES = {"redis", "rediss", "unix", in_memory_registry.ADDRESS}

__all__ = [
    "ServiceBusConnectionStringProperties",
    "Settings",
    "host_of",
    "parse_connection_string",
    "parse_settings",
    "settings_for",
]


@dataclass(frozen=True, slots=True)
class Settings:
    """The addresses of a namespace, and the options to connect with.

    Attributes:
        namespace: The name, which prefixes topics and keys: the first label of the host name.
        fully_qualified_namespace: The host name.
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        redis_url: ``redis://…`` or ``rediss://…``, with the password if there is one.
        entity_path: The one entity that may be used, or None.
        kafka_options: Further options of librdkafka: TLS and SASL; the password is a ``Secret``.
        replication_factor: How many replicas the topics of entities have; None: 3, or as many as there are brokers.
    """

    namespace: str
    fully_qualified_namespace: str
    bootstrap_servers: str
    redis_url: Secret
    entity_path: str | None = None
    kafka_options: Mapping[str, str | Secret] = field(default_factory=dict[str, str | Secret])
    replication_factor: int | None = None

    @property
    def redis_address(self) -> str:
        """The URL of Redis without user, password and options, for errors and logs."""
        url = urlsplit(self.redis_url.reveal())
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def parse_settings(conn_str: str, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of a connection string; the names of its parts are case-insensitive.

    Args:
        conn_str: Azure's connection string, with or without kafkabus's parts.
        environment: ``KAFKABUS_…`` variables; the process's by default.

    Raises:
        ValueError: The string is malformed, or neither it nor the environment names Kafka and Redis.
    """
    parts = parse_parts(conn_str)
    properties = properties_of(parts)
    return settings_for(
        properties.fully_qualified_namespace,
        bootstrap_servers=parts.get("KafkaBootstrapServers"),
        redis_url=parts.get("Redis"),
        entity_path=properties.entity_path,
        kafka_options=kafka_options(parts),
        replication_factor=parts.get("KafkaReplicationFactor"),
        environment=environment,
    )


def settings_for(
    fully_qualified_namespace: str,
    *,
    bootstrap_servers: str | None = None,
    redis_url: str | None = None,
    entity_path: str | None = None,
    kafka_options: Mapping[str, str | Secret] | None = None,
    replication_factor: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings of a namespace by its host name; values that are not given come from the environment.

    Raises:
        ValueError: The host name names no namespace, no Kafka brokers or no Redis server are known, the URL of Redis is
            malformed, or the replication factor is no number.
    """
    env = os.environ if environment is None else environment
    servers = bootstrap_servers_of(fully_qualified_namespace, bootstrap_servers, env)
    url = redis_url or env.get("KAFKABUS_REDIS_URL")
    if not url:
        raise ValueError(
            f"no Redis server is known for {fully_qualified_namespace!r}: add Redis=redis://host:port/0 "
            "to the connection string, or set KAFKABUS_REDIS_URL"
        )
    _check_redis_url(url)
    namespace = namespace_of(fully_qualified_namespace)
    factor = replication_factor or env.get("KAFKABUS_REPLICATION_FACTOR")
    if factor is not None and not (factor.isdigit() and int(factor) > 0):
        raise ValueError(f"KafkaReplicationFactor={factor!r}: give a number of replicas, 1 or more")
    return Settings(
        namespace,
        fully_qualified_namespace,
        servers,
        Secret(url),
        entity_path,
        kafka_options or {},
        None if factor is None else int(factor),
    )


def _check_redis_url(url: str) -> None:
    """Refuse a URL that Redis's client would refuse too, or read in another way than it was meant, without showing it."""
    try:
        split = urlsplit(url)
        # No address has an '@' behind the host: there it ends a password that holds a '/' or '#'.
        valid = split.scheme in _REDIS_SCHEMES and "@" not in split.path + split.fragment and split.port != 0
    except ValueError:
        # The port is no number. The message of this error shows what stands in its place: part of the password.
        valid = False
    if not valid:
        raise ValueError(
            "Redis: a URL begins with redis://, rediss:// or unix://, and special characters in its password are "
            "percent-encoded (@ is %40, / is %2F, ? is %3F, # is %23): redis://:password@host:6379/0"
        ) from None
