"""Connection strings: what their parts mean, and where in them a namespace's Kafka is said to be.

Azure's own strings are taken unchanged. Where Kafka and Redis are is said by extra parts of the string
(``KafkaBootstrapServers=…;Redis=…``) or by ``KAFKABUS_…`` variables, which the caller hands over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from kafkabus_mapping.names import NameRuleError, check_namespace

BOOTSTRAP_SERVERS_VARIABLE: Final = "KAFKABUS_BOOTSTRAP_SERVERS"

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
        "KafkaReplicationFactor",
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
class KafkaLocation:
    """Where a namespace's topics are.

    Attributes:
        namespace: Its name, which prefixes topics: the first label of the host name.
        fully_qualified_namespace: The host name.
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        entity_path: The one entity that may be used, or None.
        kafka_options: TLS and SASL options, named as librdkafka names them.
    """

    namespace: str
    fully_qualified_namespace: str
    bootstrap_servers: str
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
    return properties_of(parts)


def parse_parts(conn_str: str) -> dict[str, str]:
    """The parts of a connection string under their proper names; they may be written in any case.

    Raises:
        ValueError: A part is unknown or has no value, or there are none.
    """
    parts: dict[str, str] = {}
    for name, value in _split(conn_str).items():
        known = _PARTS.get(name.lower())
        if known is None:
            raise ValueError(f"connection string: unknown part {name!r}; {_known(name)}")
        parts[known] = value
    return parts


def kafka_options(parts: Mapping[str, str]) -> dict[str, str]:
    """The TLS and SASL options among the parts of a connection string, named as librdkafka names them."""
    return {option: parts[part] for part, option in _KAFKA_OPTIONS.items() if part in parts}


def parse_kafka_location(conn_str: str, environment: Mapping[str, str]) -> KafkaLocation:
    """Where the topics of a connection string's namespace are; Redis need not be named.

    Args:
        conn_str: Azure's connection string, with or without our parts.
        environment: ``KAFKABUS_…`` variables, for what the string leaves out.

    Raises:
        ValueError: The string is malformed, or neither it nor the environment says where Kafka is.
    """
    parts = parse_parts(conn_str)
    properties = properties_of(parts)
    host = properties.fully_qualified_namespace
    return KafkaLocation(
        namespace_of(host),
        host,
        bootstrap_servers_of(host, parts.get("KafkaBootstrapServers"), environment),
        properties.entity_path,
        kafka_options(parts),
    )


def bootstrap_servers_of(fully_qualified_namespace: str, given: str | None, environment: Mapping[str, str]) -> str:
    """The brokers of a namespace: those given, else the environment's.

    Raises:
        ValueError: Neither names any.
    """
    servers = given or environment.get(BOOTSTRAP_SERVERS_VARIABLE)
    if not servers:
        raise ValueError(
            f"it is not said where Kafka is for {fully_qualified_namespace!r}: add "
            f"KafkaBootstrapServers=host:port to the connection string, or set {BOOTSTRAP_SERVERS_VARIABLE} "
            "('kafkabus up' starts both and prints a connection string)"
        )
    return servers


def host_of(uri: str) -> str:
    """The host of an address, without scheme, port and path; an IPv6 literal keeps its brackets."""
    host = uri.partition("://")[2] or uri
    host = host.partition("/")[0].rpartition("@")[2]
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def namespace_of(fully_qualified_namespace: str) -> str:
    """The namespace that a host name names: its first label, in lower case.

    Raises:
        ValueError: The label is no namespace's name.
    """
    host = fully_qualified_namespace.partition(":")[0]
    try:
        return check_namespace(host.partition(".")[0])
    except NameRuleError as error:
        raise ValueError(f"Endpoint host {host!r}: its first label names the namespace; {error}") from error


def properties_of(parts: Mapping[str, str]) -> ServiceBusConnectionStringProperties:
    """What Azure's parts of a connection string say; names in any case.

    Raises:
        ValueError: A part is missing, malformed or contradicts another; the message says which.
    """
    lowered = {name.lower(): value for name, value in parts.items()}
    signature = lowered.get("sharedaccesssignature")
    key_name, key = lowered.get("sharedaccesskeyname"), lowered.get("sharedaccesskey")
    if (key_name is None) != (key is None):
        missing = "SharedAccessKeyName" if key_name is None else "SharedAccessKey"
        raise ValueError(
            f"Connection string must have both SharedAccessKeyName and SharedAccessKey: {missing} is missing"
        )
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
    host = split.netloc if emulator else host_of(endpoint)
    return ServiceBusConnectionStringProperties(
        endpoint=f"{split.scheme}://{split.netloc}/",
        fully_qualified_namespace=host,
        entity_path=lowered.get("entitypath"),
        shared_access_key_name=key_name,
        shared_access_key=key,
        shared_access_signature=signature,
    )


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
            "Connection string is either blank or malformed: it begins with Endpoint=sb://<namespace host>/ ('kafkabus status' "
            "prints that of a namespace that runs on this machine)"
        )
    return parts


def _known(name: str) -> str:
    near = _PARTS.get(name.lower())
    return f"did you mean {near!r}?" if near else f"known parts: {', '.join(_PARTS.values())}"
