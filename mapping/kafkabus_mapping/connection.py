"""Connection strings: their parts, and the addresses of Kafka and Redis in them.

Azure's own connection strings are accepted unchanged. Extra parts of the string (``KafkaBootstrapServers=…;Redis=…``), or
``KAFKABUS_…`` variables that the caller passes, give the addresses of Kafka and Redis. A secret may be in a file, which the
caller reads; a part or a variable names the file.

Semicolons separate the parts. A value that contains a semicolon, or begins with a double quote or a blank, is written in
double quotes, with each quote inside it doubled: ``KafkaSaslPassword="a;b""c"`` is the password ``a;b"c``.
``format_connection_string`` writes such quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlsplit

from kafkabus_mapping.field_access import FieldAccess
from kafkabus_mapping.names import NameRuleError, check_namespace
from kafkabus_mapping.secret import Secret

CONNECTION_STRING_VARIABLE: Final = "KAFKABUS_CONNECTION_STRING"
"""The variable with the connection string that the command line and the upkeep service use by default."""
BOOTSTRAP_SERVERS_VARIABLE: Final = "KAFKABUS_BOOTSTRAP_SERVERS"

_BROKER = re.compile(r"(?:\w+://)?(?:[^\s:/@\[\]]+|\[[0-9A-Fa-f:.%\w]+\]):[0-9]{1,5}")
"""The address of a broker, as librdkafka accepts it; an IPv6 literal is in brackets."""

_KAFKA_OPTIONS = {
    "KafkaSecurityProtocol": "security.protocol",
    "KafkaSaslMechanism": "sasl.mechanism",
    "KafkaSaslUsername": "sasl.username",
    "KafkaSaslPassword": "sasl.password",
    "KafkaSslCaLocation": "ssl.ca.location",
    "KafkaSslCertificateLocation": "ssl.certificate.location",
    "KafkaSslKeyLocation": "ssl.key.location",
    "KafkaSslKeyPassword": "ssl.key.password",
}
"""The parts for TLS and SASL, and librdkafka's names of their options."""
_OPTION, _OPTION_FILE = "Kafka.", "KafkaFile."
"""The beginnings of parts that are named after an option of librdkafka; the rest is its name."""
_OPTIONS_OF_CONNECTIONS = re.compile(
    r"(?:api\.version|broker|client|connections|https|reconnect|sasl|socket|ssl)\..+|enable\.ssl\.certificate\.verification"
)
"""The options that such parts may set. The others decide what is stored and read, which is not the user's choice."""
_FILE = "File"
"""The end of the name of a part, and ``_FILE`` of a variable, that names the file with the value of another one."""
_SECRET_PARTS = {"SharedAccessKey", "SharedAccessSignature", "KafkaSaslPassword", "KafkaSslKeyPassword", "Redis"}
_IN_FILES = ("KafkaSaslPassword", "KafkaSslKeyPassword", "Redis", "RedisPassword")
"""The values that a file may hold; the password of Redis has no separate part, because the URL has a place for it."""
_PARTS = {
    name.lower(): name
    for name in (
        "Endpoint",
        "SharedAccessKeyName",
        "SharedAccessKey",
        "SharedAccessSignature",
        "EntityPath",
        "UseDevelopmentEmulator",
        # Ignored, as azure.servicebus does: it selects the transport of AMQP.
        "TransportType",
        "KafkaBootstrapServers",
        *_KAFKA_OPTIONS,
        "KafkaReplicationFactor",
        "Redis",
        *(name + _FILE for name in _IN_FILES),
    )
}
_PART = re.compile(
    r"""
    (?P<name>[^=;]*)
    (?: = (?: \s* "(?P<quoted>[^"]*(?:""[^"]*)*)" \s* | (?!\s*") (?P<plain>[^;]*) ) )?
    (?: ; | \Z )
    """,
    re.VERBOSE,
)
"""One part with the semicolon behind it; the pattern does not match a part with broken quotes."""

ReadFile = Callable[[str], str]
"""Returns the text of a file; raises ``OSError`` if that is impossible."""


