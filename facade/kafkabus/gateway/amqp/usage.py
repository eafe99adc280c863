"""Counters of what a peer makes the engine keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Usage:
    """The state that the engine keeps for a connection's peer, of all sessions together.

    Attributes:
        partial_bytes: The bytes of messages of which not all frames have come.
        waiting_bytes: The bytes of frames that wait until the peer's sessions take more.
        attach_bytes: The bytes in which the links that exist were asked for.
        links: The number of links.
        unsettled: The number of deliveries that were sent and are not settled.
        unanswered: The number of links that were detached, which the peer has not answered.
    """

    partial_bytes: int = 0
    waiting_bytes: int = 0
    attach_bytes: int = 0
    links: int = 0
    unsettled: int = 0
    unanswered: int = 0
