"""Recovery of entities: ledgers that Redis lost are rebuilt, records that Kafka lost are reported."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from kafkabus._async.compat import all_of
from kafkabus._async.connections import Connections
from kafkabus._async.entities.catalog import EntityCatalog, missing_text
from kafkabus._async.stores.checkpoints import Checkpoints
from kafkabus._async.stores.entity_descriptions import DescriptionLock, EntityDescriptions
from kafkabus._async.stores.postponements import Postponements
from kafkabus._async.stores.record_archive import RecordArchive
from kafkabus._async.stores.session_states import SessionStates
from kafkabus._async.stores.transaction_markers import TransactionMarkers
from kafkabus._core.entity import Entity, LedgersReplacedError
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusCommunicationError, ServiceBusError
from kafkabus._kafka.topic_admin import Topic
from kafkabus._ledger.operations import MARKS, Ledger, MarkName, TakeSnapshot
from kafkabus._ledger.snapshot import Snapshot, Written
from kafkabus._runtime import instruments
from kafkabus_mapping.entities import INCARNATIONS, EntityDescription, EntityStatus, SubscriptionDescription
from kafkabus_mapping.names import EntityPath

LOGGER = logging.getLogger("kafkabus")


TOPIC_AGE, CALM_TOPIC_AGE = 5.0, 30.0
"""How old, in seconds, the knowledge may be that an entity's topic is the same as before; and if nothing happens there."""
TOPIC_TIMEOUT = 2.0
"""For how long, in seconds, brokers are asked for the topic."""


@dataclass(slots=True)
class _TopicRead:
    """A topic that the client reads.

    Attributes:
        name: Its name.
        topic_id: The id of the topic that its ledgers are about.
        read_at: When a caller read it last, on the monotonic clock.
        age: How old, in seconds, the knowledge of it may be.
        asked_at: When the brokers were asked for it last.
        is_doubted: Whether it may be another one than before.
    """

    name: str
    topic_id: str
    read_at: float = 0.0
    age: float = TOPIC_AGE
    asked_at: float = -math.inf
    is_doubted: bool = False


