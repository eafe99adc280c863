"""Certificates for the servers of tests and their clients, signed by an authority of a test's own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from kafkabus.embedded.ports import HOST

_LIFE = timedelta(days=1)
_MAY_SIGN = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key, in files in PEM.

    Attributes:
        certificate: File of the certificate.
        key: File of the key.
        both: File of key and certificate.
    """

    certificate: Path
    key: Path
    both: Path


class Authority:
    """An authority that signs certificates for this machine.

    Args:
        folder: An existing folder for files.

    Attributes:
        file: File of the authority's own certificate.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority of a test")
        self.file = folder / "authority.pem"
        own = (
            self._unsigned(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_MAY_SIGN, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(own.public_bytes(Encoding.PEM))

    def certify(self, name: str, password: str | None = None) -> Certificate:
        """Return a certificate of a server on this machine, or of a user of that name.

        Args:
            name: The common name.
            password: The password of the key, or None.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
        signed = (
            self._unsigned(_named(name), key)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        locked: KeySerializationEncryption = NoEncryption()
        if password is not None:
            locked = BestAvailableEncryption(password.encode())
        files = Certificate(*(self._folder / f"{name}.{end}" for end in ("pem", "key", "both")))
        files.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
        files.both.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
        return files

    def _unsigned(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _LIFE)
            .not_valid_after(now + _LIFE)
            # Python since 3.13 demands both.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
