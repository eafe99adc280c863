"""A Kafka that authenticates its clients: by passwords, by certificates, by tokens; with TLS."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._kafka import errors
from kafkabus.exceptions import ServiceBusAuthenticationError, ServiceBusCommunicationError, ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import format_connection_string, parse_parts
from tests.kafka_server import PASSWORD, USER, Guarded
from tests.servers import REACHED_WITHIN

KEY_PASSWORD = "open sesame"
OIDC_SECRET = "hush"


@dataclass
class Door:
    """A namespace behind one listener of the broker.

    Attributes:
        parts: The parts of its connection string.
        folder: A folder for files.
    """

    parts: dict[str, str]
    folder: Path

    def string(self, servers: str, **parts: str) -> str:
        """Return the connection string for a listener, with these parts besides."""
        return format_connection_string(self.parts | {"KafkaBootstrapServers": servers} | parts)

    def with_tokens(self, kafka: Guarded) -> str:
        """Return the connection string for the listener that takes tokens."""
        return self.string(
            kafka.tls,
            KafkaSecurityProtocol="SASL_SSL",
            KafkaSaslMechanism="OAUTHBEARER",
            KafkaSslCaLocation=str(kafka.authority.file),
        )

    def secret(self, name: str, text: str) -> str:
        """Write a secret into a file, as an editor does, and return the file's name."""
        (self.folder / name).write_text(f"{text}\n")
        return str(self.folder / name)


@pytest.fixture
def door(untended: str, tmp_path: Path) -> Door:
    """An empty namespace."""
    return Door(parse_parts(untended), tmp_path)


def use(connection_string: str, **arguments: Any) -> None:
    """Create a queue, send, also in a transaction, and receive."""
    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string, **arguments) as administration,
        ServiceBusClient.from_connection_string(connection_string, **arguments) as client,
    ):
        administration.create_queue("orders")
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        sender.send_messages(ServiceBusMessage("one"))
        with client.transaction() as transaction:
            sender.send_messages(ServiceBusMessage("two"), transaction=transaction)
        got: list[str] = []
        while len(got) < 2:
            messages = receiver.receive_messages(2, max_wait_time=30)
            assert messages
            receiver.complete_messages(messages)
            got += map(str, messages)
        assert got == ["one", "two"]


def token_of(user: str, seconds: float = 3600) -> tuple[str, float]:
    """Return a token without a signature, and when it expires."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + seconds})
    words = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{'.'.join(words)}.", now + seconds


@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param("PLAIN", marks=pytest.mark.extended),
        pytest.param("SCRAM-SHA-256", marks=pytest.mark.extended),
        "SCRAM-SHA-512",
    ],
)
def test_a_password_from_a_file_through_tls(kafka: Guarded, door: Door, mechanism: str) -> None:
    """SASL_SSL with each mechanism that takes a password. The newline at the file's end is no part of it."""
    use(
        door.string(
            kafka.tls,
            KafkaSecurityProtocol="SASL_SSL",
            KafkaSaslMechanism=mechanism,
            KafkaSaslUsername=USER,
            KafkaSaslPasswordFile=door.secret("password", PASSWORD),
            KafkaSslCaLocation=str(kafka.authority.file),
        )
    )


def test_a_certificate_of_the_client(kafka: Guarded, door: Door) -> None:
    """SSL on both sides: the broker knows the user by the name in the certificate, whose key has a password in a file."""
    own = kafka.authority.certify(USER, KEY_PASSWORD)
    use(
        door.string(
            kafka.mutual,
            KafkaSecurityProtocol="SSL",
            KafkaSslCaLocation=str(kafka.authority.file),
            KafkaSslCertificateLocation=str(own.certificate),
            KafkaSslKeyLocation=str(own.key),
            KafkaSslKeyPasswordFile=door.secret("key-password", KEY_PASSWORD),
        )
    )


def test_tokens_from_a_function(kafka: Guarded, door: Door) -> None:
    """OAUTHBEARER: each client of Kafka asks for a token."""
    use(door.with_tokens(kafka), kafka_token_provider=lambda: token_of(USER))


@pytest.mark.extended
def test_tokens_that_expire(kafka: Guarded, door: Door) -> None:
    """Kafka's client asks for another token before the last one expires; the test waits for that."""
    asked: list[float] = []

    def provide() -> tuple[str, float]:
        asked.append(time.monotonic())
        return token_of(USER, seconds=4)

    string = door.with_tokens(kafka)
    with ServiceBusAdministrationClient.from_connection_string(string, kafka_token_provider=provide) as administration:
        administration.create_queue("orders")
        count, deadline = len(asked), time.monotonic() + 60
        while len(asked) == count:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        administration.create_queue("invoices")


