"""A message that was accepted can be delivered; ``python -m tests.faults.fuzz_messages`` tries for longer."""

from __future__ import annotations

from tests.effort import SEED, effort
from tests.faults.fuzz_messages import WAYS_OUT, fuzz, in_memory


async def test_no_message_is_lost_or_keeps_another_one_back() -> None:
    """Made-up messages come in by every way and out by every way; it takes seconds to bring them through all of these."""
    with in_memory() as place:
        became = await fuzz(place, SEED, rounds=effort(1, 20))
    assert min(became[f"out by {way}"] for way in WAYS_OUT) > 30, became
    assert min(became[f"{way} took"] for way in ("link", "batch", "schedule", "SDK", "producer")) > 5, became
    assert min(became[f"{way} refused"] for way in ("link", "batch", "schedule", "SDK")) > 5, became
