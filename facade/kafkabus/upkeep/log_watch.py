"""Noticing that logs of the tended entities grow."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafkabus._async.context import ClientContext
from kafkabus.upkeep.entity_maintainer import EntityMaintainer

SOONEST = 0.5
"""How often, in seconds, to ask for the ends of logs if that takes no time."""
LATEST = 4.0
"""How often, in seconds, to ask for them at least."""
SHARE = 400
"""How many times as long as the brokers took to answer, to wait before they are asked again."""
STUCK_EVERY = 30.0
"""How often, in seconds, to look for logs with open transactions."""


class LogWatch:
    """Asks for the ends of all logs in one request, now and then: the more logs there are, the less often.

    Args:
        context: The service's parts.

    Attributes:
        pause: How long to wait before the next look, in seconds.
        answered: Whether a broker answered at the last look.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._stuck_at = time.monotonic() + STUCK_EVERY
        self.pause = SOONEST
        self.answered = False

    async def moved(self, maintainers: Iterable[EntityMaintainer]) -> list[EntityMaintainer]:
        """Return those whose entity's logs end elsewhere than when they last looked, or, now and then, have open transactions.

        Args:
            maintainers: The maintainers of the entities.

        Raises:
            ServiceBusError: Kafka cannot be reached.
        """
        context, began = self._context, time.monotonic()
        # As they are now: one that looks meanwhile is looked at once too often, and no end is missed.
        known = [(one, one.entity.topic, one.ends) for one in maintainers if one.entity and one.ends]
        topics = {topic: len(seen) for _, topic, seen in known}
        ends = await context.pool.run(context.topics.ends_of, topics)
        self.answered = any(ends.values())
        self.pause = min(LATEST, max(SOONEST, SHARE * (time.monotonic() - began)))
        moved = [one for one, topic, seen in known if ends.get(topic, {}).items() - seen.items()]
        if began >= self._stuck_at:
            self._stuck_at = began + STUCK_EVERY
            stored = await context.pool.run(context.topics.ends_of, topics, stored=True)
            moved += [one for one, topic, _ in known if stored.get(topic, {}).items() - ends.get(topic, {}).items()]
        return moved
