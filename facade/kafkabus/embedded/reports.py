"""Reports of the supervisor to the process that started it: one JSON object per line."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["progress", "ready", "busy", "failed"]


@dataclass(frozen=True)
class Report:
    """A report.

    Attributes:
        kind: ``progress``: the start continues; ``ready``: everything serves; ``busy``: another
            supervisor uses the data folder; ``failed``: the start failed. After the last two the
            supervisor ends.
        text: Details for people.
    """

    kind: Kind
    text: str = ""

    def to_line(self) -> bytes:
        """Encode the report."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Report:
        """Decode a report."""
        return cls(**json.loads(line))


class Reporter:
    """The supervisor's end of the pipe.

    Args:
        pipe: The pipe's writing end.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def send(self, kind: Kind, text: str = "") -> None:
        """Send a report to the starter; without effect if the starter has ended.

        Args:
            kind: The kind of the report.
            text: Details for people.
        """
        try:
            os.write(self._pipe, Report(kind, text).to_line())
        except BrokenPipeError:
            # The lifeline notices the starter's end.
            return

    def progress(self, text: str) -> None:
        """Report the current step to the starter.

        Args:
            text: The step.
        """
        self.send("progress", text)

    def close(self) -> None:
        """Close the pipe, and keep its descriptor occupied, so that no other file can be written to by mistake."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self._pipe)
        os.close(null)
