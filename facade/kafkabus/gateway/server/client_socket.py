"""The socket of one client of a gateway: reading, writing, and the room for what is written."""

from __future__ import annotations

import asyncio
import logging
import sys
from fcntl import ioctl
from socket import SO_SNDBUF, SOL_SOCKET
from termios import TIOCOUTQ
from typing import Any, Final, Protocol, cast

from typing_extensions import override

from kafkabus._runtime.networks import network_of

LOGGER = logging.getLogger("kafkabus.gateway")

READ_WITHIN: Final = 300.0
"""How long, in seconds, a client may leave what was sent to it unread: as long as the longest lock of a message lasts.

Some clients read nothing while their application works on a message.
"""
CLOSED_WITHIN: Final = 2.0
"""How long, in seconds, a client may take to read the last bytes, and to answer, when its connection is closed."""
SHORTEST_LOOK, LONGEST_LOOK = 0.005, 0.25
"""How often it is seen, in seconds, whether a client that is slow takes more: at first, and at last."""


class SocketOwner(Protocol):
    """The owner of a socket."""

    def on_connect(self) -> None:
        """Begin: the client has connected."""

    def on_read(self, data: memoryview) -> None:
        """Take bytes of the client; their memory is used again afterwards."""

    def on_writable(self) -> None:
        """Note that the client has read what was sent to it."""

    def on_end_of_input(self) -> None:
        """Note that the client sends nothing more."""

    def on_lost(self, *, is_all_sent: bool) -> None:
        """Note that the connection is lost.

        Args:
            is_all_sent: Whether the operating system has got all bytes that were written.
        """


class ClientSocket(asyncio.BufferedProtocol):
    """The socket of one client.

    Args:
        owner: Notified of what happens.
        buffer: The memory into which bytes are read; other sockets use it as well.

    Attributes:
        name: The client's address and port, for logs.
        address: The client's address without its port.
        network: The network under which the client counts; see ``network_of``.
        transport: asyncio's transport; None before there is a connection.
        is_lost: Whether the connection is lost.
        can_write: Set while the client takes what is sent to it.
        last_read: The event loop's time when the last bytes came.
        reserved_bytes: How much of the room is kept for messages that will be sent.
        pauses: The reasons why nothing is read: for example, messages of the client are not stored yet.
    """

    def __init__(self, owner: SocketOwner, buffer: memoryview) -> None:
        self.name = self.address = "?"
        self.network = ""
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.reserved_bytes = 0
        self.pauses: set[str] = set()
        self._owner = owner
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self.last_read = self._loop.time()
        self._is_aborted = self._is_encrypted = False
        self._cut_off: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # Calls of asyncio.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None
        address = transport.get_extra_info("peername")
        self.address = str(address[0] if isinstance(address, tuple) else address)
        self.name = f"{self.address}:{address[1]}" if isinstance(address, tuple) else self.address
        self.network = network_of(address)
        self._owner.on_connect()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self.last_read = self._loop.time()
        self._owner.on_read(self._buffer[:nbytes])

    @override
    def pause_writing(self) -> None:
        self.can_write.clear()
        # Each request that was read would have an answer.
        self.pause("unread")
        self._await_reading()

    @override
    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self.can_write.set()
        self.resume("unread")
        self._owner.on_writable()

    @override
    def eof_received(self) -> None:
        self._owner.on_end_of_input()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._cut_off, self._unread):
            if timer is not None:
                timer.cancel()
        # Tasks that wait for room find the connection lost.
        self.can_write.set()
        self.is_lost = True
        # All that was written had gone out before the socket was closed.
        self._owner.on_lost(is_all_sent=exc is None and not self._is_aborted and not self._is_encrypted)

    # Reading.

    def pause(self, why: str) -> None:
        """Read nothing more for a reason."""
        if not self.pauses and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self.pauses.add(why)

    def resume(self, why: str) -> None:
        """Read on, unless there are other reasons not to."""
        if why in self.pauses:
            self.pauses.discard(why)
            if not self.pauses and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    # Writing.

    def write(self, data: bytes) -> None:
        """Send bytes, unless there is no connection."""
        if self.transport is not None:
            self.transport.write(data)

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be written."""
        return self.transport is None or self.transport.is_closing()

    @property
    def buffered_bytes(self) -> int:
        """How many bytes wait here until the operating system takes them."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def unsent_bytes(self) -> int:
        """How many bytes that were written the operating system does not have yet."""
        # Below TLS there is another transport, which only asyncio's private attributes give.
        below = getattr(getattr(self.transport, "_ssl_protocol", None), "_transport", None)
        return self.buffered_bytes + (0 if below is None else below.get_write_buffer_size())

    @property
    def room(self) -> int:
        """About how many bytes the operating system takes now beside those that are reserved."""
        if self.is_lost or self.transport is None or self.buffered_bytes:
            return 0
        # Of the buffer, half is for what the operating system notes beside the bytes.
        return max(0, int(self._socket.getsockopt(SOL_SOCKET, SO_SNDBUF)) // 2 - self._passing_bytes)

    @property
    def _socket(self) -> Any:
        return None if self.transport is None else self.transport.get_extra_info("socket")

    @property
    def _passing_bytes(self) -> int:
        """How many bytes are reserved, or wait in the operating system."""
        return self.reserved_bytes + int.from_bytes(ioctl(self._socket.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)

    def has_room_for(self, size: int) -> bool:
        """Return whether the operating system takes so many bytes now.

        It takes any number after it has passed on all that it got: a message that is larger than its buffer would never fit
        else.
        """
        room = self.room
        return room >= size or (room > 0 and not self._passing_bytes)

    async def wait_for_room(self, size: int) -> None:
        """Wait until the operating system takes so many bytes, or has passed on all that it got, or the connection is lost."""
        pause = SHORTEST_LOOK
        while not self.is_lost and not self.has_room_for(max(size, 1)):
            # There is no notification of bytes that it passes on while none waits here.
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK)

    async def wait_until_writable(self) -> None:
        """Wait until the client takes what is sent to it; another link of it may have been faster."""
        while not self.can_write.is_set():
            await self.can_write.wait()

    async def is_writable_within(self, seconds: float) -> bool:
        """Return whether the client takes what is sent to it within a time."""
        # Before Python 3.12, ``wait_for`` may pass over a cancellation.
        waiting = asyncio.ensure_future(self.wait_until_writable())
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            waiting.cancel()
        return self.can_write.is_set()

    def _await_reading(self) -> None:
        """Cut the connection off if the client reads nothing for a while."""
        self._unread = self._loop.call_later(READ_WITHIN, self._check_reading, self.buffered_bytes)

    def _check_reading(self, before: int) -> None:
        if self.buffered_bytes < before:
            self._await_reading()
        else:
            LOGGER.warning("does_not_read peer=%s within=%g", self.name, READ_WITHIN)
            self.abort()

    # Its end.

    def close(self) -> None:
        """Close the socket when all bytes were sent."""
        # A transport of TLS that is closed twice answers no question any more.
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def close_in_time(self, *, is_answered: bool) -> None:
        """Close the socket when all bytes were sent; cut off a client that does not read them, or does not answer.

        Args:
            is_answered: Whether the client has answered, so that it can be closed at once.
        """
        if self.transport is None or self.is_lost:
            return
        if self._cut_off is None:
            self._cut_off = self._loop.call_later(CLOSED_WITHIN, self.abort)
        if is_answered:
            self.close()

    def abort(self) -> None:
        """Close the socket at once: bytes that were not sent are lost."""
        self._is_aborted = True
        if self.transport is not None:
            self.transport.abort()
