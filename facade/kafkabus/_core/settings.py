"""The settings that name the servers of a namespace, from a connection string and the environment.

Azure's own strings are taken unchanged. Extra parts of the string (``KafkaBootstrapServers=…;Redis=…``) or the environment
(``KAFKABUS_BOOTSTRAP_SERVERS``, ``KAFKABUS_REDIS_URL``) name the addresses of Kafka and Redis. Both may name files that hold
secrets, which are read here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from kafkabus._core.redis_url import parse_redis_url, with_password
from kafkabus_mapping.connection import (
    ServiceBusConnectionStringProperties,
    bootstrap_servers_of,
    host_of,
    kafka_options,
    namespace_of,
    parse_connection_string,
    parse_parts,
    properties_of,
    value_of,
)
from kafkabus_mapping.secret import Secret, reveal_text

TokenProvider = Callable[[], Any]
"""Returns a token for Kafka: an object with ``token`` and ``expires_on`` (seconds since 1970), as ``get_token`` of the
credentials of ``azure.identity`` does, or a tuple of both."""
_SCOPE_OF_AZURE = "https://servicebus.azure.net/.default"
"""The scope that ``azure.servicebus`` asks for."""

__all__ = [
    "ServiceBusConnectionStringProperties",
    "Settings",
    "TokenProvider",
    "host_of",
    "parse_connection_string",
    "parse_settings",
    "settings_for",
]


CLIENT_DETAILS_VARIABLE = "KAFKABUS_CLIENT_DETAILS"
"""The variable that keeps clients from reporting where they run and what they use."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The addresses of a namespace, and the options to connect with.

    Attributes:
        namespace: The name, which prefixes topics and keys: the first label of the host name.
        fully_qualified_namespace: The host name.
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        redis_url: The URL of Redis, with the password if there is one; see ``redis_url.py``.
        entity_path: The one entity that may be used, or None.
        kafka_options: Further options of librdkafka: TLS and SASL; passwords are of type ``Secret``.
        replication_factor: How many replicas the topics of entities have; None: 3, or as many as there are brokers.
        kafka_token_provider: Returns tokens for the SASL mechanism OAUTHBEARER, or None.
        client_details: Whether clients report where they run and what they use, for ``list_clients``.
    """

    namespace: str
    fully_qualified_namespace: str
    bootstrap_servers: str
    redis_url: Secret
    entity_path: str | None = None
    kafka_options: Mapping[str, str | Secret] = field(default_factory=dict[str, str | Secret])
    replication_factor: int | None = None
    kafka_token_provider: TokenProvider | None = field(default=None, repr=False)
    client_details: bool = True

    @property
    def redis_address(self) -> str:
        """The URL of Redis without user, password and options, for errors and logs."""
        return parse_redis_url(self.redis_url.reveal()).address


def parse_settings(
    conn_str: str,
    environment: Mapping[str, str] | None = None,
    *,
    kafka_token_provider: TokenProvider | None = None,
) -> Settings:
    """Return the settings of a connection string; the names of its parts are case-insensitive.

    Args:
        conn_str: Azure's connection string, with or without kafkabus's parts.
        environment: ``KAFKABUS_…`` variables; the process's by default.
        kafka_token_provider: Returns tokens for the SASL mechanism OAUTHBEARER.

    Raises:
        ValueError: The string is malformed, or neither it nor the environment names Kafka and Redis.
    """
    parts = parse_parts(conn_str)
    properties = properties_of(parts)
    return settings_for(
        properties.fully_qualified_namespace,
        parts=parts,
        entity_path=properties.entity_path,
        environment=environment,
        kafka_token_provider=kafka_token_provider,
    )


def settings_for(
    fully_qualified_namespace: str,
    *,
    parts: Mapping[str, str] | None = None,
    entity_path: str | None = None,
    environment: Mapping[str, str] | None = None,
    credential: object = None,
    kafka_token_provider: TokenProvider | None = None,
) -> Settings:
    """Return the settings of a namespace by its host name; values that are not given come from the environment.

    Args:
        fully_qualified_namespace: The host name.
        parts: The parts of a connection string, by their proper names.
        entity_path: The one entity that may be used, or None.
        environment: ``KAFKABUS_…`` variables; the process's by default.
        credential: Has the method ``get_token``, by which it returns tokens if there is no ``kafka_token_provider``.
        kafka_token_provider: Returns tokens for the SASL mechanism OAUTHBEARER.

    Raises:
        ValueError: The host name names no namespace, no Kafka brokers or no Redis server are known, the URL of Redis is
            malformed, the replication factor is no number, a file cannot be read, a token provider is missing, or a variable
            has a wrong value.
    """
    env = os.environ if environment is None else environment
    given = parts or {}
    servers = bootstrap_servers_of(fully_qualified_namespace, given.get("KafkaBootstrapServers"), env)
    options = kafka_options(given, env, _read)
    url = _redis_url(fully_qualified_namespace, given, env)
    factor = value_of("KafkaReplicationFactor", given, env, _read)
    if factor is not None and not (factor.isdigit() and int(factor) > 0):
        raise ValueError(f"KafkaReplicationFactor={factor!r}: give a number of replicas, 1 or more")
    return Settings(
        namespace_of(fully_qualified_namespace),
        fully_qualified_namespace,
        servers,
        url,
        entity_path,
        options,
        None if factor is None else int(factor),
        _token_provider(options, credential, kafka_token_provider),
        _client_details(env),
    )


def _client_details(environment: Mapping[str, str]) -> bool:
    """Return whether clients report where they run and what they use.

    Raises:
        ValueError: The variable is neither on nor off.
    """
    given = environment.get(CLIENT_DETAILS_VARIABLE) or "on"
    if given.lower() not in {"on", "off"}:
        raise ValueError(f"{CLIENT_DETAILS_VARIABLE}={given!r}: write on or off")
    return given.lower() == "on"


def _redis_url(fully_qualified_namespace: str, parts: Mapping[str, str], environment: Mapping[str, str]) -> Secret:
    """Return the URL of Redis, with its password.

    Raises:
        ValueError: Neither the connection string nor the environment has one, it is malformed, or a file cannot be read.
    """
    url = value_of("Redis", parts, environment, _read)
    if not url:
        raise ValueError(
            f"no Redis server is known for {fully_qualified_namespace!r}: add Redis=redis://host:port/0 "
            "to the connection string, or set KAFKABUS_REDIS_URL"
        )
    parse_redis_url(url)
    password = value_of("RedisPassword", parts, environment, _read)
    return Secret(with_password(url, password) if password else url)


def _token_provider(
    options: Mapping[str, str | Secret], credential: object, provider: TokenProvider | None
) -> TokenProvider | None:
    """Return the provider of tokens for Kafka: the given one, or a credential's method; None if Kafka needs none.

    Raises:
        ValueError: Kafka needs tokens, and nothing gives any.
    """
    told = {option: reveal_text(value) for option, value in options.items()}
    if told.get("sasl.mechanism") != "OAUTHBEARER" or told.get("sasl.oauthbearer.method", "default") != "default":
        return None
    if provider is not None:
        return provider
    get_token = getattr(credential, "get_token", None)
    if get_token is None or iscoroutinefunction(get_token):
        raise ValueError(
            "KafkaSaslMechanism=OAUTHBEARER: tokens are missing; pass kafka_token_provider=, or a credential with a method "
            "get_token that needs no await, or have Kafka's client ask for tokens itself, with "
            "Kafka.sasl.oauthbearer.method=oidc and its options"
        )
    return partial(get_token, told.get("sasl.oauthbearer.scope", _SCOPE_OF_AZURE))


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")
