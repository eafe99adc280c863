"""Records given to a producer together, and what became of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from kafkabus_mapping import headers as h

SERVE_SLICE = 0.01
"""Longest time, in seconds, for which one waiter serves acknowledgements before it looks whether its own have come."""


UNKNOWN_OFFSET = -1
"""Offset of a record that is stored, where the broker did not say where."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was not acknowledged.

    Attributes:
        message_id: Its message id.
        error: What Kafka's client said.
    """

    message_id: str
    error: KafkaError

    @property
    def unknown(self) -> bool:
        """Whether the record may have been stored all the same: the broker got it and did not answer."""
        return self.error.code() in {KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}


class Parcel:
    """Records given to a producer together.

    Args:
        count: How many there are.
        keep_offsets: Whether the offsets at which they were stored are wanted.

    Attributes:
        failures: Records that were not acknowledged.
        stored: Partition and offset of each stored record in order of acknowledgement, where wanted.
    """

    __slots__ = ("_guard", "_keep_offsets", "_left", "_when_done", "failures", "stored")

    def __init__(self, count: int, *, keep_offsets: bool = False) -> None:
        self.failures: list[Failure] = []
        self.stored: list[tuple[int, int]] = []
        self._left = count
        self._keep_offsets = keep_offsets
        self._guard = threading.Lock()
        self._when_done: list[Callable[[], object]] = []

    @property
    def done(self) -> bool:
        """Whether each record was acknowledged or given up."""
        return self._left == 0

    def when_done(self, call: Callable[[], object]) -> None:
        """Call something once, from whichever thread serves acknowledgements, or at once where all is done."""
        with self._guard:
            if self._left:
                self._when_done.append(call)
                return
        call()

    def acknowledge(self, error: KafkaError | None, message: Message) -> None:
        """Kafka's client calls this for each record."""
        calls: list[Callable[[], object]] = []
        with self._guard:
            if error is not None:
                self.failures.append(Failure(_message_id(message), error))
            elif self._keep_offsets:
                offset = message.offset()
                self.stored.append((message.partition() or 0, UNKNOWN_OFFSET if offset is None else offset))
            self._left -= 1
            if self._left == 0:
                calls, self._when_done = self._when_done, calls
        for call in calls:
            call()


def _message_id(message: Message) -> str:
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]  # typed for producing too
    for name, value in headers:
        if name == h.MESSAGE_ID and value is not None:
            return value.decode(errors="replace")
    return "(no id)"
