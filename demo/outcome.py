"""The result of a run of the demo: what was sent, settled, and left."""

from __future__ import annotations

from dataclasses import dataclass

from demo.workers import Counts


@dataclass
class Outcome:
    """The result of a run of the demo.

    Attributes:
        sent: The number of messages whose send was acknowledged.
        counts: The totals of all receivers.
        left: The number of messages that are still in the queue.
        in_dead_letters: The number of messages in the dead-letter queue.
        send_seconds: The time from the first message sent to the last.
        settle_seconds: The time from the first message sent to the last one settled.
        each: The counts of each receiver.
    """

    sent: int
    counts: Counts
    left: int
    in_dead_letters: int
    send_seconds: float
    settle_seconds: float
    each: list[Counts]

    def differences(self) -> list[str]:
        """Return the differences between the counts; an empty list if they agree."""
        counts = self.counts
        found: list[str] = []
        if self.sent != counts.settled:
            found.append(
                f"{self.sent:,} sent, but {counts.completed:,} completed + {counts.dead_lettered:,} dead-lettered "
                f"= {counts.settled:,}: {self.sent - counts.settled:+,}"
            )
        if self.left:
            found.append(f"{self.left:,} messages are left in the queue")
        if self.in_dead_letters != counts.dead_lettered:
            found.append(
                f"{counts.dead_lettered:,} dead-lettered, but the dead-letter queue has {self.in_dead_letters:,}"
            )
        return found
