"""The bytes that the engine has to say: all parts of it write frames here, and its owner takes them."""

from __future__ import annotations

from typing import Any, Final

from kafkabus.gateway.amqp.frames import HEAD_BYTES, SASL_FRAME, SMALLEST_MAX_FRAME, frame_of
from kafkabus.gateway.amqp.performatives import Composite, fitted

# A transfer's frame takes 39: its head 8, the list 12, handle and number 5 each, the tag's length 2, seven fields 1 each.
# A disposition's takes 33: its head 8, the list 12, first and last number 5 each, three fields 1 each.
_FRAME_OVERHEAD: Final = 64
"""How many bytes are set aside for the frame of a transfer or a disposition, beside tag, state and payload."""


class Output:
    """The frames of one connection, until they are taken.

    Attributes:
        frame_bytes: The largest frame that the peer takes.
    """

    def __init__(self) -> None:
        self.frame_bytes = SMALLEST_MAX_FRAME
        self._frames: list[bytes] = []
        self._contents: list[Any] = []

    def payload_room(self, overhead: int) -> int:
        """Return how many bytes fit into a frame of a message or a disposition, beside the overhead of tag and state."""
        return self.frame_bytes - _FRAME_OVERHEAD - overhead

    def add(self, data: bytes, content: Any = None) -> None:
        """Add encoded frames, or a header.

        Args:
            data: The bytes.
            content: The owner's note of the settled delivery that they end; None without one.
        """
        self._frames.append(data)
        if content is not None:
            self._contents.append(content)

    def write(self, performative: Composite, channel: int = 0) -> None:
        """Add a frame; the description of its error is cut to what the peer takes."""
        self._frames.append(frame_of(channel, fitted(performative, self.frame_bytes - HEAD_BYTES)))

    def write_sasl(self, performative: Composite) -> None:
        """Add a frame of a login."""
        self._frames.append(frame_of(0, performative.encoded(), kind=SASL_FRAME))

    def take(self) -> bytes:
        """Return the bytes, and forget them."""
        data = b"".join(self._frames)
        self._frames.clear()
        return data

    def take_contents(self) -> list[Any]:
        """Return the notes of settled deliveries that were added as a whole, and forget them."""
        contents, self._contents = self._contents, []
        return contents

    def clear(self) -> None:
        """Forget the bytes."""
        self._frames.clear()
