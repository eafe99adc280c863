"""Connection strings: Azure's own, those of kafkabus, and errors in others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus import ServiceBusClient, parse_connection_string
from kafkabus._core.settings import host_of, parse_settings, settings_for
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import format_connection_string, parse_parts, properties_of
from kafkabus_mapping.secret import Secret, reveal_text

AZURE = "Endpoint=sb://my-bus.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=secret="
OURS = f"{AZURE};KafkaBootstrapServers=a:1,b:2;Redis=redis://:pw=@c:3/0"
WHERE = {"KAFKABUS_BOOTSTRAP_SERVERS": "a:1", "KAFKABUS_REDIS_URL": "redis://c:3/0"}


def test_azures_string_is_read() -> None:
    """A trailing semicolon and blanks do no harm; the key may hold '='."""
    properties = parse_connection_string(f" {AZURE}; EntityPath=q ; ")
    assert properties.endpoint == "sb://my-bus.servicebus.windows.net/"
    assert properties.fully_qualified_namespace == "my-bus.servicebus.windows.net"
    assert (properties.shared_access_key_name, properties.shared_access_key) == ("Root", "secret=")
    assert properties.entity_path == "q"
    assert "secret" not in repr(properties)


def test_our_parts_say_where_the_namespace_lives() -> None:
    """They may have any case of letters. The namespace is the host's first label."""
    settings = parse_settings(OURS.replace("KafkaBootstrapServers", "kafkabootstrapservers"), {})
    assert (settings.namespace, settings.bootstrap_servers, settings.redis_url.reveal()) == (
        "my-bus",
        "a:1,b:2",
        "redis://:pw=@c:3/0",
    )


def test_azures_string_and_the_environment_are_enough() -> None:
    """Existing configuration moves unchanged."""
    environment = {"KAFKABUS_BOOTSTRAP_SERVERS": "a:1", "KAFKABUS_REDIS_URL": "redis://c:3/0"}
    settings = parse_settings(AZURE, environment)
    assert (settings.bootstrap_servers, settings.redis_url.reveal()) == ("a:1", "redis://c:3/0")


@pytest.mark.parametrize(
    ("uri", "host"),
    [
        ("contoso.servicebus.windows.net", "contoso.servicebus.windows.net"),
        ("sb://contoso.servicebus.windows.net/", "contoso.servicebus.windows.net"),
        ("https://Contoso.servicebus.windows.net:443/some/path", "Contoso.servicebus.windows.net"),
        ("[::1]:5672", "[::1]"),
        ("sb://[2001:db8::1]/", "[2001:db8::1]"),
    ],
)
def test_scheme_port_and_path_are_no_part_of_the_host(uri: str, host: str) -> None:
    """A program may write the address in several ways, and means one namespace."""
    assert host_of(uri) == host
    if "://" in uri:
        assert properties_of(parse_parts(f"Endpoint={uri}")).fully_qualified_namespace == host


def test_the_function_of_azure_needs_a_key_and_a_client_does_not() -> None:
    """Kafka and Redis check access; a program for Azure relies on the error of its function."""
    with pytest.raises(ValueError, match="neither SharedAccessKey nor SharedAccessSignature: add"):
        parse_connection_string("Endpoint=sb://a/")
    assert parse_connection_string("Endpoint=sb://a/;SharedAccessSignature=s").shared_access_signature == "s"
    assert parse_settings("Endpoint=sb://a/", WHERE).namespace == "a"


