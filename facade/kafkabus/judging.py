# Generated from facade/kafkabus/aio/judging.py by tools/generate_blocking.py. Do not edit.
"""Finding the duplicates among what nobody has read yet, where somebody looks at it before it is received."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkabus.detection import judge
from kafkabus.entity import Entity

if TYPE_CHECKING:
    from kafkabus.services import Services

LOGGER = logging.getLogger("kafkabus")

JUDGE_FOR = 1.0
"""For how long, in seconds, that is done in one partition before what it is done for."""
JUDGED_AT_ONCE = 2_000
"""How many records are looked at in one go."""
LOOK_BACK = 100
"""How many offsets before them are looked at: whether those are still the records that were judged."""


def judge_on(services: Services, entity: Entity, partition: int, at: int, end: int, seconds: float) -> int:
    """Find the duplicates in one partition, as far as that goes within a time.

    Args:
        services: The client's connections.
        entity: Whose records are looked at.
        partition: Where.
        at: Up to which offset that is known, as far as the caller knows.
        end: Up to where it is to be known, at the most where the log ends.
        seconds: How long that may take.

    Returns:
        Up to which offset it is known now which records are duplicates.

    Raises:
        ServiceBusError: Kafka or Redis cannot be reached, or the entity is gone.
    """
    until = time.monotonic() + seconds
    if at < end and services.courier.is_full():
        # What is settled needs room, too.
        return at
    while at < end and time.monotonic() < until:
        upto = min(end, at + JUDGED_AT_ONCE)
        records = services.points.read(entity.topic, partition, max(0, at - LOOK_BACK), upto - 1)
        one = judge(entity, partition, at, upto, records)
        services.courier.ask(one)
        at = one.judged
        if one.torn is not None:
            # Whoever reads on from the cursor finds out from where on.
            LOGGER.warning("torn entity=%s partition=%d judged=%d: its log was truncated", entity.path, partition, at)
            break
    return at


def judge_all(services: Services, entity: Entity, partitions: Sequence[int], seconds: float) -> None:
    """Likewise in several partitions, up to their ends; nothing where no duplicates are detected."""
    if not entity.detects_duplicates:
        return
    states = services.courier.states([entity.ledgers[partition] for partition in partitions])
    ends = services.pool.run(services.topics.ends, entity.topic, partitions)
    for partition, state in zip(partitions, states, strict=True):
        at = 0 if state is None or state.judged is None else state.judged
        judge_on(services, entity, partition, at, ends[partition], seconds)
