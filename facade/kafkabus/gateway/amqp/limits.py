"""The bounds of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one connection.

    Attributes:
        frame_bytes: The largest frame.
        sessions: The most sessions.
        links: The most links, of all sessions together.
        message_bytes: The largest message, or batch of messages, that is kept; an entity may take less.
        partial_bytes: The most bytes of messages of which not all frames have come.
        attach_bytes: The most bytes in which the links that are attached were asked for.
        window: The most frames of a session that come before they are asked for again.
        idle_ms: After how many milliseconds without a frame the client is taken for gone.
    """

    frame_bytes: int = 65_536
    sessions: int = 5_000
    links: int = 5_000
    message_bytes: int = 1_114_112
    partial_bytes: int = 16_777_216
    attach_bytes: int = 4_194_304
    window: int = 5_000
    idle_ms: int = 120_000
