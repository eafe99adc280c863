"""A Redis with TLS, which asks clients for certificates, and users with the rights that the documentation gives them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.ports import HOST
from kafkabus.exceptions import ServiceBusCommunicationError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import format_connection_string, parse_parts
from tests.certificates import Authority
from tests.redis_server import program_with_tls, serving_tls
from tests.servers import scratch_folder


@dataclass
class Guarded:
    """A Redis with TLS.

    Attributes:
        port: Its port with TLS, which asks for certificates.
        open: Its port without.
        authority: Signs certificates.
    """

    port: int
    open: int
    authority: Authority

    def url(self, **options: str) -> str:
        """Return its URL with files of certificates."""
        return f"rediss://{HOST}:{self.port}/0?{'&'.join(f'{name}={value}' for name, value in options.items())}"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """A Redis of the module's own."""
    program = program_with_tls()
    if program is None:
        pytest.skip("no redis-server on the PATH has TLS: install Debian's (redis-server)")
    folder = scratch_folder()
    try:
        authority = Authority(folder)
        with serving_tls(program, folder / "redis", authority) as (port, administrators):
            yield Guarded(port, administrators, authority)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def use(connection_string: str) -> None:
    """Create a queue, send, and receive."""
    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
        ServiceBusClient.from_connection_string(connection_string) as client,
    ):
        administration.create_queue("orders")
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("one"))
        receiver = client.get_queue_receiver("orders")
        (message,) = receiver.receive_messages(1, max_wait_time=30)
        receiver.complete_message(message)


def test_certificates_on_both_sides(guarded: Guarded, untended: str, tmp_path: Path, runtime: RunningNamespace) -> None:
    """The URL names the files; it may be in a file itself."""
    assert runtime.redis_url in untended
    own = guarded.authority.certify("app")
    url = guarded.url(
        ssl_ca_certs=str(guarded.authority.file), ssl_certfile=str(own.certificate), ssl_keyfile=str(own.key)
    )
    (tmp_path / "url").write_text(f"{url}\n")
    parts = parse_parts(untended)
    del parts["Redis"]
    use(format_connection_string(parts | {"RedisFile": str(tmp_path / "url")}))


def test_an_unknown_authority_is_told(guarded: Guarded, untended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the reason that TLS gives."""
    monkeypatch.setattr("kafkabus._sync.redis.connection.REACHED_WITHIN", 0.0)
    string = format_connection_string(parse_parts(untended) | {"Redis": guarded.url()})
    with ServiceBusAdministrationClient.from_connection_string(string) as administration:
        with pytest.raises(ServiceBusCommunicationError, match=r"cannot be reached .*certificate verify failed"):
            administration.create_queue("orders")