@pytest.mark.parametrize("kind", [ServiceBusClient, ServiceBusAdministrationClient])
def test_a_client_takes_an_address_too(
    kind: type[ServiceBusClient | ServiceBusAdministrationClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier client took the scheme for the namespace's name, so that all namespaces were one."""
    monkeypatch.setenv("KAFKABUS_BOOTSTRAP_SERVERS", "a:1")
    monkeypatch.setenv("KAFKABUS_REDIS_URL", "redis://c:3/0")
    client = kind("sb://contoso.servicebus.windows.net:443/")
    assert client.fully_qualified_namespace == "contoso.servicebus.windows.net"
    assert client._settings.namespace == "contoso"


@pytest.mark.parametrize(
    "servers", ["a:1", "a:1, b:65535", "[::1]:9092", "SASL_SSL://kafka-1.example:9092", "10.0.0.1:9092"]
)
def test_brokers_have_ports(servers: str) -> None:
    """There may be any number of brokers, and a host may be written in each way."""
    parse_settings(f"{AZURE};KafkaBootstrapServers={servers};Redis=redis://c:3/0", {})
    parse_settings(f"{AZURE};Redis=redis://c:3/0", {"KAFKABUS_BOOTSTRAP_SERVERS": servers})


@pytest.mark.parametrize(
    "servers", ["a", "a:0", "a:1,b", "a:65536", "a:", ":9092", "a:x", "::1:9092", "http://a/b:1", "a:1,"]
)
def test_a_broker_without_a_port_is_refused(servers: str) -> None:
    """The error names it, wherever it is written: Kafka's client would take another port, or try for a minute."""
    with pytest.raises(ValueError, match=r"^KafkaBootstrapServers=.*is no host:port"):
        parse_settings(f"{AZURE};KafkaBootstrapServers={servers};Redis=redis://c:3/0", {})
    with pytest.raises(ValueError, match=r"^KAFKABUS_BOOTSTRAP_SERVERS=.*is no host:port"):
        parse_settings(f"{AZURE};Redis=redis://c:3/0", {"KAFKABUS_BOOTSTRAP_SERVERS": servers})


def test_a_replication_factor_is_a_number() -> None:
    """It comes from the string or the environment. Other values are refused by name."""
    assert parse_settings(OURS, {}).replication_factor is None
    assert parse_settings(f"{OURS};KafkaReplicationFactor=2", {}).replication_factor == 2
    assert parse_settings(OURS, {"KAFKABUS_REPLICATION_FACTOR": "1"}).replication_factor == 1
    for wrong in ("0", "many"):
        with pytest.raises(ValueError, match=f"KafkaReplicationFactor='{wrong}'"):
            parse_settings(f"{OURS};KafkaReplicationFactor={wrong}", {})


def test_tls_and_sasl_parts_become_options() -> None:
    """They have the names that Kafka's client knows, and appear in no representation."""
    settings = parse_settings(
        f"{OURS};KafkaSecurityProtocol=SASL_SSL;KafkaSaslMechanism=PLAIN;KafkaSaslPassword=hush", {}
    )
    assert settings.kafka_options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.password": Secret("hush"),
    }
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "blank or malformed"),
        ("Endpoint", "part 'Endpoint' has no value"),
        ("Endpoint=", "part 'Endpoint' has no value"),
        ("SharedAccessKeyName=a;SharedAccessKey=b", "no Endpoint"),
        ("Endpoint=nothing", "Invalid Endpoint"),
        ("Endpoint=sb://a/;SharedAccessKey=b", "both SharedAccessKeyName and SharedAccessKey"),
        ("Endpoint=sb://a/;SharedAccessKeyName=a;SharedAccessKey=b;SharedAccessSignature=c", "Only one of"),
        ("Endpoint=sb://a/;Kafka=b", "unknown part 'Kafka'; known parts, the nearest first: Kafka"),
        ("Endpoint=sb://a/;Servers=b", "known parts, the nearest first: KafkaBootstrapServers"),
        ("Endpiont=sb://a/", "unknown part 'Endpiont'; did you mean 'Endpoint'"),
        ("Endpoint=sb://a/;SharedAccessKey=b;EntityPth=c", "did you mean 'EntityPath'"),
    ],
)
def test_what_is_wrong_is_named(text: str, complaint: str) -> None:
    """The error names the part, and the correct form."""
    with pytest.raises(ValueError, match=complaint):
        parse_connection_string(text)
    with pytest.raises(ValueError, match=complaint):
        parse_settings(text, {})


