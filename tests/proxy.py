"""A TCP proxy that can be cut, or made deaf, between a client and a server."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from typing_extensions import Self


class Proxy:
    """Forwards connections to a server on this machine.

    Args:
        port: The server's port.
        own: The proxy's own port; a free one by default.

    Attributes:
        port: The proxy's own port.
        lose_replies: Whether what the server answers is thrown away, and the connection then closed.
        hangs: Whether nothing is forwarded any more, either way, while all connections stay open.
    """

    def __init__(self, port: int, own: int = 0) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", own))
        self.port: int = self._listener.getsockname()[1]
        self.lose_replies = self.hangs = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Wakes the thread that accepts, which then finds the listener closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def redirect(self, port: int) -> None:
        """Close all connections; new ones go to another port."""
        self._target = port
        self.cut()

    def cut(self) -> None:
        """Close all connections; new ones are accepted."""
        while self._open:
            _close(self._open.pop())

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        try:
            while data := source.recv(65536):
                if replies and self.lose_replies:
                    break
                if self.hangs:
                    continue
                sink.sendall(data)
        except OSError:
            pass  # The other side is gone, or the connection was cut: both ends are closed below.
        finally:
            _close(source)
            _close(sink)


def _close(connection: socket.socket) -> None:
    # It may be closed already.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
