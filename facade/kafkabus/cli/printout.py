"""Printing of messages, and a report of those that were not read because the output was closed."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from array import array
from collections import deque
from collections.abc import Callable, Collection, Sequence
from fcntl import ioctl
from termios import FIONREAD
from typing import TYPE_CHECKING

from kafkabus.cli.exits import OutputClosed
from kafkabus.cli.terminal import escape_controls, flush

if TYPE_CHECKING:
    from kafkabus._core.message import ServiceBusReceivedMessage

GOING_MS = 1
"""How long a command waits for a reader such as ``head`` to close the pipe before it receives more, in milliseconds."""


class Printout:
    """Prints messages to the standard output.

    Args:
        text_of: A function that returns the printed text of a message.

    Attributes:
        may_close: Whether the output is a pipe or a terminal, which may close before the printed messages were read.
    """

    def __init__(self, text_of: Callable[[ServiceBusReceivedMessage], str]) -> None:
        self._text_of = text_of
        self._output = sys.stdout.fileno()
        mode = os.fstat(self._output).st_mode
        self._is_pipe = stat.S_ISFIFO(mode)
        self.may_close = self._is_pipe or stat.S_ISSOCK(mode) or os.isatty(self._output)
        self._closing = select.poll()
        self._closing.register(self._output, 0)
        self._written = 0
        self._end = 0
        self._unread: deque[tuple[int, ServiceBusReceivedMessage]] = deque()

    def print(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Print messages, one per line, and hand them over.

        Raises:
            OutputClosed: The reader is gone.
            OSError: The messages cannot be written, for example because the disk is full.
        """
        lines: list[bytes] = []
        for message in messages:
            lines.append(f"{self._text_of(message)}\n".encode(sys.stdout.encoding, "backslashreplace"))
            self._end += len(lines[-1])
            self._unread.append((self._end, message))
        flush()
        self._write(b"".join(lines))
        self._forget_read()
        if self._closing.poll(GOING_MS if self._is_pipe else 0):
            raise OutputClosed

    def _write(self, text: bytes) -> None:
        # Not through sys.stdout, which does not report how much was written before an error.
        view = memoryview(text)
        while view:
            try:
                count = os.write(self._output, view)
            except BrokenPipeError:
                raise OutputClosed from None
            self._written += count
            view = view[count:]

    def _forget_read(self) -> None:
        """Forget messages that were read from a pipe, or that were written to any other output."""
        waiting = array("i", [0])
        if self._is_pipe:
            with contextlib.suppress(OSError):
                ioctl(self._output, FIONREAD, waiting)
        while self._unread and self._unread[0][0] <= self._written - waiting[0]:
            self._unread.popleft()

    def tell_unread(self, kept: Collection[ServiceBusReceivedMessage] = ()) -> None:
        """Write the messages that were taken off the queue but not read to the standard error.

        Args:
            kept: Messages that are still in the queue, whether they were read or not.
        """
        self._forget_read()
        given_back = {message.sequence_number for message in kept}
        gone = [message for _, message in self._unread if message.sequence_number not in given_back]
        if not gone:
            return
        count = "1 message was" if len(gone) == 1 else f"{len(gone)} messages were"
        lines = [f"error: {count} taken off the queue and not read here:", *map(self._text_of, gone)]
        text = "".join(f"{line}\n" for line in lines)
        # If the standard error is closed as well, the report cannot be written.
        with contextlib.suppress(OSError):
            sys.stderr.write(escape_controls(text) if sys.stderr.isatty() else text)
            sys.stderr.flush()