TEXT = st.text(min_size=1) | st.text('"; =a\n', min_size=1)


@given(
    st.dictionaries(st.sampled_from(["Endpoint", "SharedAccessKey", "KafkaSaslPassword", "Redis"]), TEXT, min_size=1)
)
def test_what_is_written_is_read_again(parts: dict[str, str]) -> None:
    """The values may hold any text."""
    assert parse_parts(format_connection_string(parts)) == parts


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"a;b"', "a;b"),
        ('  "a;b"  ', "a;b"),
        ('"a""b"', 'a"b'),
        ('""""', '"'),
        ('" a "', " a "),
        ('a"b', 'a"b'),
        ("a%3Bb", "a%3Bb"),
    ],
)
def test_a_value_may_stand_in_quotes(written: str, value: str) -> None:
    """It may then hold a semicolon. A quote inside is written twice, and no other character has a special meaning."""
    text = f"Endpoint=sb://a/;SharedAccessKeyName=k;SharedAccessKey={written};EntityPath=q"
    assert parse_connection_string(text).shared_access_key == value
    assert parse_parts(f"KafkaSaslPassword={written}") == {"KafkaSaslPassword": value}


@pytest.mark.parametrize("written", ['"hunter22', '"hunter22;x', '"hun"ter22', ' "hunter22', '"'])
def test_broken_quotes_are_refused(written: str) -> None:
    """The error has the part's name, the rule and an example, without the value."""
    with pytest.raises(ValueError, match=r"the quotes of KafkaSaslPassword are broken.*written twice") as caught:
        parse_parts(f"Endpoint=sb://a/;KafkaSaslPassword={written};EntityPath=q")
    assert "unter" not in str(caught.value)


@pytest.mark.parametrize("part", ["SharedAccessKey", "SharedAccessSignature", "KafkaSaslPassword", "Redis"])
@pytest.mark.parametrize("rest", ["hunter", "hunter=", "hunter=22", "hun ter", "=hunter", '"hunter', 'hunter="'])
def test_the_end_of_a_secret_is_not_shown(part: str, rest: str) -> None:
    """The rest of a secret behind a semicolon looks like another part; the error says how to write it instead."""
    with pytest.raises(ValueError, match=rf"the part after {part} is unknown.*needs quotes, {part}=") as caught:
        parse_parts(f"Endpoint=sb://a/;{part}=x;{rest}")
    assert "hunter" not in str(caught.value)


def test_something_else_than_a_connection_string_is_not_shown() -> None:
    """It may be the URL of Redis, with its password."""
    with pytest.raises(
        ValueError, match=re.escape("the first part is unknown (not shown: it may be secret)")
    ) as caught:
        parse_parts("redis://:hunter22@localhost:6379/0")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("nothing", [None, b"Endpoint=sb://a/;SharedAccessKey=hunter22"])
def test_what_is_no_text_is_named_by_its_argument(nothing: Any) -> None:
    """A variable of the environment may be missing. The value is not shown."""
    for read in (parse_connection_string, parse_parts):
        with pytest.raises(TypeError, match=f"conn_str is of type {type(nothing).__name__}") as caught:
            read(nothing)
        assert "hunter" not in str(caught.value)


def test_how_amqp_travels_is_no_matter() -> None:
    """Azure's clients ignore it, too."""
    settings = parse_settings(f"{AZURE};TransportType=AmqpWebSockets;KafkaBootstrapServers=a:1;Redis=redis://b", {})
    assert settings.namespace == "my-bus"
    assert (
        parse_connection_string(f"{AZURE};TransportType=Amqp").fully_qualified_namespace
        == "my-bus.servicebus.windows.net"
    )