@dataclass(kw_only=True)
class ServiceBusConnectionStringProperties(FieldAccess):
    """The parts of a connection string, as attributes and as a mapping.

    Attributes:
        endpoint: The endpoint with scheme and trailing slash: ``sb://host/``.
        fully_qualified_namespace: The host name.
        entity_path: The only entity that the string gives access to, or None.
        shared_access_key_name: Accepted, not checked.
        shared_access_key: Accepted, not checked.
        shared_access_signature: Accepted, not checked.
    """

    endpoint: str
    fully_qualified_namespace: str
    entity_path: str | None = None
    shared_access_key_name: str | None = None
    shared_access_key: str | None = field(default=None, repr=False)
    shared_access_signature: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class KafkaLocation:
    """The Kafka cluster that holds a namespace's topics.

    Attributes:
        namespace: The namespace's name, which prefixes its topics: the first label of the host name.
        fully_qualified_namespace: The host name.
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        entity_path: The only entity that may be used, or None.
        kafka_options: TLS and SASL options, named as librdkafka names them; the password is a ``Secret``.
    """

    namespace: str
    fully_qualified_namespace: str
    bootstrap_servers: str
    entity_path: str | None = None
    kafka_options: Mapping[str, str | Secret] = field(default_factory=dict[str, str | Secret])


def parse_connection_string(conn_str: str) -> ServiceBusConnectionStringProperties:
    """Parse a connection string; the names of parts are case-sensitive here, as in ``azure.servicebus``.

    Args:
        conn_str: Azure's connection string, with or without the parts that kafkabus adds. A value with a semicolon is written
            in double quotes, with each quote inside it doubled; ``azure.servicebus`` does not support quotes.

    Raises:
        ValueError: A part is missing, malformed, unknown or contradicts another; the error says which, and shows no secret.
    """
    parts = _split(conn_str)
    for name in parts:
        if name != _proper(name) and name.lower() != "sharedaccesssignature":
            raise ValueError(f"connection string: unknown part {name!r}; did you mean {_proper(name)!r}?")
    properties = properties_of(parts)
    if not (properties.shared_access_key or properties.shared_access_signature):
        raise ValueError(
            "connection string: neither SharedAccessKey nor SharedAccessSignature: add "
            "'SharedAccessKeyName=…;SharedAccessKey=…', as azure.servicebus needs one of them"
        )
    return properties


def parse_parts(conn_str: str) -> dict[str, str]:
    """Return the parts of a connection string by their proper names; the string may write the names in any case.

    Args:
        conn_str: Azure's connection string, with or without the parts that kafkabus adds. A value with a semicolon is written
            in double quotes, with each quote inside it doubled.

    Raises:
        ValueError: A part is unknown, has no value or broken quotes, or the string has no parts; the error shows no value.
    """
    return {_proper(name) or name: value for name, value in _split(conn_str).items()}


def format_connection_string(parts: Mapping[str, str]) -> str:
    """Return a connection string that ``parse_parts`` reads back as the same parts; values are quoted if necessary.

    Args:
        parts: Values, none of them empty, by the names of their parts.
    """
    return ";".join(f"{name}={_quote(value)}" for name, value in parts.items())


def variable_of(part: str) -> str:
    """Return the variable for a part: ``KAFKABUS_SASL_PASSWORD`` for ``KafkaSaslPassword``."""
    words = re.findall("[A-Z][a-z]*", part.removeprefix("Kafka"))
    if words == ["Redis"]:
        words.append("Url")
    return "_".join(["KAFKABUS", *map(str.upper, words)])


def value_of(part: str, parts: Mapping[str, str], environment: Mapping[str, str], read: ReadFile) -> str | None:
    """Return the value of a part: its own, that of its file, of its variable, or of its variable's file; else None.

    Args:
        part: The part's name.
        parts: The parts of the connection string.
        environment: ``KAFKABUS_…`` variables.
        read: Reads a file.

    Raises:
        ValueError: The string has both the value and a file, or the file cannot be read or is empty.
    """
    variable = variable_of(part)
    sources = ((part, part + _FILE, parts), (variable, f"{variable}_{_FILE.upper()}", environment))
    for name, its_file, values in sources:
        given, file = values.get(name), values.get(its_file) if part in _IN_FILES else None
        if given and file:
            raise ValueError(f"{name} and {its_file} are both given: drop one of them")
        if given or file:
            return given or _text_of(its_file, file or "", read)
    return None


