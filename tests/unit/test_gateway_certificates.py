"""Certificates of the gateway: what clients accept, what is kept, and what is refused."""

from __future__ import annotations

import json
import ssl
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from kafkabus.cli.commands.certificate import app
from kafkabus.gateway.certificates import AUTHORITY_LIFE, CertificateFiles, make_certificate
from tests.certificates import Authority

NOW = datetime.now(timezone.utc)
MONTH = timedelta(days=30)


def shake_hands(files: CertificateFiles, host: str, authority: Path | None = None) -> None:
    """Shake hands as a strict client and the server do, without a socket."""
    shake(files.server, files.server_key, authority or files.authority, host)


def shake(certificate: Path, key: Path, authority: Path, host: str) -> None:
    """Shake hands as a strict client and a server with this certificate do."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cafile=str(authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)


def certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file."""
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "::1", "bus.example", "a.wild.example", "xn--bcher-kva.example"]
)
def test_strict_clients_accept_it(tmp_path: Path, host: str) -> None:
    """By each of its names and addresses, as Python since 3.13 checks certificates."""
    hosts = ["localhost", "127.0.0.1", "::1", "bus.example", "*.wild.example", "bücher.example"]
    shake_hands(make_certificate(tmp_path / "new" / "folder", hosts, MONTH, NOW), host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_strict_clients_accept_those_of_tests(tmp_path: Path, host: str) -> None:
    """Their own authority makes them as strict clients demand, too."""
    authority = Authority(tmp_path)
    made = authority.certify("server")
    shake(made.certificate, made.key, authority.file, host)


def test_other_names_are_refused(tmp_path: Path) -> None:
    """A client does not take it for another server."""
    files = make_certificate(tmp_path, ["localhost"], MONTH, NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        shake_hands(files, "bus.example")


def test_keys_are_private(tmp_path: Path) -> None:
    """No other user can read them, with any umask; certificates are public."""
    files = make_certificate(tmp_path, ["localhost"], MONTH, NOW)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (files.authority_key, files.server_key, files.authority)]
    assert modes == [0o600, 0o600, 0o644]
    assert len(list(tmp_path.iterdir())) == 4


def test_the_authority_signs_further_certificates(tmp_path: Path) -> None:
    """A certificate is replaced only on demand, and clients that trusted the authority need nothing new."""
    files = make_certificate(tmp_path, ["localhost"], MONTH, NOW)
    authority, first = files.authority.read_bytes(), files.server.read_bytes()
    with pytest.raises(FileExistsError, match="replaced"):
        make_certificate(tmp_path, ["localhost"], MONTH, NOW)
    assert files.server.read_bytes() == first
    make_certificate(tmp_path, ["bus.example"], MONTH, NOW, replace=True)
    assert (files.authority.read_bytes(), files.server.read_bytes() != first) == (authority, True)
    shake_hands(files, "bus.example")


def test_a_certificate_ends_with_its_authority(tmp_path: Path) -> None:
    """Clients would refuse it from then on."""
    files = make_certificate(tmp_path, ["localhost"], AUTHORITY_LIFE * 2, NOW)
    assert certificate(files.server).not_valid_after_utc == certificate(files.authority).not_valid_after_utc


def test_an_authority_that_cannot_sign_is_refused(tmp_path: Path) -> None:
    """Each error names the file and what to do, and none shows a key."""
    files = make_certificate(tmp_path / "a", ["localhost"], MONTH, NOW)
    other = make_certificate(tmp_path / "b", ["localhost"], MONTH, NOW)
    with pytest.raises(ValueError, match="expired"):
        make_certificate(tmp_path / "a", ["localhost"], MONTH, NOW + AUTHORITY_LIFE, replace=True)
    key = files.authority_key.read_bytes()
    for content, why in ((other.authority_key.read_bytes(), "is not the key of"), (b"no key", "one of them is")):
        files.authority_key.write_bytes(content)
        with pytest.raises(ValueError, match=why) as caught:
            make_certificate(tmp_path / "a", ["localhost"], MONTH, NOW, replace=True)
        assert caught.value.__cause__ is None
    files.authority_key.unlink()
    with pytest.raises(ValueError, match=r"ca\.pem is there and"):
        make_certificate(tmp_path / "a", ["localhost"], MONTH, NOW, replace=True)
    assert key.decode() not in str(caught.value)


@pytest.mark.parametrize("host", ["", "a b", "https://a", "a:1", "*", "a.*", "a..b", "x" * 64])
def test_names_that_are_none_are_refused(tmp_path: Path, host: str) -> None:
    """And nothing is made."""
    with pytest.raises(ValueError, match="no name of a host"):
        make_certificate(tmp_path / "new", [host], MONTH, NOW)
    assert not (tmp_path / "new").exists()


def test_the_command_prints_what_clients_need(tmp_path: Path) -> None:
    """A line for each language names the authority's file."""
    result = CliRunner().invoke(app, [str(tmp_path), "--host", "bus.example", "--days", "7"])
    assert result.exit_code == 0, result.output
    authority = str(tmp_path / "ca.pem")
    for word in ("connection_verify=", "NODE_EXTRA_CA_CERTS=", "SSL_CERT_FILE=", "keytool -importcert", ".NET"):
        assert any(word in line and authority in line for line in result.stdout.splitlines()), word
    ends = certificate(tmp_path / "server.pem").not_valid_after_utc
    assert ends - datetime.now(timezone.utc) < timedelta(days=7)
    assert "PRIVATE" not in result.output


def test_the_command_writes_json(tmp_path: Path) -> None:
    """For scripts, and with the hosts by default."""
    result = CliRunner().invoke(app, [str(tmp_path), "--json"])
    written = json.loads(result.stdout)
    assert set(written) == {"authority", "authority_key", "server", "server_key", "hosts"}
    assert written["hosts"][:3] == ["localhost", "127.0.0.1", "::1"]
    assert all(Path(path).exists() for name, path in written.items() if name != "hosts")
