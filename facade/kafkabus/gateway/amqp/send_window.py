"""The window of a session: how many frames with messages the peer takes, and the frames that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from kafkabus.gateway.amqp.output import Output
from kafkabus.gateway.amqp.performatives import Flow
from kafkabus.gateway.amqp.sent_numbers import NUMBERS
from kafkabus.gateway.amqp.usage import Usage


class SendingLink(Protocol):
    """A link that sends.

    Attributes:
        unsent: The contents of its settled deliveries that were not sent as a whole.
    """

    unsent: list[Any]

    def write_flow(self, *, drain: bool = False) -> None:
        """Send the link's credit to the peer."""


L = TypeVar("L", bound=SendingLink)


class SendWindow(Generic[L]):
    """The frames with messages of one session.

    Args:
        frames: How many frames the peer takes at first.
        output: The connection's output.
        usage: The connection's counters.

    Attributes:
        largest: The most frames that the peer has taken at once.
        reserved: How many frames are kept for messages that will be sent.
        next_frame: The number of the next frame.
    """

    def __init__(self, frames: int, output: Output, usage: Usage) -> None:
        self.largest = frames
        self.reserved = 0
        self.next_frame = 0
        self._frames = frames
        self._output = output
        self._usage = usage
        self._is_closed = False
        # Frames with the link that they are for, None for a flow that follows the frames before it; and with the content that
        # they end, if any.
        self._waiting: deque[tuple[L, bytes | None, Any]] = deque()
        # How many frames links wait for the peer to take.
        self._awaiting: dict[L, int] = {}

    @property
    def waiting(self) -> int:
        """How many frames wait until the peer takes more."""
        return len(self._waiting)

    @property
    def room(self) -> int:
        """How many frames the peer takes now beside those that are reserved."""
        return 0 if self._waiting else max(0, self._frames - self.reserved)

    def await_room(self, link: L, frames: int) -> None:
        """Have ``take_ready`` return a link once the peer takes so many frames."""
        self._awaiting[link] = frames

    def take_ready(self) -> list[L]:
        """Return the links for which the peer takes as many frames now as they wait for; they wait no more."""
        room = self.room
        ready = [link for link, frames in self._awaiting.items() if frames <= room] if room else []
        for link in ready:
            del self._awaiting[link]
        return ready

    def update(self, flow: Flow) -> None:
        """Take what the peer says of its window, and send the frames that waited for it."""
        known = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        ahead = (self.next_frame - known) % NUMBERS
        self._frames = max(0, flow.incoming_window - ahead)
        # A peer that has all that was sent takes no more at once than it says now.
        self.largest = max(self._frames, self.largest if ahead else 0)
        while self._waiting and (self._frames > 0 or self._waiting[0][1] is None):
            link, frame, content = self._waiting.popleft()
            if frame is None:
                link.write_flow(drain=True)
            else:
                self._usage.waiting_bytes -= len(frame)
                self._send(frame, content)

    def put(self, link: L, frame: bytes, content: Any = None) -> None:
        """Send a frame, once the peer takes it.

        Args:
            link: The link whose message it has.
            frame: The frame.
            content: The owner's note of the settled delivery that it ends; None without one.
        """
        if self._is_closed:
            if content is not None:
                link.unsent.append(content)
        elif self._waiting or self._frames <= 0:
            self._waiting.append((link, frame, content))
            self._usage.waiting_bytes += len(frame)
        else:
            self._send(frame, content)

    def put_flow(self, link: L) -> None:
        """Notify the peer that a link's credit is given up, behind the messages that used it."""
        if self._waiting:
            self._waiting.append((link, None, None))
        else:
            link.write_flow(drain=True)

    def _send(self, frame: bytes, content: Any) -> None:
        self._frames -= 1
        self.next_frame = (self.next_frame + 1) % NUMBERS
        self._output.add(frame, content)

    def remove(self, link: L) -> None:
        """Forget the frames of a link that is gone: another one may have its handle when there is room for them."""
        self._awaiting.pop(link, None)
        if any(other is link for other, _, _ in self._waiting):
            waiting, self._waiting = self._waiting, deque(each for each in self._waiting if each[0] is not link)
            self._give_up(each for each in waiting if each[0] is link)

    def clear(self) -> None:
        """Forget the frames that wait: the peer takes none any more."""
        waiting, self._waiting = self._waiting, deque()
        self._give_up(waiting)

    def close(self) -> None:
        """Forget the frames that wait, and send none any more."""
        self._is_closed = True
        self.clear()

    def _give_up(self, waiting: Iterable[tuple[L, bytes | None, Any]]) -> None:
        for link, frame, content in waiting:
            self._usage.waiting_bytes -= len(frame or b"")
            if content is not None:
                link.unsent.append(content)