def test_parts_are_case_sensitive_where_azures_are() -> None:
    """The error suggests the right spelling."""
    with pytest.raises(ValueError, match="did you mean 'Endpoint'"):
        parse_connection_string("endpoint=sb://a/")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (AZURE, "no Kafka brokers.*KAFKABUS_BOOTSTRAP_SERVERS"),
        (f"{AZURE};KafkaBootstrapServers=a:1", "no Redis server is known.*KAFKABUS_REDIS_URL"),
        (f"{AZURE};KafkaBootstrapServers=a:1;Redis=localhost:6379", "begins with redis://"),
        ("Endpoint=sb://under_score.x/;KafkaBootstrapServers=a:1;Redis=redis://b", "names the namespace"),
    ],
)
def test_an_incomplete_whereabouts_says_what_to_add(text: str, complaint: str) -> None:
    """Neither the string nor the environment has the missing part."""
    with pytest.raises(ValueError, match=complaint):
        parse_settings(text, {})


def test_each_option_of_kafka_has_a_variable() -> None:
    """An unchanged string of Azure's then reaches brokers with TLS and passwords."""
    options: dict[str, tuple[str, str | Secret]] = {
        "KAFKABUS_SECURITY_PROTOCOL": ("security.protocol", "SASL_SSL"),
        "KAFKABUS_SASL_MECHANISM": ("sasl.mechanism", "PLAIN"),
        "KAFKABUS_SASL_USERNAME": ("sasl.username", "app"),
        "KAFKABUS_SASL_PASSWORD": ("sasl.password", Secret("hush")),
        "KAFKABUS_SSL_CA_LOCATION": ("ssl.ca.location", "ca.pem"),
        "KAFKABUS_SSL_CERTIFICATE_LOCATION": ("ssl.certificate.location", "app.pem"),
        "KAFKABUS_SSL_KEY_LOCATION": ("ssl.key.location", "app.key"),
        "KAFKABUS_SSL_KEY_PASSWORD": ("ssl.key.password", Secret("hush")),
    }
    environment = {name: reveal_text(value) for name, (_, value) in options.items()} | WHERE
    assert parse_settings(AZURE, environment).kafka_options == dict(options.values())


def test_variables_describe_the_brokers_of_the_environment() -> None:
    """A string that names brokers says itself how to reach them; its secrets may come from the environment all the same."""
    environment = {"KAFKABUS_SECURITY_PROTOCOL": "SSL", "KAFKABUS_SASL_PASSWORD": "hush", **WHERE}
    assert parse_settings(OURS, environment).kafka_options == {"sasl.password": Secret("hush")}


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    """A part or a variable names it. The newline at its end is no part of the secret, and a blank is."""
    file = tmp_path / "secret"
    for written, value in (("hush", "hush"), ("hush\n", "hush"), ("hush\r\n", "hush"), (" hu\nsh \n\n", " hu\nsh \n")):
        file.write_bytes(written.encode())
        for text, environment in (
            (f"{OURS};KafkaSaslPasswordFile={file}", {}),
            (OURS, {"KAFKABUS_SASL_PASSWORD_FILE": str(file)}),
            (f"{OURS};KafkaFile.sasl.password.of.mine={file}", {}),
        ):
            options = parse_settings(text, environment).kafka_options
            assert list(options.values()) == [Secret(value)]
            assert "hush" not in repr(options)