class _Credential:
    """A credential like those of azure.identity."""

    def __init__(self) -> None:
        self.scopes: list[str] = []

    def get_token(self, scope: str) -> Any:
        """Return a token."""
        self.scopes.append(scope)
        token, expires_on = token_of(USER)
        return type("AccessToken", (), {"token": token, "expires_on": int(expires_on)})()


@pytest.mark.extended
def test_a_function_that_fails_is_told(kafka: Guarded, door: Door) -> None:
    """The error has the function's. Kafka's client, for which the test waits, gives it ten seconds."""

    def provide() -> tuple[str, float]:
        raise OSError("the vault is closed")

    with ServiceBusAdministrationClient.from_connection_string(
        door.with_tokens(kafka), kafka_token_provider=provide
    ) as administration:
        with pytest.raises(ServiceBusAuthenticationError, match=r"the vault is closed; see to kafka_token_provider"):
            administration.create_queue("orders")


@pytest.mark.extended
def test_tokens_of_a_credential(kafka: Guarded, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The credential of azure.identity that an application passes anyway; Kafka's addresses and options are variables."""
    monkeypatch.setenv("KAFKABUS_BOOTSTRAP_SERVERS", kafka.tls)
    monkeypatch.setenv("KAFKABUS_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("KAFKABUS_SASL_MECHANISM", "OAUTHBEARER")
    monkeypatch.setenv("KAFKABUS_SSL_CA_LOCATION", str(kafka.authority.file))
    monkeypatch.setenv("KAFKABUS_REDIS_URL", door.parts["Redis"])
    host, credential = door.parts["Endpoint"].removeprefix("sb://").rstrip("/"), _Credential()
    with ServiceBusAdministrationClient(host, credential) as administration:
        administration.create_queue("orders")
    assert set(credential.scopes) == {"https://servicebus.azure.net/.default"}


@contextmanager
def identity_provider() -> Generator[str]:
    """Run a server that gives tokens to those who know the secret, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Answer a request for a token."""
            known = f"Basic {base64.b64encode(f'{USER}:{OIDC_SECRET}'.encode()).decode()}"
            ok = self.headers["Authorization"] == known
            body = json.dumps({"access_token": token_of(USER)[0], "expires_in": 3600} if ok else {"error": "who?"})
            self.send_response(200 if ok else 401)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.extended
def test_kafkas_client_asks_for_tokens_itself(kafka: Guarded, door: Door) -> None:
    """OpenID Connect: options of Kafka's client are passed on, and one that is secret comes from a file."""
    with identity_provider() as address:
        parts = {
            "KafkaSecurityProtocol": "SASL_SSL",
            "KafkaSaslMechanism": "OAUTHBEARER",
            "KafkaSslCaLocation": str(kafka.authority.file),
            "Kafka.sasl.oauthbearer.method": "oidc",
            "Kafka.sasl.oauthbearer.client.id": USER,
            "KafkaFile.sasl.oauthbearer.client.secret": door.secret("client-secret", OIDC_SECRET),
            "Kafka.sasl.oauthbearer.token.endpoint.url": address,
        }
        use(door.string(kafka.tls, **parts))


@pytest.mark.extended
def test_missing_certificates_are_told_apart(kafka: Guarded, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which part names the file: of the authority, or of the client. The test waits for both errors."""
    monkeypatch.setattr(errors, "REACHED_WITHIN", REACHED_WITHIN)
    tls = {"KafkaSecurityProtocol": "SSL"}
    for parts, named in (
        (tls, "KafkaSslCaLocation"),
        (tls | {"KafkaSslCaLocation": str(kafka.authority.file)}, "KafkaSslCertificateLocation"),
    ):
        with ServiceBusAdministrationClient.from_connection_string(
            door.string(kafka.mutual, **parts)
        ) as administration:
            with pytest.raises(ServiceBusCommunicationError, match=named):
                administration.create_queue("orders")


def test_options_that_kafkas_client_refuses_are_told(kafka: Guarded, door: Door) -> None:
    """A file that holds no certificate, a wrong password of a key, an option that does not exist."""
    own = kafka.authority.certify("locked", KEY_PASSWORD)
    pair = {"KafkaSslCertificateLocation": str(own.certificate), "KafkaSslKeyLocation": str(own.key)}
    for parts in (
        {"KafkaSslCaLocation": door.secret("nothing.pem", "no certificate")},
        pair | {"KafkaSslKeyPassword": "guessed"},
        {"Kafka.ssl.no.such.option": "guessed"},
    ):
        string = door.string(kafka.mutual, KafkaSecurityProtocol="SSL", **parts)
        with ServiceBusAdministrationClient.from_connection_string(string) as administration:
            with pytest.raises(ServiceBusError, match="Kafka's client refuses its options") as caught:
                administration.create_queue("orders")
        assert "guessed" not in str(caught.value)
