"""A server that agrees on TLS with each client, and then says nothing."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafkabus.embedded.ports import HOST

PATIENCE = 5.0


@contextmanager
def speaking_tls(certificate: Path) -> Generator[int]:
    """Run the server with a certificate, in one file with its key; yield its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server((HOST, 0))
    thread = threading.Thread(target=_serve, args=(listener, context))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        # Wakes the thread that accepts.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        # A client that does not speak TLS gets an alert; one that says nothing is not waited for.
        client.settimeout(PATIENCE)
        with suppress(OSError), client, context.wrap_socket(client, server_side=True):
            pass