def kafka_options(parts: Mapping[str, str], environment: Mapping[str, str], read: ReadFile) -> dict[str, str | Secret]:
    """Return the TLS and SASL options of a connection string, and those that it passes on, by librdkafka's names.

    The variables describe the brokers of ``KAFKABUS_BOOTSTRAP_SERVERS``: if the string names brokers itself, only the variables
    of secrets count.

    Args:
        parts: The parts of the connection string.
        environment: ``KAFKABUS_…`` variables.
        read: Reads a file.

    Raises:
        ValueError: A part names an option that it may not set, or a file that cannot be read.
    """
    elsewhere = "KafkaBootstrapServers" in parts
    options: dict[str, str | Secret] = {}
    for part, option in _KAFKA_OPTIONS.items():
        is_secret = part in _SECRET_PARTS
        value = value_of(part, parts, {} if elsewhere and not is_secret else environment, read)
        if value is not None:
            options[option] = Secret(value) if is_secret else value
    return options | dict(_librdkafka_options(parts, read))


def _librdkafka_options(parts: Mapping[str, str], read: ReadFile) -> Iterator[tuple[str, Secret]]:
    """Yield the options that are parts by librdkafka's names; any of them may be a secret."""
    own = {option: part for part, option in _KAFKA_OPTIONS.items()}
    for part, value in parts.items():
        beginning = next((prefix for prefix in (_OPTION, _OPTION_FILE) if part.startswith(prefix)), None)
        if beginning is None:
            continue
        option = part[len(beginning) :]
        if option in own:
            raise ValueError(f"connection string: {part}: write {own[option]} instead")
        if not _OPTIONS_OF_CONNECTIONS.fullmatch(option):
            raise ValueError(
                f"connection string: {part}: kafkabus itself sets what is stored and read; only options of connections may be "
                "given, such as Kafka.sasl.oauthbearer.method or Kafka.socket.keepalive.enable"
            )
        yield option, Secret(value if beginning == _OPTION else _text_of(part, value, read))


def _text_of(name: str, file: str, read: ReadFile) -> str:
    """Return what a file holds, without the newline at its end.

    Raises:
        ValueError: The file cannot be read, or is empty.
    """
    try:
        text = read(file).removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(
            f"{name}={file!r}: the file cannot be read ({error.strerror or type(error).__name__}); name a file that this "
            "program's user may read"
        ) from error
    except UnicodeDecodeError:
        # The error would show what the file holds.
        raise ValueError(
            f"{name}={file!r}: the file is no text in UTF-8; write the value into it, and nothing else"
        ) from None
    if not text:
        raise ValueError(f"{name}={file!r}: the file is empty; write the value into it")
    return text


def parse_kafka_location(conn_str: str, environment: Mapping[str, str], read: ReadFile) -> KafkaLocation:
    """Return the Kafka cluster of a connection string's namespace; the string need not name Redis.

    Args:
        conn_str: Azure's connection string, with or without the parts that kafkabus adds.
        environment: ``KAFKABUS_…`` variables, which supply the parts that the string leaves out.
        read: Reads a file that the string or the environment names.

    Raises:
        ValueError: The string is malformed, neither it nor the environment names Kafka's brokers, or a file cannot be read.
    """
    parts = parse_parts(conn_str)
    properties = properties_of(parts)
    host = properties.fully_qualified_namespace
    return KafkaLocation(
        namespace_of(host),
        host,
        bootstrap_servers_of(host, parts.get("KafkaBootstrapServers"), environment),
        properties.entity_path,
        kafka_options(parts, environment, read),
    )


def bootstrap_servers_of(fully_qualified_namespace: str, given: str | None, environment: Mapping[str, str]) -> str:
    """Return the brokers of a namespace: the given ones, else those that the environment names.

    Raises:
        ValueError: Neither names a broker, or a broker has no port.
    """
    servers = given or environment.get(BOOTSTRAP_SERVERS_VARIABLE)
    if not servers:
        raise ValueError(
            f"no Kafka brokers are known for {fully_qualified_namespace!r}: add "
            f"KafkaBootstrapServers=host:port to the connection string, or set {BOOTSTRAP_SERVERS_VARIABLE} "
            "('kafkabus up' starts both and prints a connection string)"
        )
    for server in servers.split(","):
        if not _BROKER.fullmatch(server.strip()) or not 0 < int(server.rpartition(":")[2]) < 65_536:
            source = "KafkaBootstrapServers" if given else BOOTSTRAP_SERVERS_VARIABLE
            raise ValueError(
                f"{source}={servers!r}: {server.strip()!r} is no host:port; write each broker with its port, 1 to 65535, as in "
                "kafka-1:9092,kafka-2:9092"
            )
    return servers


