"""Connection strings, and the settings that say where a namespace lives.

Azure's own strings are taken unchanged. Where Kafka and Redis are is said by extra parts of the string
(``KafkaBootstrapServers=…;Redis=…``) or by the environment (``KAFKABUS_BOOTSTRAP_SERVERS``, ``KAFKABUS_REDIS_URL``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kafkabus_mapping.names import NameRuleError, check_namespace

_PARTS = {
    name.lower(): name
    for name in (
        "Endpoint",
        "SharedAccessKeyName",
        "SharedAccessKey",
        "SharedAccessSignature",
        "EntityPath",
        "UseDevelopmentEmulator",
        "KafkaBootstrapServers",
        "KafkaSecurityProtocol",
        "KafkaSaslMechanism",
        "KafkaSaslUsername",
        "KafkaSaslPassword",
        "KafkaSslCaLocation",
        "Redis",
    )
}
_KAFKA_OPTIONS = {
    "KafkaSecurityProtocol": "security.protocol",
    "KafkaSaslMechanism": "sasl.mechanism",
    "KafkaSaslUsername": "sasl.username",
    "KafkaSaslPassword": "sasl.password",
    "KafkaSslCaLocation": "ssl.ca.location",
}


@dataclass(frozen=True, slots=True)
class ServiceBusConnectionStringProperties:
    """What a connection string says.

    Attributes:
        endpoint: With scheme and trailing slash: ``sb://host/``.
        fully_qualified_namespace: The host alone.
        entity_path: The one entity that the string is for, or None.
        shared_access_key_name: Carried, not checked.
        shared_access_key: Carried, not checked.
        shared_access_signature: Carried, not checked.
    """

    endpoint: str
    fully_qualified_namespace: str
    entity_path: str | None = None
    shared_access_key_name: str | None = None
    shared_access_key: str | None = field(default=None, repr=False)
    shared_access_signature: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a namespace lives.

    Attributes:
        namespace: Its name, which prefixes topics and keys: the first label of the host name.
        fully_qualified_namespace: The host name.
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        redis_url: ``redis://…`` or ``rediss://…``.
        entity_path: The one entity that may be used, or None.
        kafka_options: Further options of librdkafka: TLS and SASL.
    """

    namespace: str
    fully_qualified_namespace: str
    bootstrap_servers: str
    redis_url: str
    entity_path: str | None = None
    kafka_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def parse_connection_string(conn_str: str) -> ServiceBusConnectionStringProperties:
    """Read a connection string; part names are case-sensitive here, as in ``azure.servicebus``.

    Raises:
        ValueError: A part is missing, malformed, unknown or contradicts another; the message says which.
    """
    parts = _split(conn_str)
    for name in parts:
        if name not in _PARTS.values() and name.lower() != "sharedaccesssignature":
            raise ValueError(f"connection string: unknown part {name!r}; {_known(name)}")
    return _properties(parts)


def parse_settings(conn_str: str, environment: Mapping[str, str] | None = None) -> Settings:
    """Where the namespace of a connection string lives; part names in any case.

    Args:
        conn_str: Azure's connection string, with or without our parts.
        environment: ``KAFKABUS_…`` variables; the process's by default.

    Raises:
        ValueError: The string is malformed, or neither it nor the environment says where Kafka and Redis are.
    """
    parts: dict[str, str] = {}
    for name, value in _split(conn_str).items():
        known = _PARTS.get(name.lower())
        if known is None:
            raise ValueError(f"connection string: unknown part {name!r}; {_known(name)}")
        parts[known] = value
    properties = _properties(parts)
    options = {option: parts[part] for part, option in _KAFKA_OPTIONS.items() if part in parts}
    return settings_for(
        properties.fully_qualified_namespace,
        bootstrap_servers=parts.get("KafkaBootstrapServers"),
        redis_url=parts.get("Redis"),
        entity_path=properties.entity_path,
        kafka_options=options,
        environment=environment,
    )


def settings_for(
    fully_qualified_namespace: str,
    *,
    bootstrap_servers: str | None = None,
    redis_url: str | None = None,
    entity_path: str | None = None,
    kafka_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Where a namespace lives, by its host name; what is not given comes from the environment.

    Raises:
        ValueError: The host name names no namespace, or it is not said where Kafka or Redis is.
    """
    env = os.environ if environment is None else environment
    servers = bootstrap_servers or env.get("KAFKABUS_BOOTSTRAP_SERVERS")
    url = redis_url or env.get("KAFKABUS_REDIS_URL")
    if not servers:
        raise ValueError(
            f"it is not said where Kafka is for {fully_qualified_namespace!r}: add "
            "KafkaBootstrapServers=host:port to the connection string, or set KAFKABUS_BOOTSTRAP_SERVERS "
            "('kafkabus up' starts both and prints a connection string)"
        )
    if not url:
        raise ValueError(
            f"it is not said where Redis is for {fully_qualified_namespace!r}: add Redis=redis://host:port/0 "
            "to the connection string, or set KAFKABUS_REDIS_URL"
        )
    if urlsplit(url).scheme not in {"redis", "rediss", "unix"}:
        raise ValueError(f"Redis={url!r}: a Redis URL begins with redis://, rediss:// or unix://")
    host = fully_qualified_namespace.partition(":")[0]
    try:
        namespace = check_namespace(host.partition(".")[0])
    except NameRuleError as error:
        raise ValueError(f"Endpoint host {host!r}: its first label names the namespace; {error}") from error
    return Settings(namespace, fully_qualified_namespace, servers, url, entity_path, kafka_options or {})


def _split(conn_str: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in conn_str.strip().split(";"):
        if not part.strip():
            continue
        name, equals, value = part.strip().partition("=")
        if not equals or not value:
            raise ValueError(
                f"Connection string is either blank or malformed: part {name!r} has no value, write {name}=<value>"
            )
        parts[name.strip()] = value.strip()
    if not parts:
        raise ValueError(
            "Connection string is either blank or malformed: it begins with Endpoint=sb://<namespace host>/"
        )
    return parts


def _properties(parts: Mapping[str, str]) -> ServiceBusConnectionStringProperties:
    lowered = {name.lower(): value for name, value in parts.items()}
    signature = lowered.get("sharedaccesssignature")
    key_name, key = lowered.get("sharedaccesskeyname"), lowered.get("sharedaccesskey")
    if (key_name is None) != (key is None):
        raise ValueError("Connection string must have both SharedAccessKeyName and SharedAccessKey.")
    if key is not None and signature is not None:
        raise ValueError("Only one of the SharedAccessKey or SharedAccessSignature must be present.")
    endpoint = lowered.get("endpoint")
    if endpoint is None:
        raise ValueError("Connection string is either blank or malformed: it has no Endpoint=sb://<namespace host>/")
    split = urlsplit(endpoint)
    if not split.scheme or not split.hostname:
        raise ValueError(
            f"Invalid Endpoint on the Connection String: {endpoint!r}; write Endpoint=sb://<namespace host>/"
        )
    emulator = lowered.get("usedevelopmentemulator", "").lower() == "true"
    host = split.netloc if emulator else split.hostname
    return ServiceBusConnectionStringProperties(
        endpoint=f"{split.scheme}://{split.netloc}/",
        fully_qualified_namespace=host,
        entity_path=lowered.get("entitypath"),
        shared_access_key_name=key_name,
        shared_access_key=key,
        shared_access_signature=signature,
    )


def _known(name: str) -> str:
    near = _PARTS.get(name.lower())
    return f"did you mean {near!r}?" if near else f"known parts: {', '.join(_PARTS.values())}"
