"""Attempts to connect to a server, and to agree on TLS with it, without speaking its protocol."""

from __future__ import annotations

import socket
import ssl
from datetime import datetime, timezone

from kafkabus.doctor.facts import Handshake, Reached


def reach(host: str, port: int, timeout: float) -> Reached:
    """Look up a host's name, and connect to it.

    Args:
        host: The name, or an address.
        port: The port.
        timeout: How long a connection may take, in seconds; the look-up may take longer.
    """
    address = f"{host}:{port}"
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Reached(address, f"the name {host!r} is not known ({error.strerror})")
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError as error:
        return Reached(address, f"no connection to {address}: {_reason(error, timeout)}")
    return Reached(address)


def reach_path(path: str, timeout: float) -> Reached:
    """Connect to a socket in the file system.

    Args:
        path: The socket's path.
        timeout: How long that may take, in seconds.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(path)
        except OSError as error:
            return Reached(path, f"no connection to {path}: {_reason(error, timeout)}")
    return Reached(path)


def shake_hands(
    host: str,
    port: int,
    timeout: float,
    authority: str | None = None,
    identity: tuple[str, str | None, str | None] | None = None,
) -> Handshake:
    """Agree on TLS with a server, and check its certificate.

    Args:
        host: The server's name.
        port: Its port.
        timeout: How long each step may take, in seconds.
        authority: File of the certificate of the authority that signs; by default those that the system trusts.
        identity: Files of the client's own certificate and of its key, and the key's password; by default it has none.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        return Handshake(
            True, f"the file {authority!r} of the authority's certificate cannot be read: {error.strerror}"
        )
    if identity is not None:
        certificate, key, password = identity
        try:
            # Without a password, the terminal would be asked for one.
            context.load_cert_chain(certificate, key, password or "")
        except OSError as error:
            return Handshake(
                True, f"the client's certificate {certificate!r} and its key cannot be used: {error.strerror}"
            )
    try:
        with (
            socket.create_connection((host, port), timeout) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
        ):
            return Handshake(True, days_left=_days_left(secured))
    except ssl.SSLCertVerificationError as error:
        return Handshake(True, f"the certificate of {host}:{port} is refused: {error.verify_message}")
    except OSError as error:
        return Handshake(True, f"{host}:{port} does not answer in TLS: {_reason(error, timeout)}")


def speaks_tls(host: str, port: int, timeout: float) -> bool:
    """Return whether a server agrees on TLS, whatever its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent, and nothing is believed: only the answer to the first words counts.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout) as connection, context.wrap_socket(connection):
            return True
    except OSError:
        return False


def _days_left(secured: ssl.SSLSocket) -> float | None:
    certificate = secured.getpeercert() or {}
    ends = certificate.get("notAfter")
    if not isinstance(ends, str):
        return None
    now = datetime.now(timezone.utc).timestamp()
    return (ssl.cert_time_to_seconds(ends) - now) / 86_400


def _reason(error: OSError, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    return error.strerror or str(error)