def host_of(uri: str) -> str:
    """Return the host of an address, without scheme, port and path; an IPv6 literal keeps its brackets."""
    host = uri.partition("://")[2] or uri
    host = host.partition("/")[0].rpartition("@")[2]
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def namespace_of(fully_qualified_namespace: str) -> str:
    """Return the namespace of a host name: its first label, in lower case.

    Raises:
        ValueError: The label is not a valid name of a namespace.
    """
    host = fully_qualified_namespace.partition(":")[0]
    try:
        return check_namespace(host.partition(".")[0])
    except NameRuleError as error:
        raise ValueError(f"Endpoint host {host!r}: its first label names the namespace; {error}") from error


def properties_of(parts: Mapping[str, str]) -> ServiceBusConnectionStringProperties:
    """Return Azure's parts of a connection string; their names may be in any case.

    Raises:
        ValueError: A part is missing, malformed or contradicts another; the error says which.
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
    """Return the parts of a connection string by their names as written; raise ValueError if a name is unknown."""
    if not isinstance(conn_str, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"conn_str is of type {type(conn_str).__name__}: give a connection string, such as 'kafkabus status' prints; "
            "if it comes from the environment, check that the variable is set"
        )
    parts: dict[str, str] = {}
    before, position = "", 0
    while position < len(conn_str):
        match = _PART.match(conn_str, position)
        name = (match["name"] if match else conn_str[position:].partition("=")[0]).strip()
        if match and not match[0].rstrip(";").strip():
            position = match.end()
            continue
        _check_name(name, before)
        if match is None:
            raise ValueError(
                f"connection string: the quotes of {name} are broken. A value that begins with a quote ends with one, ';' or "
                f'nothing follows, and a quote inside is written twice: {name}="a;b""c" is a;b"c'
            )
        value = (match["plain"] or "").strip() if match["quoted"] is None else match["quoted"].replace('""', '"')
        if not value:
            raise ValueError(
                f"Connection string is either blank or malformed: part {name!r} has no value, write {name}=<value>"
            )
        parts[name] = value
        before, position = name, match.end()
    if not parts:
        raise ValueError(
            "Connection string is either blank or malformed: it begins with Endpoint=sb://<namespace host>/ ('kafkabus status' "
            "prints that of a namespace that runs on this machine)"
        )
    return parts


def _check_name(name: str, before: str) -> None:
    """Raise ValueError if a part is unknown; the error does not show a part that may be the end of a secret."""
    if _proper(name) is not None:
        return
    lowered = name.lower()
    near = get_close_matches(lowered, _PARTS, n=1, cutoff=0.8)
    if near:
        remedy = f"did you mean {_PARTS[near[0]]!r}?"
    else:
        ranked = get_close_matches(lowered, _PARTS, n=len(_PARTS), cutoff=0.0)
        ranked.sort(key=lambda part: not (lowered in part or part in lowered))
        remedy = f"known parts, the nearest first: {', '.join(_PARTS[part] for part in ranked)}"
    secret = _may_be_secret(_proper(before) or "")
    if name.isalpha() and not secret:
        raise ValueError(f"connection string: unknown part {name!r}; {remedy}")
    place = f"the part after {before}" if before else "the first part"
    quotes = f"; a value with ';' needs quotes, {before}=\"…;…\"" if secret else ""
    raise ValueError(f"connection string: {place} is unknown (not shown: it may be secret){quotes}; {remedy}")


def _proper(name: str) -> str | None:
    """Return a part's proper name; None if there is no such part."""
    lowered = name.lower()
    for beginning in (_OPTION, _OPTION_FILE):
        if lowered.startswith(beginning.lower()) and len(name) > len(beginning):
            return beginning + lowered[len(beginning) :]
    return _PARTS.get(lowered)


def _may_be_secret(part: str) -> bool:
    return part in _SECRET_PARTS or part.startswith(_OPTION)


def _quote(value: str) -> str:
    if ";" not in value and not value.startswith('"') and value == value.strip():
        return value
    return '"' + value.replace('"', '""') + '"'
