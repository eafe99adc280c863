"""A private authority, and certificates that it signs for servers of the gateway."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = timedelta(days=3650)
"""How long the authority is valid."""

_EARLIER = timedelta(hours=1)
"""By how much certificates are valid before they are made, for clients whose clocks are late."""
_LONGEST_COMMON_NAME = 64
_NAMED = "kafkabus private authority"
_PRIVATE = 0o600
_PUBLIC = 0o644


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of an authority and of a server's certificate, all in PEM.

    Attributes:
        authority: The authority's certificate, which clients trust.
        authority_key: The authority's key, with which further certificates are made.
        server: The server's certificate.
        server_key: The server's key.
    """

    authority: Path
    authority_key: Path
    server: Path
    server_key: Path

    @classmethod
    def in_folder(cls, folder: Path) -> CertificateFiles:
        """Return the files in a folder."""
        return cls(folder / "ca.pem", folder / "ca-key.pem", folder / "server.pem", folder / "server-key.pem")


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificate(
    folder: Path, hosts: Sequence[str], life: timedelta, now: datetime, *, replace: bool = False
) -> CertificateFiles:
    """Make a server's certificate, signed by the authority in the folder, which is made if there is none.

    Args:
        folder: The folder for the files; made if there is none.
        hosts: The names and addresses by which clients know the server, at least one.
        life: How long the certificate is valid, at most as long as its authority.
        now: The current time.
        replace: Whether to replace a certificate that is there.

    Raises:
        FileExistsError: There is a certificate, or its key.
        ValueError: A name breaks the rules of names, or the authority in the folder cannot sign; the error says why.
        OSError: A file cannot be read or written.
    """
    files = CertificateFiles.in_folder(folder)
    names = [_general_name(host) for host in hosts]
    if not replace:
        for path in (files.server, files.server_key):
            if path.exists():
                raise FileExistsError(f"{path} exists: choose another folder, or have it replaced")
    folder.mkdir(parents=True, exist_ok=True)
    authority = _authority(files, now)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _start_certificate(_common_name(hosts[0]), authority.certificate.subject, key, now)
        .not_valid_after(min(now + life, authority.certificate.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(_identifier_of(authority.key), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _write(files.server_key, _key_text(key), _PRIVATE)
    _write(files.server, certificate.public_bytes(Encoding.PEM), _PUBLIC)
    return files


def _authority(files: CertificateFiles, now: datetime) -> _Authority:
    """Return the authority in the folder, or a new one.

    Raises:
        ValueError: One of its two files is missing or malformed, they do not belong together, or it has expired.
    """
    known = [path for path in (files.authority, files.authority_key) if path.exists()]
    if not known:
        return _new_authority(files, now)
    if len(known) == 1:
        missing = files.authority_key if known == [files.authority] else files.authority
        raise ValueError(f"{known[0]} is there and {missing} is not: put it there, or choose another folder")
    try:
        certificate = x509.load_pem_x509_certificate(files.authority.read_bytes())
        key = load_pem_private_key(files.authority_key.read_bytes(), password=None)
    except (TypeError, ValueError):
        # The cause may show the key.
        raise ValueError(
            f"{files.authority} and {files.authority_key}: one of them is no certificate or no key without a password in PEM: "
            "choose another folder"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError(f"{files.authority_key} is not the key of {files.authority}: choose another folder")
    if certificate.not_valid_after_utc <= now:
        raise ValueError(
            f"{files.authority} expired on {certificate.not_valid_after_utc:%Y-%m-%d}: remove it and its key, and have clients "
            "trust the new one"
        )
    return _Authority(certificate, key)


def _new_authority(files: CertificateFiles, now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _common_name(_NAMED)
    certificate = (
        _start_certificate(name, name, key, now)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(_identifier_of(key), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(files.authority_key, _key_text(key), _PRIVATE)
    _write(files.authority, certificate.public_bytes(Encoding.PEM), _PUBLIC)
    return _Authority(certificate, key)


def _start_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _identifier_of(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _common_name(text: str) -> x509.Name:
    # A longer name is among the alternative names, which clients read.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_COMMON_NAME])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        # A label may begin with an asterisk, which matches any label.
        name = host.removeprefix("*.").encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"{host!r} is no name of a host: {error}; write a name such as gateway.example") from error
    if not name or any(character.isspace() or character in "/:@*" for character in name):
        raise ValueError(f"{host!r} is no name of a host: write a name such as gateway.example, or an address")
    return x509.DNSName(f"*.{name}" if host.startswith("*.") else name)


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file that has these rights from the beginning, in place of one that is there."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
    part.replace(path)
