"""The way of the engine's output to a client's socket, and the deleted messages that may not have gone out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kafkabus.gateway.amqp.output import Output
from kafkabus.gateway.server.client_socket import LONGEST_LOOK, ClientSocket
from kafkabus.gateway.server.undelivered import OnTheWay, Undelivered

SENT_AT_ONCE: Final = 256 * 1024
"""About how many bytes of messages are sent before it is seen whether the client takes them."""


class Outbox:
    """Sends what the engine of one client has to say.

    Args:
        output: The engine's output.
        socket: The client's socket.
        undelivered: Gets the deleted messages that the client does not get.
        on_flush: Called when output was written.
    """

    def __init__(
        self, output: Output, socket: ClientSocket, undelivered: Undelivered, on_flush: Callable[[], None]
    ) -> None:
        self._output = output
        self._socket = socket
        self._undelivered = undelivered
        self._on_flush = on_flush
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._unflushed = 0
        self._on_the_way = OnTheWay()
        self._look: asyncio.TimerHandle | None = None

    def flush(self) -> None:
        """Send what the engine has to say."""
        self._unflushed = 0
        output, contents = self._output.take(), self._output.take_contents()
        if output and not self._socket.is_closing:
            self._on_the_way.note(len(output), contents)
            self._socket.write(output)
            self.look_at_way()
        else:
            self._undelivered.put_all(contents)
        self._on_flush()

    def flush_soon(self) -> None:
        """Send what the engine has to say, together with what is said until then."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_scheduled = False
        self.flush()

    def add_message(self, size: int) -> None:
        """Send a message that the engine got; bytes go out before they become many, so that ``can_write`` reflects it."""
        self._unflushed += size
        if self._unflushed >= SENT_AT_ONCE:
            self.flush()
        else:
            self.flush_soon()

    def look_at_way(self) -> None:
        """Forget the messages that the operating system has; look again soon if it does not have all."""
        # A socket that fails forgets what it should send, so that this would look as if it had gone out.
        if self._on_the_way and not self._socket.is_closing:
            self._on_the_way.note_left(self._socket.unsent_bytes)
            self.stop_looking()
            if self._on_the_way:
                self._look = self._loop.call_later(LONGEST_LOOK, self.look_at_way)

    def stop_looking(self) -> None:
        """Look no more at what the operating system has."""
        if self._look is not None:
            self._look.cancel()

    def forget_sent(self) -> None:
        """Forget the messages that were written: all have gone out."""
        self._on_the_way.take()

    def give_up(self) -> None:
        """Have other clients get the messages that have not gone out: the connection is lost."""
        self._undelivered.put_all((*self._on_the_way.take(), *self._output.take_contents()))
