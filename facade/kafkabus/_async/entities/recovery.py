"""Entities whose ledgers, logs or topics are not what they were: what Redis lost is made anew, what Kafka lost is told."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NoReturn

from kafkabus._async.compat import all_of
from kafkabus._async.connections import Connections
from kafkabus._async.entities.catalog import EntityCatalog, missing
from kafkabus._async.stores.checkpoints import Checkpoints
from kafkabus._async.stores.entity_descriptions import DescriptionLock, EntityDescriptions
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._async.stores.session_states import SessionStates
from kafkabus._async.stores.transaction_markers import TransactionMarkers
from kafkabus._core.entity import INCARNATIONS, Entity, LedgersReplacedError
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusCommunicationError, ServiceBusError
from kafkabus._kafka.topic_admin import Topic
from kafkabus._ledger.operations import MARKS, Keep, Ledger, MarkName
from kafkabus._ledger.snapshot import Snapshot, Written
from kafkabus_mapping.entities import EntityDescription, EntityStatus, SubscriptionDescription
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus")


TOPIC_AGE = 5.0
"""How old, in seconds, the knowledge may be that an entity's topic is the same as before."""
TOPIC_TIMEOUT = 2.0
"""For how long, in seconds, it is asked for."""


class EntityRecovery:
    """What a client does where ledgers, logs or topics were lost, or went back.

    Args:
        connections: The client's.
        descriptions: Of all entities of the namespace.
        catalog: The client's entities.
        checkpoints: What was written down of ledgers.
        session_states: States of sessions.
        markers: What became of transactions.
        archive: Records that are kept apart from their logs.
    """

    def __init__(
        self,
        connections: Connections,
        descriptions: EntityDescriptions,
        catalog: EntityCatalog,
        *,
        checkpoints: Checkpoints,
        session_states: SessionStates,
        markers: TransactionMarkers,
        archive: RecordArchive,
    ) -> None:
        self._connections = connections
        self._descriptions = descriptions
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._session_states = session_states
        self._markers = markers
        self._archive = archive
        self._topics_seen: dict[str, float] = {}

    async def check_topic(self, entity: Entity) -> None:
        """Look, now and then, whether an entity's topic is still the one that its ledgers are about.

        One that was deleted and created again has other messages under the same offsets, and nobody would notice.

        Raises:
            MessagingEntityNotFoundError: It is another one.
        """
        now = time.monotonic()
        if now - self._topics_seen.get(entity.topic_id, -TOPIC_AGE) < TOPIC_AGE:
            return
        self._topics_seen[entity.topic_id] = now
        try:
            topic = await self._connections.pool.run(self._connections.topics.describe, entity.topic, TOPIC_TIMEOUT)
        except ServiceBusCommunicationError:
            return  # Whoever reads it says so.
        await self._check_own(entity, topic)

    async def _check_own(self, entity: Entity, topic: Topic | None) -> None:
        """Look whether a topic is the one that an entity's ledgers are about.

        Raises:
            MessagingEntityNotFoundError: It is another one.
        """
        if topic is not None and topic.topic_id != entity.topic_id:
            await self._go_on_with(topic, entity)

    async def _check_its_topic(self, entity: Entity) -> None:
        """Likewise, of the topic that has its topic's name now.

        Raises:
            MessagingEntityNotFoundError: It is another one, or gone.
        """
        topic = await self._connections.pool.run(self._connections.topics.describe, entity.topic)
        if topic is None:
            raise MessagingEntityNotFoundError(f"{entity.path} was deleted: its topic {entity.topic} is gone")
        await self._check_own(entity, topic)

    async def _go_on_with(self, topic: Topic, entity: Entity) -> NoReturn:
        """An entity's topic is another one: where nobody deleted the entity, it goes on with that, from its beginning.

        Raises:
            MessagingEntityNotFoundError: Always; who comes again is served.
        """
        path = entity.path
        async with self._turn_at(path.name) as lock:
            await self._take_over(topic, entity, lock)
        raise MessagingEntityNotFoundError(
            self._catalog.note_gone(entity, f"its topic {topic.name!r} is another one than before")
        )

    async def _take_over(self, topic: Topic, entity: Entity, lock: DescriptionLock | None) -> None:
        path, known = entity.path, await self._catalog.current_description(entity)
        if known is not None:
            if topic.partitions != entity.partitions:
                raise ServiceBusError(
                    f"topic {topic.name!r} was created anew with {topic.partitions} partitions, and {path} has "
                    f"{entity.partitions}: create the topic with as many, or delete the queue"
                )
            LOGGER.error(
                "lost_by_the_log entity=%s: its topic %s was deleted and created again behind our back; all that it held is "
                "lost, and the entity goes on with what the new one holds",
                path,
                topic.name,
            )
            await self._connections.pool.run(self._connections.topics.configure_entity, topic.name)
            if not path.is_dead_letter:
                known = known.over_topic(topic.topic_id)
                anew = self._anew(entity, known, topic.topic_id)
                if anew.subscription_filter is None:
                    await self._catalog.create_ledgers(anew.ledgers)
                else:
                    await self._begin_at(anew, dict.fromkeys(range(entity.partitions), 0))
                if lock is not None:
                    await lock.check()
                await self._descriptions.put(known)
            await self._connections.ledger_client.forget(entity.ledgers)
            await self._archive.drop_all(entity)

    def _turn_at(self, name: str) -> DescriptionLock | nullcontext[None]:
        """This client's turn at changing an entity's description; none where it is in it: then that may wait for this."""
        return nullcontext() if self._descriptions.is_changing(name) else self._descriptions.changing(name)

    async def recover_from_truncation(self, entity: Entity, partition: int, end: int | None) -> NoReturn:
        """One of an entity's logs was truncated: the entity goes on with new ledgers, which know of nothing that is gone.

        A claim or a settlement that somebody still has under way names offsets of the old log; it finds the old ledgers, or
        none.

        Args:
            entity: Which.
            partition: Of the log.
            end: From which offset on its records are others, or gone; None where nobody knows: all it holds comes again.

        Raises:
            MessagingEntityNotFoundError: The topic was deleted and created again.
            ServiceBusError: Always; who comes again is served.
        """
        # Where the topic is gone, or another one, its log is not a shorter one of this.
        await self._check_its_topic(entity)
        if end is not None:
            for other in await self._others_of_log(entity):
                if await self._knows_beyond(other, partition, end):
                    await self._cut(other, partition, end)
                    self._catalog.look_up_again(other)
        await self._cut(entity, partition, end)
        raise ServiceBusError(
            self._catalog.note_gone(entity, f"the log of its partition {partition} was truncated behind our back")
        )

    async def _others_of_log(self, entity: Entity) -> list[Entity]:
        """Who else has ledgers over an entity's log: a topic and its subscriptions."""
        if entity.subscription_filter is None and not entity.is_topic:
            return []
        topic = await self._catalog.entity(entity.log_path)
        return [one for one in (topic, *await self._catalog.readers_of(topic)) if one.path.key != entity.path.key]

    async def _knows_beyond(self, entity: Entity, partition: int, end: int) -> bool:
        """Whether anything is known of what an entity's log held from an offset on."""
        known = await self._catalog.current_description(entity)
        (state,) = await self._connections.ledger_client.states([entity.ledgers[partition]])
        return known is not None and (state is None or state.cursor > end or known.cut(partition, end) != known)

    async def _cut(self, entity: Entity, partition: int, end: int | None) -> None:
        """Have an entity go on where one of its logs was truncated."""
        if await self._catalog.current_description(entity) is not None:
            starts = await self._connections.pool.run(self._connections.topics.starts, entity.topic, [partition])
            upto = starts[partition] if end is None else end
            known = await self._archive.of(entity, partition)
            kept = {offset: one.due for offset, one in known.items() if offset < upto}

            def cut(where: int, snapshot: Snapshot) -> Snapshot:
                if where != partition:
                    return snapshot
                LOGGER.error(
                    "lost_by_the_log entity=%s partition=%d offsets=%s: the log was truncated",
                    entity.path,
                    partition,
                    [(upto, snapshot.cursor - 1)],
                )
                return snapshot.within(starts[partition], upto, kept)

            ends = await self._connections.pool.run(self._connections.topics.stored_ends, entity.topic, [partition])
            new_from = ends[partition] if end is None else end

            def described(description: EntityDescription) -> EntityDescription:
                # A dead-letter queue's logs are its own.
                return description if entity.path.is_dead_letter else description.cut(partition, new_from)

            await self._begin_anew(entity, cut, described)
            # Another message may have one of these offsets.
            await self._archive.drop(entity, partition, known.keys() - kept.keys())

    async def recover_from_rollback(self, entity: Entity, written: Mapping[int, Snapshot]) -> NoReturn:
        """Ledgers know less than was written down of them: the entity goes on with new ones that know both.

        Args:
            entity: Which.
            written: What was written down, by partition.

        Raises:
            ServiceBusError: Always; who comes again is served.
        """
        LOGGER.error(
            "redis_rolled_back entity=%s partitions=%s: what was settled stays settled; what was settled after it was "
            "written down last may come again",
            entity.path,
            sorted(written),
        )

        def mend(where: int, snapshot: Snapshot) -> Snapshot:
            earlier = written.get(where)
            # By transactions too that were committed since.
            return snapshot if earlier is None else replace(snapshot.merged(earlier), markers=earlier.markers)

        await self._begin_anew(entity, mend, lambda description: description)
        raise ServiceBusError(self._catalog.note_gone(entity, "Redis went back to an earlier state, as in a failover"))

    async def _begin_anew(
        self,
        entity: Entity,
        mend: Callable[[int, Snapshot], Snapshot],
        described: Callable[[EntityDescription], EntityDescription],
    ) -> None:
        """Make an entity's next generation, of what is true of this one; see docs/decisions/0013-generations.md.

        Args:
            entity: Which.
            mend: What is true of a partition's ledger.
            described: How the entity is described then, but for its generation.
        """
        async with self._turn_at(entity.path.name) as lock:
            known = await self._catalog.current_description(entity)
            if known is None:
                return
            keeps = [Keep(ledger, close=True) for ledger in entity.ledgers]
            await self._connections.ledger_client.execute(*keeps)
            member = INCARNATIONS[entity.path.sub_queue]
            latest = {member: getattr(known, member) + 1}
            known = known.model_copy(update=latest)
            mended = {keep.ledger.keys.prefix: mend(keep.ledger.partition, keep.snapshot) for keep in keeps}
            decided = (await self._markers.account_for(mended)).values()
            await self._make(
                entity, dict(zip(self._anew(entity, known, entity.topic_id).ledgers, decided, strict=True))
            )
            # What was changed meanwhile stays so.
            current = await self._catalog.current_description(entity)
            if current is None:
                return
            if lock is not None:
                await lock.check()
            await self._descriptions.put(described(current.model_copy(update=latest)))
        await self._connections.ledger_client.forget(entity.ledgers)

    async def needed_from(self, reader: Entity, ledger: Ledger) -> int:
        """From which offset on a ledger may need the records of its log, as its last checkpoint says; 0 without one.

        Args:
            reader: Whose ledger it is.
            ledger: It.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        snapshot = await self._checkpoints.read(ledger.keys.prefix)
        if snapshot is None:
            return 0
        needed = snapshot.watermark_without(await self._archive.of(reader, ledger.partition))
        window_start = await self.window_start(reader, ledger, snapshot)
        return needed if window_start is None else min(needed, window_start)

    async def window_start(self, entity: Entity, ledger: Ledger, snapshot: Snapshot) -> int | None:
        """The first offset whose id may still count for what is not judged yet; None where no duplicates are detected."""
        if snapshot.dedup_upto is None:
            return None
        topic, partition = entity.topic, ledger.partition
        end = (await self._connections.pool.run(self._connections.topics.ends, topic, [partition]))[partition]
        if end > snapshot.dedup_upto:
            records = await self._connections.offset_reader.read(
                topic, partition, snapshot.dedup_upto, min(end, snapshot.dedup_upto + 100) - 1
            )
            moment = records[0].timestamp()[1] if records else 0
        else:
            # What is stored from now on is newer than all that is there.
            newest = await self._connections.pool.run(self._connections.topics.newest, topic, [partition])
            moment = 0 if newest is None else newest
        starts = await self._connections.pool.run(
            self._connections.topics.offsets_at, topic, [partition], max(0, moment - entity.window_ms)
        )
        return starts[partition]

    def _anew(self, entity: Entity, description: EntityDescription, topic_id: str) -> Entity:
        """An entity's next generation."""
        return self._catalog.described(entity.path, description, entity.topic, topic_id)

    async def begin_subscription(self, entity: Entity) -> tuple[int, ...]:
        """Create a subscription's ledgers, which begin where its topic's logs end now; they outlive Redis from the start.

        Records of open transactions count: acknowledged messages may stand behind them.

        Returns:
            Where that is, by partition.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        ends = await self._connections.pool.run(
            self._connections.topics.stored_ends, entity.topic, range(entity.partitions)
        )
        await self._begin_at(entity, ends)
        return tuple(ends[ledger.partition] for ledger in entity.ledgers)

    async def _begin_at(self, entity: Entity, offsets: Mapping[int, int]) -> None:
        """Create a subscription's ledgers, which begin at these offsets, by partition."""
        markers, detects = await self._markers.end(), entity.detects_duplicates
        begun = {
            ledger: Snapshot(
                at := offsets[ledger.partition],
                1,
                has_message_ttl=True,
                dedup_upto=at if detects else None,
                markers=markers,
            )
            for ledger in entity.ledgers
        }
        await self._checkpoints.write({ledger.keys.prefix: snapshot for ledger, snapshot in begun.items()})
        await self._make(entity, begun)

    async def rebuild(self, ledgers: Sequence[Ledger]) -> dict[Ledger, ServiceBusError]:
        """Redis lost ledgers: go on from their last checkpoints, so that nothing is lost and little comes again.

        Returns:
            Why not, of those of which that cannot be.
        """
        failed: dict[Ledger, ServiceBusError] = {}
        places: dict[Ledger, Entity] = {}
        for ledger in ledgers:
            entity = self._catalog.owner_of(ledger)
            if entity is None:
                # It was deleted; or it was made to look at what Redis allows, and nobody waits for it.
                failed[ledger] = MessagingEntityNotFoundError(
                    f"{ledger.keys.prefix} is no ledger of an entity that is known"
                )
            else:
                places[ledger] = entity

        async def read(some: Sequence[Ledger]) -> dict[Ledger, Written | ServiceBusError]:
            # Each time, once the marks are set: an entity may be deleted meanwhile, or go on with other ledgers.
            entities = {id(places[ledger]): places[ledger] for ledger in some}
            reasons = await all_of(partial(self._why_not, entity) for entity in entities.values())
            not_anew = dict(zip(entities, reasons, strict=True))
            refused: dict[Ledger, Written | ServiceBusError] = {}
            wanted: dict[Ledger, Entity] = {}
            for ledger in some:
                reason = not_anew[id(places[ledger])]
                if reason is None:
                    wanted[ledger] = places[ledger]
                else:
                    refused[ledger] = reason
            return refused | await self._written(wanted, await self._last_checkpoints(wanted))

        rebuilt: defaultdict[EntityPath, dict[int, tuple[int, int]]] = defaultdict(dict)
        for ledger, made in (await self._connections.ledger_client.restore(list(places), read)).items():
            if isinstance(made, ServiceBusError):
                failed[ledger] = made
            elif made is not None:
                rebuilt[places[ledger].path][ledger.partition] = made.cursor, made.version
        for path, ledgers_of in rebuilt.items():
            LOGGER.warning(
                "ledgers_rebuilt entity=%s cursors=%s checkpoints=%s: Redis held no ledgers for these partitions, so messages "
                "that were settled since those versions (0: ever) may be delivered again",
                path,
                {partition: cursor for partition, (cursor, _) in sorted(ledgers_of.items())},
                {partition: version for partition, (_, version) in sorted(ledgers_of.items())},
            )
        return failed

    async def _why_not(self, entity: Entity) -> ServiceBusError | None:
        """Why an entity's ledgers are not to be made anew, or cannot be; None where they are to be."""
        try:
            await self._check_its_topic(entity)
            return None if await self._catalog.current_description(entity) is not None else await self._replaced(entity)
        except ServiceBusError as error:
            return error

    async def _replaced(self, entity: Entity) -> ServiceBusError:
        """Why an entity's ledgers are not to be made anew."""
        known = await self._descriptions.get(entity.path.name)
        if known is None or known.status is EntityStatus.DELETING:
            self._catalog.look_up_again(entity)
            return MessagingEntityNotFoundError(missing(entity.path, self._connections.settings.namespace))
        if known.generation != entity.description.generation:
            return MessagingEntityNotFoundError(self._catalog.note_gone(entity, "it was deleted and created again"))
        return LedgersReplacedError(
            self._catalog.note_gone(
                entity,
                "it has other ledgers since one of its logs was truncated, or Redis went back to an earlier state, as in a "
                "failover",
            )
        )

    async def _make(self, entity: Entity, snapshots: Mapping[Ledger, Snapshot]) -> None:
        """Make ledgers of an entity of what is known of them; those that are there stay.

        Raises:
            ServiceBusError: That failed, of some of them.
        """

        async def read(some: Sequence[Ledger]) -> dict[Ledger, Written | ServiceBusError]:
            return await self._written(dict.fromkeys(some, entity), {ledger: snapshots[ledger] for ledger in some})

        for made in (await self._connections.ledger_client.restore(list(snapshots), read)).values():
            if isinstance(made, ServiceBusError):
                raise made

    async def _written(
        self, places: Mapping[Ledger, Entity], snapshots: Mapping[Ledger, Snapshot | ServiceBusError]
    ) -> dict[Ledger, Written | ServiceBusError]:
        """All that ledgers are made of, where their snapshots are known, and whose each one is."""
        states = await self._session_states.read(places)
        names = {entity.path.name for entity in places.values()}
        described = {name: await self._descriptions.get(name) for name in names}

        async def written(ledger: Ledger) -> Written | ServiceBusError:
            entity, snapshot = places[ledger], snapshots[ledger]
            if isinstance(snapshot, ServiceBusError):
                return snapshot
            known = described[entity.path.name]
            told = () if known is None else marks_of(entity, known)
            try:
                window_start = await self.window_start(entity, ledger, snapshot)
            except ServiceBusError as error:
                return error
            return Written(snapshot.marked(told), states[ledger], window_start, _rules_version(entity, known))

        return dict(zip(places, await all_of(partial(written, ledger) for ledger in places), strict=True))

    async def _last_checkpoints(self, places: Mapping[Ledger, Entity]) -> dict[Ledger, Snapshot | ServiceBusError]:
        """What was written down of ledgers last, as far as it is true of their logs, and with what transactions did since."""
        found: dict[Ledger, Snapshot | ServiceBusError] = {}
        snapshots = await self._checkpoints.read_now(ledger.keys.prefix for ledger in places)
        starts: dict[Ledger, int] = {}
        for ledger, start in (await self._starts_of(places)).items():
            if isinstance(start, ServiceBusError):
                found[ledger] = start
            else:
                starts[ledger] = start
        kept = await self._archive.of_each({ledger: places[ledger] for ledger, start in starts.items() if start})
        true_ones: dict[str, Snapshot] = {}
        for ledger, start in starts.items():
            dedup_upto = start if places[ledger].detects_duplicates else None
            snapshot = snapshots[ledger.keys.prefix] or Snapshot(
                0, 0, has_message_ttl=True, dedup_upto=dedup_upto, markers=0
            )
            # Where the log ends before the cursor it was truncated: whoever reads on from there finds out where.
            due = {offset: one.due for offset, one in kept.get(ledger, {}).items()}
            true_ones[ledger.keys.prefix] = snapshot.within(start, kept=due)
        decided = await self._markers.account_for(true_ones)
        return found | {ledger: decided[ledger.keys.prefix] for ledger in starts}

    async def _starts_of(self, places: Mapping[Ledger, Entity]) -> dict[Ledger, int | ServiceBusError]:
        """Where logs begin."""
        partitions: defaultdict[str, set[int]] = defaultdict(set)
        for ledger, entity in places.items():
            partitions[entity.topic].add(ledger.partition)

        async def starts(topic: str) -> dict[int, int] | ServiceBusError:
            try:
                return await self._connections.pool.run(self._connections.topics.starts, topic, partitions[topic])
            except ServiceBusError as error:
                return error

        found = dict(zip(partitions, await all_of(partial(starts, topic) for topic in partitions), strict=True))
        return {
            ledger: its if isinstance(its := found[entity.topic], ServiceBusError) else its[ledger.partition]
            for ledger, entity in places.items()
        }

    def forget(self, entity: Entity) -> None:
        """Nobody asks for an entity any more, as it is gone, or another one."""
        self._topics_seen.pop(entity.topic_id, None)


def marks_of(entity: Entity, description: EntityDescription) -> list[MarkName]:
    """What an entity's ledgers have to know, as its description says; of a dead-letter queue, nothing becomes due there."""
    told: list[MarkName] = [name for name in MARKS if getattr(description, name)]
    return [name for name in told if name == "transacts"] if entity.path.is_dead_letter else told


def _rules_version(entity: Entity, description: EntityDescription | None) -> int:
    """Which version of a subscription's rules is the last one, whose change may be under way; 0 where it has none."""
    if entity.subscription_filter is None:
        return 0
    if not isinstance(description, SubscriptionDescription):
        return entity.rules_version
    return description.rules_version + (description.changing is not None)
