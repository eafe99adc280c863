"""Deleting entities that no client uses, if their creators said so."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone

from kafkabus._async.compat import run_uninterrupted
from kafkabus._async.context import ClientContext
from kafkabus._async.entities.catalog import DESCRIPTION_AGE
from kafkabus._core.entity import Entity
from kafkabus._ledger.keys import idle_key, receivers_key, refused_key
from kafkabus._ledger.operations import Claim, LedgerState
from kafkabus_mapping.entities import FOREVER, EntityDescription, SubscriptionDescription
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus.upkeep")

LOOK_EVERY = 2.0
"""How often, in seconds, to look whether an entity was used; less often if it is kept for long without use."""
GRACE = timedelta(seconds=90)
"""How long an entity is seen to refuse all clients before it is deleted: longer than the description that a client goes by may
be old, and longer than a send takes that began before that."""
SEEN = timedelta(seconds=DESCRIPTION_AGE + 1)
"""For how much of that, at least, the instance that deletes it has seen it itself, whatever the brokers' clock says."""
REMEMBERED = timedelta(days=1)
"""How long, beyond the time after which an entity is deleted, Redis remembers when it was last seen to be used."""


class Idleness:
    """Has one entity deleted after no client sent to it, received from it or changed it for as long as its description says.

    Sending to a topic is no use of its subscriptions; receiving from a subscription, or changing it, is use of the topic.

    Redis remembers, on the brokers' clock, since when an entity has not been used; if Redis loses that, the time begins again.

    Args:
        context: The service's parts.

    Attributes:
        next_at: When to look again, on the monotonic clock.
    """

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.next_at = math.inf
        self._look_at = 0.0
        self._refused: tuple[datetime, float] | None = None

    async def look(self, entity: Entity) -> None:
        """Take one step, if one is due: refuse all clients, relent, or delete.

        Args:
            entity: The entity.

        Raises:
            ServiceBusError: Kafka or Redis cannot be reached.
        """
        description = entity.description
        if entity.path.is_dead_letter or (
            description.auto_delete_on_idle >= FOREVER and description.retiring_at is None
        ):
            self.next_at = math.inf
            return
        if time.monotonic() < self._look_at:
            return
        patience = LOOK_EVERY
        if description.retiring_at is None:
            patience = max(LOOK_EVERY, min(60.0, _limit(entity).total_seconds() / 100))
        self.next_at = self._look_at = time.monotonic() + patience
        idle = await self._is_idle(entity)
        if description.retiring_at is None:
            if idle:
                LOGGER.info("idle entity=%s: not used for %s, it will be deleted", entity.path, _limit(entity))
                await self._retire(entity, datetime.now(timezone.utc))
        elif not idle:
            LOGGER.info("idle entity=%s: used again", entity.path)
            await self._retire(entity, None)
        # Looked at once more, after all clients were refused for so long.
        elif (
            await self._refusal_time(entity, description.retiring_at) >= _ms(GRACE)
            and await self._is_idle(entity)
            and await self._is_current(entity)
        ):
            LOGGER.warning("deleted entity=%s: it was not used for %s", entity.path, _limit(entity))
            # The service stops tending this entity, and cancels this task, as soon as the deletion begins.
            await run_uninterrupted(self._context.maintenance.lifecycle.delete(description))

    async def _is_idle(self, entity: Entity) -> bool:
        """Return whether no client has used the entity for as long as its description says."""
        context, limit = self._context, entity.description.auto_delete_on_idle
        # The time is asked for first, so that nothing that is looked at is older.
        now, locked = await self._ask(entity)
        if now is None:
            return False
        states = await context.ledger_client.states(entity.ledgers)
        # Records of open transactions count: they may be acknowledged while it is deleted.
        ends = await context.topics.stored_ends(entity.topic, range(entity.partitions))
        scheduled = any(state is not None and state.scheduled for state in states)
        used_at = await self._used_at(entity, states, ends, now)
        return limit < FOREVER and not (locked or scheduled) and now - used_at >= _ms(limit)

    async def _refusal_time(self, entity: Entity, since: datetime) -> int:
        """Return for how many milliseconds all clients are seen to be refused since a time; 0 if that is new here."""
        key = refused_key(entity.namespace, entity.path)
        if self._refused is None or self._refused[0] != since:
            self._refused = since, time.monotonic()
        now, _ = await self._ask(entity)
        if now is None:
            return 0
        refused_for = now - await self._context.ledger_client.find_last_change(
            key, since.isoformat(), now, GRACE + REMEMBERED
        )
        # The brokers' clock may be set during this wait.
        return refused_for if time.monotonic() - self._refused[1] >= SEEN.total_seconds() else 0

    async def _retire(self, entity: Entity, retiring_at: datetime | None) -> None:
        descriptions = self._context.descriptions
        async with descriptions.lock_for_change(entity.path.name) as lock:
            known = await descriptions.get(entity.path.name)
            if known is not None and _is_described_so(entity, known):
                await lock.check()
                await descriptions.put(known.model_copy(update={"retiring_at": retiring_at}))

    async def _is_current(self, entity: Entity) -> bool:
        """Return whether the description is still the current one."""
        known = await self._context.descriptions.get(entity.path.name)
        return known is not None and _is_described_so(entity, known)

    async def _ask(self, entity: Entity) -> tuple[int | None, bool]:
        """Return the time on the brokers' clock, None if that is not known now; and whether anything is locked."""
        claims = [Claim.poll(ledger) for ledger in entity.ledgers]
        await self._context.ledger_client.execute(*claims)
        locked = any(claim.granted.due_in is not None for claim in claims)
        return await self._context.stores.clock_skew.now_ms(entity, 0), locked

    async def _used_at(
        self, entity: Entity, states: Sequence[LedgerState | None], ends: Mapping[int, int], now: int
    ) -> int:
        """Return since when nothing has changed that any use would change."""
        context, description = self._context, entity.description
        # Upkeep passes over messages that a subscription does not want.
        passed_over = isinstance(description, SubscriptionDescription) and description.forward_to is None
        known = [
            None if state is None else (0 if passed_over else state.cursor, state.in_flight, state.scheduled)
            for state in states
        ]
        sent = [] if isinstance(description, SubscriptionDescription) else sorted(ends.items())
        receiving = [description, *await context.catalog.subscriptions_of(description)]
        used = [await self._receivers_of(entity.namespace, receiver) for receiver in receiving]
        seen = repr((entity.generation, sent, known, used))
        return await context.ledger_client.find_last_change(
            idle_key(entity.namespace, entity.path),
            hashlib.blake2b(seen.encode(), digest_size=16).hexdigest(),
            now,
            description.auto_delete_on_idle + REMEMBERED,
        )

    async def _receivers_of(self, namespace: str, description: EntityDescription) -> object:
        """Return a value that changes once a client received from an entity or changed it."""
        path = EntityPath(description.name)
        # A forwarder receives all the time.
        receiving = {
            path: description.forward_to is None,
            path.dead_letter: description.forward_dead_lettered_messages_to is None,
            path.transfer_dead_letter: True,
        }
        heard = [
            await self._context.ledger_client.last_heartbeat(receivers_key(namespace, source))
            for source, counts in receiving.items()
            if counts
        ]
        return heard, description.model_copy(update={"retiring_at": None}).to_text()


def _is_described_so(entity: Entity, known: EntityDescription) -> bool:
    """Return whether an entity was made of this description."""
    return entity.with_description(known).description == entity.description


def _limit(entity: Entity) -> timedelta:
    return entity.description.auto_delete_on_idle


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
