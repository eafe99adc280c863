"""What the supervisor tells the process that started it: one JSON object per line."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["progress", "ready", "busy", "failed"]


@dataclass(frozen=True)
class Report:
    """One message.

    Attributes:
        kind: ``progress``: it goes on; ``ready``: everything serves; ``busy``: another supervisor
            has the data folder; ``failed``: it will not be. The last two are followed by the
            supervisor's end.
        text: More about it, for people.
    """

    kind: Kind
    text: str = ""

    def to_line(self) -> bytes:
        """Encode it."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Report:
        """Decode it."""
        return cls(**json.loads(line))


class Reporter:
    """The supervisor's end of the pipe.

    Args:
        pipe: The pipe's writing end.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def send(self, kind: Kind, text: str = "") -> None:
        """Tell the starter something; without effect when it is gone.

        Args:
            kind: What it is.
            text: More about it.
        """
        try:
            os.write(self._pipe, Report(kind, text).to_line())
        except BrokenPipeError:
            # The lifeline tells of the starter's end.
            return

    def progress(self, text: str) -> None:
        """Tell the starter what is being done.

        Args:
            text: What it is.
        """
        self.send("progress", text)

    def close(self) -> None:
        """Let go of the pipe, and put nothing in its place that could be written to by mistake."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self._pipe)
        os.close(null)