class EntityRecovery:
    """Recovers a client's entities whose ledgers, logs or topics were lost, or went back to an earlier state.

    Args:
        connections: The client's.
        descriptions: The descriptions of all entities of the namespace.
        catalog: The client's entities.
        checkpoints: The checkpoints of ledgers.
        session_states: The states of sessions.
        markers: Looks up whether a transaction was committed.
        archive: Records that are kept apart from their logs.
        postponements: The delays of messages that applications asked for.
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
        postponements: Postponements,
    ) -> None:
        self._connections = connections
        self._descriptions = descriptions
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._session_states = session_states
        self._markers = markers
        self._archive = archive
        self._postponements = postponements
        self._topics_read: dict[str, _TopicRead] = {}

    async def check_topic(self, entity: Entity, *, calm: bool = False) -> None:
        """Check, now and then, whether an entity's topic is still the one that its ledgers are about.

        A topic that was deleted and created again has other messages under the same offsets, which no client would notice.

        Args:
            entity: The entity.
            calm: Whether nothing has happened there for a while, so that rarer checks are enough.

        Raises:
            MessagingEntityNotFoundError: The topic is another one.
        """
        now = time.monotonic()
        own = self._topics_read.setdefault(entity.topic_id, _TopicRead(entity.topic, entity.topic_id))
        own.read_at, own.age = now, CALM_TOPIC_AGE if calm else TOPIC_AGE
        try:
            if now - own.asked_at >= own.age:
                await self._ask_for_topics(now)
            if not own.is_doubted:
                return
            own.is_doubted = False
            topic = await self._connections.topics.describe(entity.topic, TOPIC_TIMEOUT)
        except ServiceBusCommunicationError:
            return  # A client that reads the topic reports this.
        await self._check_own(entity, topic)

    async def _ask_for_topics(self, now: float) -> None:
        """Ask the brokers, in one request, for the topics that are read and have not been asked for lately.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        due = [
            topic
            for topic in list(self._topics_read.values())
            if now - topic.read_at < topic.age + TOPIC_AGE and now - topic.asked_at >= topic.age / 2
        ]
        if not due:
            return  # Another thread has just asked.
        for topic in due:
            # Before anything is awaited: of several callers, one asks.
            topic.asked_at = now
        connections, names = self._connections, [topic.name for topic in due]
        try:
            found = await connections.topics.describe_all(names, TOPIC_TIMEOUT)
        except ServiceBusCommunicationError:
            raise
        except ServiceBusError:
            # Kafka may refuse one of them: each is asked for by itself.
            for topic in due:
                topic.is_doubted = True
        else:
            for topic in due:
                topic.is_doubted = topic.name in found and found[topic.name].topic_id != topic.topic_id

    async def _check_own(self, entity: Entity, topic: Topic | None) -> None:
        """Check whether a topic is the one that an entity's ledgers are about.

        Raises:
            MessagingEntityNotFoundError: The topic is another one.
        """
        if topic is not None and topic.topic_id != entity.topic_id:
            await self._go_on_with(topic, entity)

    async def _check_its_topic(self, entity: Entity) -> None:
        """Check whether the topic that now has the name of an entity's topic is the one that its ledgers are about.

        Raises:
            MessagingEntityNotFoundError: The topic is another one, or gone.
        """
        topic = await self._connections.topics.describe(entity.topic)
        if topic is None:
            raise MessagingEntityNotFoundError(f"{entity.path} was deleted: its topic {entity.topic} is gone")
        await self._check_own(entity, topic)

    async def _go_on_with(self, topic: Topic, entity: Entity) -> NoReturn:
        """Have an entity whose topic was replaced go on with the new one, from its beginning, unless the entity was deleted.

        Raises:
            MessagingEntityNotFoundError: Always raised; retry the call.
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
                    f"topic {topic.name!r} was created again with {topic.partitions} partitions, and {path} has "
                    f"{entity.partitions}: create the topic with as many, or delete the queue"
                )
            LOGGER.error(
                "lost_by_the_log entity=%s: its topic %s was deleted and created again behind our back; all that it held is "
                "lost, and the entity goes on with what the new one holds",
                path,
                topic.name,
            )
            await self._connections.topics.configure_entity(topic.name)
            if not path.is_dead_letter:
                known = known.with_topic(topic.topic_id)
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
        """Return the turn at changing an entity's description; none if this client has it: its holder may wait for this."""
        return nullcontext() if self._descriptions.is_changing(name) else self._descriptions.lock_for_change(name)

    async def recover_from_truncation(self, entity: Entity, partition: int, end: int | None) -> NoReturn:
        """Have an entity, one of whose logs was truncated, go on with new ledgers, which know nothing of records that are gone.

        A claim or a settlement that a client still has under way names offsets of the old log; it finds the old ledgers, or
        none.

        Args:
            entity: The entity.
            partition: The partition of the log.
            end: The offset from which on its records are others, or gone; None if unknown: all that it holds comes again.

        Raises:
            MessagingEntityNotFoundError: The topic was deleted and created again.
            LedgersReplacedError: Always raised after recovery; receivers go on with the new ledgers.
        """
        # If the topic is gone, or is another one, its log is no truncation of this one.
        await self._check_its_topic(entity)
        if end is not None:
            for other in await self._others_of_log(entity):
                if await self._knows_beyond(other, partition, end):
                    await self._cut(other, partition, end)
                    self._catalog.look_up_again(other)
        await self._cut(entity, partition, end)
        raise LedgersReplacedError(
            self._catalog.note_gone(entity, f"the log of its partition {partition} was truncated behind our back")
        )

    async def _others_of_log(self, entity: Entity) -> list[Entity]:
        """Return the other entities that have ledgers over an entity's log: of a topic and its subscriptions."""
        if entity.subscription_filter is None and not entity.is_topic:
            return []
        topic = await self._catalog.entity(entity.log_path)
        return [
            reader for reader in (topic, *await self._catalog.readers_of(topic)) if reader.path.key != entity.path.key
        ]

    async def _knows_beyond(self, entity: Entity, partition: int, end: int) -> bool:
        """Return whether anything is known of records that an entity's log held from an offset on."""
        known = await self._catalog.current_description(entity)
        (state,) = await self._connections.ledger_client.states([entity.ledgers[partition]])
        return known is not None and (state is None or state.cursor > end or known.cut(partition, end) != known)

    async def _cut(self, entity: Entity, partition: int, end: int | None) -> None:
        """Have an entity go on after one of its logs was truncated."""
        if await self._catalog.current_description(entity) is not None:
            starts = await self._connections.topics.starts(entity.topic, [partition])
            upto = starts[partition] if end is None else end
            known = await self._archive.find_archived(entity, partition)
            kept = {offset: archived.due for offset, archived in known.items() if offset < upto}

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

            ends = await self._connections.topics.stored_ends(entity.topic, [partition])
            new_from = ends[partition] if end is None else end

            def cut_description(description: EntityDescription) -> EntityDescription:
                # A dead-letter queue's logs are its own.
                return description if entity.path.is_dead_letter else description.cut(partition, new_from)

            await self._begin_anew(entity, cut, cut_description)
            # Another message may have one of these offsets.
            await self._archive.drop(entity, partition, known.keys() - kept.keys())

    async def recover_from_rollback(self, entity: Entity, written: Mapping[int, Snapshot]) -> NoReturn:
        """Have an entity whose ledgers know less than their checkpoints go on with new ledgers that know both.

        Args:
            entity: The entity.
            written: The checkpoints of its ledgers, by partition.

        Raises:
            LedgersReplacedError: Always raised after recovery; receivers go on with the new ledgers.
        """
        LOGGER.error(
            "redis_rolled_back entity=%s partitions=%s: what was settled stays settled; what was settled after it was "
            "written down last may come again",
            entity.path,
            sorted(written),
        )

        def mend(where: int, snapshot: Snapshot) -> Snapshot:
            earlier = written.get(where)
            # Transactions that were committed since then count, too.
            return snapshot if earlier is None else replace(snapshot.merged(earlier), markers=earlier.markers)

        await self._begin_anew(entity, mend, lambda description: description)
        raise LedgersReplacedError(
            self._catalog.note_gone(entity, "Redis went back to an earlier state, as in a failover")
        )

    async def _begin_anew(
        self,
        entity: Entity,
        mend: Callable[[int, Snapshot], Snapshot],
        described: Callable[[EntityDescription], EntityDescription],
    ) -> None:
        """Make an entity's next generation, of the state that is true of this one; see docs/decisions/0013-generations.md.

        Args:
            entity: The entity.
            mend: Returns the true state of a partition's ledger.
            described: Returns the new description of the entity, but for its generation.
        """
        async with self._turn_at(entity.path.name) as lock:
            known = await self._catalog.current_description(entity)
            if known is None:
                return
            keeps = [TakeSnapshot(ledger, close=True) for ledger in entity.ledgers]
            await self._connections.ledger_client.execute(*keeps)
            await self._connections.ledger_client.add_changes(keeps)
            member = INCARNATIONS[entity.path.sub_queue]
            latest = {member: getattr(known, member) + 1}
            known = known.model_copy(update=latest)
            mended = {keep.ledger.keys.prefix: mend(keep.ledger.partition, keep.snapshot) for keep in keeps}
            decided = (await self._account_for_news(mended)).values()
            await self._make(
                entity, dict(zip(self._anew(entity, known, entity.topic_id).ledgers, decided, strict=True))
            )
            # Changes that clients made since then stay.
            current = await self._catalog.current_description(entity)
            if current is None:
                return
            if lock is not None:
                await lock.check()
            await self._descriptions.put(described(current.model_copy(update=latest)))
        await self._connections.ledger_client.forget(entity.ledgers)

    async def first_needed_offset(self, reader: Entity, ledger: Ledger) -> int:
        """Return the offset from which on a ledger may need its log's records, as its last checkpoint says; 0 without one.

        Args:
            reader: The entity of the ledger.
            ledger: The ledger.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        snapshot = await self._checkpoints.read(ledger.keys.prefix)
        if snapshot is None:
            return 0
        needed = snapshot.watermark_without(await self._archive.find_archived(reader, ledger.partition))
        window_start = await self.window_start(reader, ledger, snapshot)
        return needed if window_start is None else min(needed, window_start)

    async def window_start(self, entity: Entity, ledger: Ledger, snapshot: Snapshot) -> int | None:
        """Return the first offset whose id may count for records not judged yet; None if the entity detects no duplicates."""
        if snapshot.dedup_upto is None:
            return None
        topic, partition = entity.topic, ledger.partition
        end = (await self._connections.topics.ends(topic, [partition]))[partition]
        if end > snapshot.dedup_upto:
            records = await self._connections.offset_reader.read(
                topic, partition, snapshot.dedup_upto, min(end, snapshot.dedup_upto + 100) - 1
            )
            moment = records[0].timestamp()[1] if records else 0
        else:
            # Records that are stored from now on are newer than all that are there.
            newest = await self._connections.topics.newest(topic, [partition])
            moment = 0 if newest is None else newest
        starts = await self._connections.topics.offsets_at(topic, [partition], max(0, moment - entity.window_ms))
        return starts[partition]

    def _anew(self, entity: Entity, description: EntityDescription, topic_id: str) -> Entity:
        """Return an entity's next generation."""
        return self._catalog.make_entity(entity.path, description, entity.topic, topic_id)

    async def begin_subscription(self, entity: Entity) -> tuple[int, ...]:
        """Create a subscription's ledgers, which begin where its topic's logs end now; they outlive Redis from the start.

        Records of open transactions count: acknowledged messages may be stored behind them.

        Returns:
            The offsets at which the ledgers begin, by partition.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        ends = await self._connections.topics.stored_ends(entity.topic, range(entity.partitions))
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
        """Rebuild ledgers that Redis lost from their last checkpoints, so that nothing is lost and little comes again.

        Returns:
            The errors of the ledgers that cannot be made.
        """
        failed: dict[Ledger, ServiceBusError] = {}
        places: dict[Ledger, Entity] = {}
        for ledger in ledgers:
            entity = self._catalog.owner_of(ledger)
            if entity is None:
                # Its entity was deleted; or ``check_rights`` made the ledger, for which no caller waits.
                failed[ledger] = MessagingEntityNotFoundError(
                    f"{ledger.keys.prefix} is no ledger of an entity that is known"
                )
            else:
                places[ledger] = entity

        async def read(asked: Sequence[Ledger]) -> dict[Ledger, Written | ServiceBusError]:
            # Each time, once the marks are set: an entity may have been deleted, or have gone on with other ledgers.
            entities = {_identity(places[ledger]): places[ledger] for ledger in asked}
            reasons = await all_of(partial(self._why_not, entity) for entity in entities.values())
            not_anew = dict(zip(entities, reasons, strict=True))
            refused: dict[Ledger, Written | ServiceBusError] = {}
            wanted: dict[Ledger, Entity] = {}
            for ledger in asked:
                reason = not_anew[_identity(places[ledger])]
                if reason is None:
                    wanted[ledger] = places[ledger]
                else:
                    refused[ledger] = reason
            return refused | await self._gather_written(wanted, await self._last_checkpoints(wanted))

        rebuilt: defaultdict[EntityPath, dict[int, tuple[int, int]]] = defaultdict(dict)
        for ledger, made in (await self._connections.ledger_client.restore(list(places), read)).items():
            if isinstance(made, ServiceBusError):
                failed[ledger] = made
            elif made is not None:
                rebuilt[places[ledger].path][ledger.partition] = made.cursor, made.version
        _tell_rebuilt(rebuilt)
        return failed

    async def _why_not(self, entity: Entity) -> ServiceBusError | None:
        """Return why an entity's ledgers are not to be rebuilt, or cannot be; None if they are to be."""
        try:
            await self._check_its_topic(entity)
            return (
                None
                if await self._catalog.current_description(entity) is not None
                else await self._replacement_error(entity)
            )
        except ServiceBusError as error:
            return error

    async def _replacement_error(self, entity: Entity) -> ServiceBusError:
        """Return why an entity's ledgers are not to be rebuilt."""
        known = await self._descriptions.get(entity.path.name)
        if known is None or known.status is EntityStatus.DELETING:
            self._catalog.look_up_again(entity)
            return MessagingEntityNotFoundError(missing_text(entity.path, self._connections.settings.namespace))
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
        """Make ledgers of an entity from their snapshots; ledgers that exist stay.

        Raises:
            ServiceBusError: Some of the ledgers could not be made.
        """

        async def read(asked: Sequence[Ledger]) -> dict[Ledger, Written | ServiceBusError]:
            return await self._gather_written(
                dict.fromkeys(asked, entity), {ledger: snapshots[ledger] for ledger in asked}
            )

        for made in (await self._connections.ledger_client.restore(list(snapshots), read)).values():
            if isinstance(made, ServiceBusError):
                raise made

    async def _gather_written(
        self, places: Mapping[Ledger, Entity], snapshots: Mapping[Ledger, Snapshot | ServiceBusError]
    ) -> dict[Ledger, Written | ServiceBusError]:
        """Return all that ledgers are made of, by their entities and snapshots; an error for each one without a snapshot."""
        states = await self._session_states.read(places)
        names = {entity.path.name for entity in places.values()}
        described = {name: await self._descriptions.get(name) for name in names}

        async def gather(ledger: Ledger) -> Written | ServiceBusError:
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

        return dict(zip(places, await all_of(partial(gather, ledger) for ledger in places), strict=True))

    async def _last_checkpoints(self, places: Mapping[Ledger, Entity]) -> dict[Ledger, Snapshot | ServiceBusError]:
        """Return the last checkpoints of ledgers, up to where they are true of the logs, with what transactions did since."""
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
                0, 0, has_message_ttl=True, dedup_upto=dedup_upto, markers=0, written_at=0
            )
            # If the log ends before the cursor, it was truncated: the receiver that reads on from there finds out where.
            due = {offset: archived.due for offset, archived in kept.get(ledger, {}).items()}
            true_ones[ledger.keys.prefix] = snapshot.within(start, kept=due)
        decided = await self._account_for_news(true_ones)
        return found | {ledger: decided[ledger.keys.prefix] for ledger in starts}

    async def _account_for_news(self, snapshots: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
        """Return snapshots with what other topics say of their messages since: outcomes of transactions, and delays."""
        return await self._postponements.account_for(await self._markers.account_for(snapshots))

    async def _starts_of(self, places: Mapping[Ledger, Entity]) -> dict[Ledger, int | ServiceBusError]:
        """Return the first offsets of ledgers' logs, or errors."""
        partitions: defaultdict[str, set[int]] = defaultdict(set)
        for ledger, entity in places.items():
            partitions[entity.topic].add(ledger.partition)

        async def starts(topic: str) -> dict[int, int] | ServiceBusError:
            try:
                return await self._connections.topics.starts(topic, partitions[topic])
            except ServiceBusError as error:
                return error

        found = dict(zip(partitions, await all_of(partial(starts, topic) for topic in partitions), strict=True))
        return {
            ledger: its if isinstance(its := found[entity.topic], ServiceBusError) else its[ledger.partition]
            for ledger, entity in places.items()
        }

    def forget(self, entity: Entity) -> None:
        """Forget an entity that is gone, or was replaced by another one of its name."""
        self._topics_read.pop(entity.topic_id, None)


def marks_of(entity: Entity, description: EntityDescription) -> list[MarkName]:
    """Return the marks that an entity's ledgers need, by its description; nothing becomes due in a dead-letter queue."""
    told: list[MarkName] = [name for name in MARKS if getattr(description, name)]
    return [name for name in told if name == "transacts"] if entity.path.is_dead_letter else told


def _identity(entity: Entity) -> tuple[str, str]:
    """Return what distinguishes an entity, as it is described, from all others."""
    return entity.path.key, entity.generation


def _rules_version(entity: Entity, description: EntityDescription | None) -> int:
    """Return the last version of a subscription's rules, whose change may be under way; 0 if the entity has no rules."""
    if entity.subscription_filter is None:
        return 0
    if not isinstance(description, SubscriptionDescription):
        return entity.rules_version
    return description.rules_version + (description.changing is not None)


def _tell_rebuilt(rebuilt: Mapping[EntityPath, Mapping[int, tuple[int, int]]]) -> None:
    """Report rebuilt ledgers: by entity, the partitions with their cursors and the versions of their checkpoints."""
    for path, ledgers in rebuilt.items():
        if instruments.observer is not None:
            instruments.observer.on_rebuild(len(ledgers))
        LOGGER.warning(
            "ledgers_rebuilt entity=%s cursors=%s checkpoints=%s: Redis held no ledgers for these partitions, so messages "
            "that were settled since those versions (0: ever) may be delivered again",
            path,
            {partition: cursor for partition, (cursor, _) in sorted(ledgers.items())},
            {partition: version for partition, (_, version) in sorted(ledgers.items())},
        )
