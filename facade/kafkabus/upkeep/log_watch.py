"""Noticing that logs of the tended entities grow."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kafkabus._async.context import ClientContext
from kafkabus.upkeep.entity_maintainer import EntityMaintainer

SOONEST = 0.5
"""How often, in seconds, to ask for the ends of logs if that takes no time."""
LATEST = 4.0
"""How often, in seconds, to ask for them at least."""
SHARE = 400
"""How many times as long as the brokers took to answer, to wait before they are asked again."""
CALM_LATEST = 60.0
"""How often, in seconds, to ask at least for the ends of logs in which nothing has happened for a while."""
STUCK_EVERY = 30.0
"""How often, in seconds, to look for logs with open transactions."""

_Seen: TypeAlias = "tuple[EntityMaintainer, str, Mapping[int, int]]"
"""The maintainer of an entity, the entity's topic, and the ends at which its logs were seen, by partition."""


class LogWatch:
    """Asks for the ends of all logs in few requests, now and then: the more logs there are, the less often.

    Of entities in which nothing has happened for a while, and in which a new message may wait, only some are asked for at a
    time, in turn. Senders notify upkeep of messages that do not wait.

    Args:
        context: The service's parts.

    Attributes:
        pause: How long to wait before the next look, in seconds.
        answered: Whether a broker answered at the last look.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._stuck_at = time.monotonic() + STUCK_EVERY
        self._took_per_entity = 0.0
        self._looked_at, self._next_calm = -math.inf, 0
        self.pause = SOONEST
        self.answered = False

    async def find_moved(self, maintainers: Iterable[EntityMaintainer]) -> list[EntityMaintainer]:
        """Return those whose entity's logs end elsewhere than when they last looked, or, now and then, have open transactions.

        Args:
            maintainers: The maintainers of the entities.

        Raises:
            ServiceBusError: Kafka cannot be reached.
        """
        began = time.monotonic()
        lively: list[EntityMaintainer] = []
        calm: list[EntityMaintainer] = []
        for maintainer in maintainers:
            if maintainer.entity and maintainer.ends:
                (calm if maintainer.is_calm(began) else lively).append(maintainer)
        calm = self._next_of(calm, began)
        # As they are now: a maintainer that looks during the request is woken once too often, and no end is missed.
        seen, seen_calm = _ends_seen(lively), _ends_seen(calm)
        ends = await self._ask(seen, stored=False)
        # Records of open transactions count here, so that one question is enough.
        stored = await self._ask(seen_calm, stored=True)
        self.answered = any(ends.values()) or any(stored.values())
        took = time.monotonic() - began
        self._took_per_entity = took / max(1, len(seen) + len(seen_calm))
        self.pause = min(LATEST, max(SOONEST, SHARE * took))
        moved = _elsewhere(seen, ends) + _elsewhere(seen_calm, stored)
        if began >= self._stuck_at:
            self._stuck_at = began + STUCK_EVERY
            moved += _elsewhere(
                [(maintainer, topic, ends.get(topic, {})) for maintainer, topic, _ in seen],
                await self._ask(seen, stored=True),
            )
        return moved

    def _next_of(self, calm: Sequence[EntityMaintainer], now: float) -> list[EntityMaintainer]:
        """Return those calm entities whose turn it is: as many as keep to the share of time, and each once a minute."""
        every = min(CALM_LATEST, max(self.pause, SHARE * self._took_per_entity * len(calm)))
        passed = min(every, now - self._looked_at)
        self._looked_at = now
        count = math.ceil(len(calm) * passed / every)
        first = self._next_calm % max(1, len(calm))
        self._next_calm = first + count
        return [*calm[first : first + count], *calm[: max(0, first + count - len(calm))]]

    async def _ask(self, seen: Iterable[_Seen], *, stored: bool) -> Mapping[str, Mapping[int, int]]:
        topics = {topic: len(ends) for _, topic, ends in seen}
        return await self._context.topics.ends_of(topics, stored=stored)


def _ends_seen(maintainers: Iterable[EntityMaintainer]) -> list[_Seen]:
    return [(maintainer, maintainer.entity.topic, maintainer.ends) for maintainer in maintainers if maintainer.entity]


def _elsewhere(seen: Iterable[_Seen], ends: Mapping[str, Mapping[int, int]]) -> list[EntityMaintainer]:
    """Return the maintainers of entities with a log that ends elsewhere than it was seen to end."""
    return [maintainer for maintainer, topic, own in seen if ends.get(topic, {}).items() - own.items()]