def test_the_url_of_redis_or_its_password_may_stand_in_a_file(tmp_path: Path) -> None:
    """A password in the URL comes first."""
    url, password = tmp_path / "url", tmp_path / "password"
    url.write_text("redis://app@c:3/0\n")
    password.write_text("p/w\n")
    whole = {"KAFKABUS_BOOTSTRAP_SERVERS": "a:1", "KAFKABUS_REDIS_URL_FILE": str(url)}
    assert parse_settings(AZURE, whole).redis_url == Secret("redis://app@c:3/0")
    for environment in (
        whole | {"KAFKABUS_REDIS_PASSWORD_FILE": str(password)},
        whole | {"KAFKABUS_REDIS_PASSWORD": "p/w"},
    ):
        assert parse_settings(AZURE, environment).redis_url == Secret("redis://app:p%2Fw@c:3/0")
    text = f"{AZURE};KafkaBootstrapServers=a:1;RedisFile={url};RedisPasswordFile={password}"
    assert parse_settings(text, {}).redis_url == Secret("redis://app:p%2Fw@c:3/0")
    assert parse_settings(f"{OURS};RedisPasswordFile={password}", {}).redis_url == Secret("redis://:pw=@c:3/0")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """An empty one and one that holds no text are named as well, and a secret that is given twice."""
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"hush\xff")
    for name, why in (("none", "No such file"), ("", "Is a directory"), ("empty", "is empty"), ("binary", "no text")):
        with pytest.raises(ValueError, match=rf"^KafkaSaslPasswordFile='{tmp_path / name}': .*{why}") as caught:
            parse_settings(f"{OURS};KafkaSaslPasswordFile={tmp_path / name}", {})
        assert "hush" not in str(caught.value)
        with pytest.raises(ValueError, match=rf"^KAFKABUS_SASL_PASSWORD_FILE=.*{why}"):
            parse_settings(OURS, {"KAFKABUS_SASL_PASSWORD_FILE": str(tmp_path / name)})
    with pytest.raises(ValueError, match="KafkaSaslPassword and KafkaSaslPasswordFile are both given"):
        parse_settings(f"{OURS};KafkaSaslPassword=x;KafkaSaslPasswordFile=y", {})


def test_options_of_kafkas_client_are_passed_on() -> None:
    """Their names are those of librdkafka, in any case of letters; any of them may be secret."""
    settings = parse_settings(
        f"{OURS};Kafka.sasl.oauthbearer.method=oidc;kafka.SSL.endpoint.identification.algorithm=none", {}
    )
    assert settings.kafka_options == {
        "sasl.oauthbearer.method": Secret("oidc"),
        "ssl.endpoint.identification.algorithm": Secret("none"),
    }


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        ("Kafka.acks=0", "Kafka.acks: kafkabus itself sets what is stored"),
        ("Kafka.isolation.level=read_uncommitted", "kafkabus itself sets"),
        ("Kafka.sasl.password=x", "Kafka.sasl.password: write KafkaSaslPassword instead"),
        ("Kafka.=x", "unknown"),
    ],
)
def test_options_that_decide_what_is_stored_are_not_passed_on(part: str, complaint: str) -> None:
    """Nor is an option that the connection string has another key for, such as the password."""
    with pytest.raises(ValueError, match=complaint):
        parse_settings(f"{OURS};{part}", {})


TOKENS = f"{OURS};KafkaSecurityProtocol=SASL_SSL;KafkaSaslMechanism=OAUTHBEARER"


class Credential:
    """As those of azure.identity."""

    def get_token(self, scope: str) -> str:
        """Return a token."""
        return f"token for {scope}"


class AsyncCredential:
    """As those of azure.identity.aio."""

    async def get_token(self, _scope: str) -> str:
        """Return a token."""
        return "token"


def test_tokens_have_a_provider() -> None:
    """A function, a credential, or Kafka's client itself. Without any the error names all three."""

    def provide() -> tuple[str, float]:
        return "token", 0.0

    assert parse_settings(TOKENS, {}, kafka_token_provider=provide).kafka_token_provider is provide
    assert parse_settings(f"{TOKENS};Kafka.sasl.oauthbearer.method=oidc", {}).kafka_token_provider is None
    assert parse_settings(OURS, {}, kafka_token_provider=provide).kafka_token_provider is None
    parts = parse_parts(TOKENS)
    for scope, more in (
        ("https://servicebus.azure.net/.default", {}),
        ("api://x", {"Kafka.sasl.oauthbearer.scope": "api://x"}),
    ):
        provider = settings_for("a.b", parts=parts | more, environment={}, credential=Credential()).kafka_token_provider
        assert provider is not None
        assert provider() == f"token for {scope}"
    for credential in (None, AsyncCredential()):
        with pytest.raises(ValueError, match=r"kafka_token_provider=.*get_token.*oauthbearer\.method=oidc"):
            settings_for("a.b", parts=parts, environment={}, credential=credential)
