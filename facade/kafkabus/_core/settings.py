"""The settings that say where a namespace lives, from a connection string and the environment.

Azure's own strings are taken unchanged. Where Kafka and Redis are is said by extra parts of the string
(``KafkaBootstrapServers=…;Redis=…``) or by the environment (``KAFKABUS_BOOTSTRAP_SERVERS``, ``KAFKABUS_REDIS_URL``).
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
    """Where a namespace lives.

    Attributes:
        namespace: Its name, which prefixes topics and keys: the first label of the host name.
        fully_qualified_namespace: The host name.
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        redis_url: ``redis://…`` or ``rediss://…``, with the password where there is one.
        entity_path: The one entity that may be used, or None.
        kafka_options: Further options of librdkafka: TLS and SASL; the password is a ``Secret``.
        replication_factor: Of the topics of entities; None: 3, or as many as there are brokers.
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
    """Where the namespace of a connection string lives; part names in any case.

    Args:
        conn_str: Azure's connection string, with or without our parts.
        environment: ``KAFKABUS_…`` variables; the process's by default.

    Raises:
        ValueError: The string is malformed, or neither it nor the environment says where Kafka and Redis are.
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
    """Where a namespace lives, by its host name; what is not given comes from the environment.

    Raises:
        ValueError: The host name names no namespace, it is not said where Kafka or Redis is, the URL of Redis is malformed, or
            the replication factor is no number.
    """
    env = os.environ if environment is None else environment
    servers = bootstrap_servers_of(fully_qualified_namespace, bootstrap_servers, env)
    url = redis_url or env.get("KAFKABUS_REDIS_URL")
    if not url:
        raise ValueError(
            f"it is not said where Redis is for {fully_qualified_namespace!r}: add Redis=redis://host:port/0 "
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
        # Behind the host no address has an '@': there it is the end of a password that holds a '/' or '#'.
        valid = split.scheme in _REDIS_SCHEMES and "@" not in split.path + split.fragment and split.port != 0
    except ValueError:
        # No number stands in place of the port. The message shows what does: part of the password.
        valid = False
    if not valid:
        raise ValueError(
            "Redis: a URL begins with redis://, rediss:// or unix://, and special characters in its password are "
            "percent-encoded (@ is %40, / is %2F, ? is %3F, # is %23): redis://:password@host:6379/0"
        ) from None
