"""A client's connections, shared by all its handles, and the entities that it uses."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakValueDictionary

from kafkabus._async.compat import Lock, Pool, all_of
from kafkabus._async.dispositions.transfer import Transfers
from kafkabus._async.entities.partition_availability import Outages
from kafkabus._async.kafka.compacted_topic import Companion
from kafkabus._async.kafka.offset_reader import PointReader
from kafkabus._async.kafka.producer import Outbox
from kafkabus._async.kafka.transactional_producer import Transactors
from kafkabus._async.receiving.reader import Reader
from kafkabus._async.receiving.readers import Readers
from kafkabus._async.redis.connection import DescriptionCache, RedisConnection, connect
from kafkabus._async.redis.ledger_client import Courier
from kafkabus._async.stores.checkpoints import Checkpoints
from kafkabus._async.stores.clock_skew import Clocks
from kafkabus._async.stores.entity_descriptions import Directory, Turn
from kafkabus._async.stores.record_archive import Keepsakes
from kafkabus._async.stores.session_states import SessionStates
from kafkabus._async.stores.transaction_markers import Markers
from kafkabus._core.entity import INCARNATIONS, Entity, LedgersReplacedError, generation_of
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusCommunicationError, ServiceBusError
from kafkabus._core.settings import Settings
from kafkabus._core.subscription_filter import Chooser
from kafkabus._kafka.client_factory import open_topics
from kafkabus._kafka.topic_admin import COMPANION_TOPIC, Topic
from kafkabus._ledger.keys import entity_keys, full_key, upkeep_key
from kafkabus._ledger.operations import MARKS, Claim, Keep, Ledger, Mark, MarkName
from kafkabus._ledger.snapshot import Snapshot, Written
from kafkabus._runtime import forks
from kafkabus_mapping.entities import EntityDescription, EntityStatus, SubscriptionDescription, TopicDescription
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath, companion_topic, topic_name
from kafkabus_mapping.namespaces import NamespaceDescription, NamespaceRuleError, Tier

LOGGER = logging.getLogger("kafkabus")

DESCRIPTION_AGE = 5.0
"""How old, in seconds, a description may be that a client goes by."""
UPKEEP_SILENCE = 10.0
"""After how many seconds without a sign of an upkeep service, which gives two a second, a client tells that there is none."""
TOPIC_AGE = 5.0
"""How old, in seconds, the knowledge may be that an entity's topic is the same as before."""
TOPIC_TIMEOUT = 2.0
"""For how long, in seconds, it is asked for."""
KEYLESS_TIMEOUT = 15.0
"""After how many seconds another partition is tried for a message without a key."""
OLD = 60.0
"""After how many seconds without a call it is looked whether an entity is still there."""
TRANSFER_TIMEOUT = 10.0
"""After how many seconds a transfer's record is given up; well within half of the time after which it is an orphan."""


class Services:
    """One client's connections.

    Args:
        settings: Where the namespace lives.
        retry_for: For how long, in seconds, what cannot be reached is tried again.
    """

    _forked = False

    def __init__(self, settings: Settings, *, retry_for: float = 60.0) -> None:
        self.settings = settings
        self._retry_for = retry_for
        self._open()
        forks.watch(self)

    def _open(self) -> None:
        settings = self.settings
        self.client_id = uuid.uuid4().hex
        self.pool = Pool("kafkabus")
        self.redis = connect(settings.redis_url.reveal())
        self.connection = RedisConnection(
            self.redis, address=settings.redis_address, namespace=settings.namespace, retry_for=self._retry_for
        )
        self.courier = Courier(self.connection, rebuild=self._rebuild)
        self.topics = open_topics(settings)
        self.outbox = Outbox(settings, self.pool)
        self.points = PointReader(settings, self.pool)
        self.directory = Directory(
            self.companion("descriptions", COMPANION_TOPIC),
            DescriptionCache(self.connection, settings.namespace),
        )
        self.transfers = Transfers(self)
        self.clocks = Clocks(self)
        self.checkpoints = Checkpoints(self)
        self.session_states = SessionStates(self)
        self.markers = Markers(self)
        self.keepsakes = Keepsakes(self)
        self.transactors = Transactors(settings, self.pool, self.client_id)
        self.outages = Outages(self)
        self._guard = threading.Lock()
        self._keyless_outbox: Outbox | None = None
        self._transfer_outbox: Outbox | None = None
        self._locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._made = itertools.count()
        self._known_paths: deque[str] = deque()
        self._namespace: NamespaceDescription | None = None
        self._entities: dict[str, tuple[float, Entity]] = {}
        self._by_ledger: dict[Ledger, Entity] = {}
        self._marked: set[tuple[MarkName, str, int]] = set()
        self._found: set[tuple[MarkName, str, int]] = set()
        self._topics_seen: dict[str, float] = {}
        self._upkeep_heard: list[int | None] = []
        self._look_for_upkeep_at = 0.0
        self.readers = Readers(self)

    def _after_fork(self) -> None:
        settings, retry_for = self.settings, self._retry_for
        forks.abandon(self.__dict__)
        self.settings, self._retry_for, self._forked = settings, retry_for, True

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """What a forked process has not opened yet: it has connections of its own when it first uses one."""
            with forks.opening:
                if self._forked:
                    self._open()
                    self._forked = False
            return object.__getattribute__(self, name)

    @property
    def keyless_outbox(self) -> Outbox:
        """The producer of messages without a key, which are given up soon enough to be sent to another partition."""
        with self._guard:
            if self._keyless_outbox is None:
                self._keyless_outbox = Outbox(self.settings, self.pool, message_timeout=KEYLESS_TIMEOUT)
            return self._keyless_outbox

    @property
    def transfer_outbox(self) -> Outbox:
        """The producer of transfers, whose records are given up sooner than those that senders wait for."""
        with self._guard:
            if self._transfer_outbox is None:
                self._transfer_outbox = Outbox(self.settings, self.pool, message_timeout=TRANSFER_TIMEOUT)
            return self._transfer_outbox

    def companion(self, purpose: str, config: Mapping[str, str]) -> Companion:
        """One of the namespace's own topics."""
        return Companion(
            companion_topic(self.settings.namespace, purpose),
            config,
            topics=self.topics,
            outbox=self.outbox,
            points=self.points,
            pool=self.pool,
            servers=self.settings.bootstrap_servers,
        )

    async def namespace(self) -> NamespaceDescription:
        """The namespace's description; a Standard one where nobody created it yet.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if self._namespace is not None:
            return self._namespace
        self._namespace = await self.directory.namespace()
        if self._namespace is not None:
            return self._namespace
        now = datetime.now(timezone.utc)
        return NamespaceDescription(created_at=now, updated_at=now)

    async def create_namespace(self, tier: Tier = Tier.STANDARD, partitions: int | None = None) -> NamespaceDescription:
        """The namespace's description, made where nobody created it yet.

        Raises:
            NamespaceRuleError: It was created otherwise.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        known = await self.directory.namespace()
        if known is None:
            now = datetime.now(timezone.utc)
            known = NamespaceDescription(tier=tier, partitions=partitions, created_at=now, updated_at=now)
            await self.directory.put_namespace(known)
        elif (known.tier, known.partitions) != (tier, partitions):
            raise NamespaceRuleError(
                f"namespace {self.settings.namespace!r} was created in tier {known.tier.value} with partitions "
                f"{known.partitions}, not in tier {tier.value} with {partitions}: that is fixed, so use another namespace"
            )
        self._namespace = known
        return known

    async def entity(self, path: EntityPath) -> Entity:
        """An entity by its path; a dead-letter queue comes into being when it is first asked for.

        Raises:
            MessagingEntityNotFoundError: There is no such entity.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        known = self._entities.get(path.key)
        if known is not None and time.monotonic() - known[0] < DESCRIPTION_AGE:
            return known[1]
        with self._guard:
            lock = self._locks.setdefault(path.key, Lock())
        async with lock:
            # Looked at again: another task may have made it, which had the lock before.
            known = self._entities.get(path.key)
            if known is not None and time.monotonic() - known[0] < DESCRIPTION_AGE:
                return known[1]
            await self.reach_kafka()
            # As old as what it is made of.
            asked_at = time.monotonic()
            try:
                entity = await self._look_up(path, None if known is None else known[1])
            except MessagingEntityNotFoundError:
                if known is not None:
                    await self._forget(known[1])
                raise
            if not path.is_dead_letter:
                key = full_key(self.settings.namespace, path, entity.generation)
                entity = replace(entity, full=await self.courier.full_partitions(key))
            self._entities[path.key] = (asked_at, entity)
            for ledger in entity.ledgers:
                self._by_ledger[ledger] = entity
        if known is None:
            await self._look_at_old(path.key)
        elif known[1].generation != entity.generation:
            await self._forget(known[1])
        await self._look_for_upkeep()
        return entity

    async def _look_for_upkeep(self) -> None:
        """Tell, once, that nobody looks after the namespace: who tries it out may not know that somebody has to."""
        heard = self._upkeep_heard
        if len(heard) > 1 or time.monotonic() < self._look_for_upkeep_at:
            return
        # Set before anything is awaited: of several tasks one looks.
        self._look_for_upkeep_at = time.monotonic() + UPKEEP_SILENCE
        with suppress(ServiceBusError):
            heard.append(await self.courier.last_heartbeat(upkeep_key(self.settings.namespace)))
            if len(heard) > 1 and heard[0] == heard[1]:
                LOGGER.warning(
                    "no_upkeep namespace=%s: nobody looks after it, so that nothing is forwarded, and messages expire and "
                    "become due only where somebody receives; run 'kafkabus serve'",
                    self.settings.namespace,
                )

    async def _look_at_old(self, new: str) -> None:
        """Forget entities that are gone: for each new one, two are looked at that nobody has asked for lately."""
        paths = self._known_paths
        with self._guard:
            oldest = [paths.popleft() for _ in range(min(2, len(paths)))]
        for path in oldest:
            asked_at, entity = self._entities.get(path, (0.0, None))
            if entity is None:
                continue
            if time.monotonic() - asked_at > OLD:
                # The caller asked for the new one, and is served all the same.
                with suppress(ServiceBusError):
                    known = await self.directory.get(entity.path.name)
                    if known is None or known.generation != entity.description.generation:
                        await self._forget(entity)
                        continue
            paths.append(path)
        paths.append(new)

    async def _forget(self, entity: Entity) -> None:
        """Nobody asks for an entity any more, as it is gone, or another one."""
        if self._look_up_again(entity):
            await self.readers.forget(entity.path)
        for ledger in entity.ledgers:
            self._by_ledger.pop(ledger, None)
        for places in (self._marked, self._found):
            places.difference_update([place for place in places.copy() if place[1] == entity.generation])
        self._topics_seen.pop(entity.topic_id, None)
        self.transfers.forget(entity)
        self.clocks.forget(entity)

    async def reach_kafka(self) -> None:
        """Reach a broker, where this client did not yet.

        Raises:
            ServiceBusAuthenticationError: Kafka refuses the credentials.
            ServiceBusCommunicationError: No broker can be reached; the message says why.
        """
        if not self.topics.reached:
            await self.pool.run(self.topics.reach)

    async def entity_anew(self, entity: Entity) -> Entity:
        """An entity as it is described now, not some seconds ago.

        Raises:
            MessagingEntityNotFoundError: It is gone, or another one.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        known = self._entities.get(entity.path.key)
        if known is not None and known[1].description == entity.description:
            self._entities[entity.path.key] = (-math.inf, known[1])
        found = await self.entity(entity.path)
        if found.generation != entity.generation:
            raise MessagingEntityNotFoundError(self._left(entity, "it was deleted and created again"))
        return found

    async def entity_of(self, description: EntityDescription) -> Entity:
        """An entity that is described so.

        Raises:
            MessagingEntityNotFoundError: It is gone, or another one.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        path = EntityPath(description.name)
        entity = await self.entity(path)
        if generation_of(path, description, entity.topic_id) != entity.generation:
            self._entities.pop(path.key, None)
            entity = await self.entity(path)
        return entity

    async def exists(self, path: EntityPath) -> bool:
        """Whether an entity has a topic; a dead-letter queue has none before its first message.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        if path.key in self._entities:
            return True
        return await self.pool.run(self.topics.describe, topic_name(self.settings.namespace, path)) is not None

    async def mark(self, entity: Entity, partitions: Iterable[int], name: MarkName) -> None:
        """Tell upkeep and readers that partitions are about to hold messages of a kind; a client says it once of each.

        The entity's description says so before the first of them is stored, and outlives ledgers that Redis loses, or forgets
        some of. A reader looks at each record itself.

        Args:
            entity: Where it will be stored.
            partitions: In which partitions.
            name: Of the kind.

        Raises:
            OperationTimeoutError: Another client has been changing the entity for long; nothing was stored.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        wanted: set[tuple[MarkName, str, int]] = {(name, entity.generation, partition) for partition in partitions}
        places = wanted - self._marked
        if places:
            if not getattr(entity.description, name):
                await self._describe_mark(entity, name)
            await self.courier.ask(*(Mark(entity.ledgers[partition], name) for _, _, partition in places))
            self._marked |= places

    async def _describe_mark(self, entity: Entity, name: MarkName) -> None:
        async with self.directory.changing(entity.path.name) as turn:
            known = await self._description_of(entity)
            if known is not None and not getattr(known, name):
                await turn.check()
                await self.directory.put(known.model_copy(update={name: True}))

    def mark_later(self, entity: Entity, partition: int, name: MarkName) -> None:
        """Tell the ledger, with the next request, that a partition holds messages of a kind that nobody announced."""
        place = (name, entity.generation, partition)
        # Not as marked: the description does not say so.
        if place not in self._marked and place not in self._found:
            self._found.add(place)
            self.courier.later(Mark(entity.ledgers[partition], name))

    async def tell_topic(self, entity: Entity, chooser: Chooser | None) -> None:
        """Where a subscription's log holds records of scheduled messages, its topic knows before they are passed.

        Args:
            entity: The subscription.
            chooser: Who has read its log.

        Raises:
            OperationTimeoutError: Another client has been changing the topic for long.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if chooser is not None and chooser.saw_scheduled:
            topic = await self.entity(entity.log_path)
            await self.mark(topic, range(topic.partitions), "schedules")

    def seconds_left(self, path: EntityPath, partition: int, moment_ms: int) -> float:
        """How long it is until a ledger's clock shows a moment, as far as this client knows that clock."""
        known = self._entities.get(path.key)
        if known is None or partition >= known[1].partitions:
            return 0.0
        return known[1].ledgers[partition].seconds_until(moment_ms)

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
            topic = await self.pool.run(self.topics.describe, entity.topic, TOPIC_TIMEOUT)
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
        topic = await self.pool.run(self.topics.describe, entity.topic)
        if topic is None:
            raise MessagingEntityNotFoundError(f"{entity.path} was deleted: its topic {entity.topic} is gone")
        await self._check_own(entity, topic)

    async def _go_on_with(self, topic: Topic, entity: Entity) -> NoReturn:
        """An entity's topic is another one: where nobody deleted the entity, it goes on with that, from its beginning.

        Raises:
            MessagingEntityNotFoundError: Always; who comes again is served.
        """
        path = entity.path
        async with self._turn_at(path.name) as turn:
            await self._take_over(topic, entity, turn)
        raise MessagingEntityNotFoundError(self._left(entity, f"its topic {topic.name!r} is another one than before"))

    async def _take_over(self, topic: Topic, entity: Entity, turn: Turn | None) -> None:
        path, known = entity.path, await self._description_of(entity)
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
            await self.pool.run(self.topics.configure_entity, topic.name)
            if not path.is_dead_letter:
                known = known.over_topic(topic.topic_id)
                anew = self._anew(entity, known, topic.topic_id)
                if anew.chooser is None:
                    await self.create_ledgers(anew.ledgers)
                else:
                    await self._begin_at(anew, dict.fromkeys(range(entity.partitions), 0))
                if turn is not None:
                    await turn.check()
                await self.directory.put(known)
            await self.courier.forget(entity.ledgers)
            await self._drop_keepsakes(entity)

    def _turn_at(self, name: str) -> Turn | nullcontext[None]:
        """This client's turn at changing an entity's description; none where it is in it: then that may wait for this."""
        return nullcontext() if self.directory.is_changing(name) else self.directory.changing(name)

    async def go_on_from(self, entity: Entity, partition: int, end: int | None) -> NoReturn:
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
                    self._entities.pop(other.path.key, None)
        await self._cut(entity, partition, end)
        raise ServiceBusError(self._left(entity, f"the log of its partition {partition} was truncated behind our back"))

    async def _others_of_log(self, entity: Entity) -> list[Entity]:
        """Who else has ledgers over an entity's log: a topic and its subscriptions."""
        if entity.chooser is None and not entity.is_topic:
            return []
        topic = await self.entity(entity.log_path)
        return [one for one in (topic, *await self.readers_of(topic)) if one.path.key != entity.path.key]

    async def _knows_beyond(self, entity: Entity, partition: int, end: int) -> bool:
        """Whether anything is known of what an entity's log held from an offset on."""
        known = await self._description_of(entity)
        (state,) = await self.courier.states([entity.ledgers[partition]])
        return known is not None and (state is None or state.cursor > end or known.cut(partition, end) != known)

    async def _cut(self, entity: Entity, partition: int, end: int | None) -> None:
        """Have an entity go on where one of its logs was truncated."""
        if await self._description_of(entity) is not None:
            starts = await self.pool.run(self.topics.starts, entity.topic, [partition])
            upto = starts[partition] if end is None else end
            known = await self.keepsakes.of(entity, partition)
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

            ends = await self.pool.run(self.topics.stored_ends, entity.topic, [partition])
            new_from = ends[partition] if end is None else end

            def described(description: EntityDescription) -> EntityDescription:
                # A dead-letter queue's logs are its own.
                return description if entity.path.is_dead_letter else description.cut(partition, new_from)

            await self._begin_anew(entity, cut, described)
            # Another message may have one of these offsets.
            await self.keepsakes.drop(entity, partition, known.keys() - kept.keys())

    async def go_on_with_more(self, entity: Entity, written: Mapping[int, Snapshot]) -> NoReturn:
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
        raise ServiceBusError(self._left(entity, "Redis went back to an earlier state, as in a failover"))

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
        async with self._turn_at(entity.path.name) as turn:
            known = await self._description_of(entity)
            if known is None:
                return
            keeps = [Keep(ledger, close=True) for ledger in entity.ledgers]
            await self.courier.ask(*keeps)
            member = INCARNATIONS[entity.path.sub_queue]
            latest = {member: getattr(known, member) + 1}
            known = known.model_copy(update=latest)
            mended = {keep.ledger.keys.prefix: mend(keep.ledger.partition, keep.snapshot) for keep in keeps}
            decided = (await self.markers.account_for(mended)).values()
            await self._make(
                entity, dict(zip(self._anew(entity, known, entity.topic_id).ledgers, decided, strict=True))
            )
            # What was changed meanwhile stays so.
            current = await self._description_of(entity)
            if current is None:
                return
            if turn is not None:
                await turn.check()
            await self.directory.put(described(current.model_copy(update=latest)))
        await self.courier.forget(entity.ledgers)

    async def needed_from(self, reader: Entity, ledger: Ledger) -> int:
        """From which offset on a ledger may need the records of its log, as its last checkpoint says; 0 without one.

        Args:
            reader: Whose ledger it is.
            ledger: It.

        Raises:
            ServiceBusCommunicationError: Kafka cannot be reached.
        """
        snapshot = await self.checkpoints.read(ledger.keys.prefix)
        if snapshot is None:
            return 0
        needed = snapshot.watermark_without(await self.keepsakes.of(reader, ledger.partition))
        window_start = await self.window_start(reader, ledger, snapshot)
        return needed if window_start is None else min(needed, window_start)

    async def window_start(self, entity: Entity, ledger: Ledger, snapshot: Snapshot) -> int | None:
        """The first offset whose id may still count for what is not judged yet; None where no duplicates are detected."""
        if snapshot.judged is None:
            return None
        topic, partition = entity.topic, ledger.partition
        end = (await self.pool.run(self.topics.ends, topic, [partition]))[partition]
        if end > snapshot.judged:
            records = await self.points.read(topic, partition, snapshot.judged, min(end, snapshot.judged + 100) - 1)
            moment = records[0].timestamp()[1] if records else 0
        else:
            # What is stored from now on is newer than all that is there.
            newest = await self.pool.run(self.topics.newest, topic, [partition])
            moment = 0 if newest is None else newest
        starts = await self.pool.run(self.topics.offsets_at, topic, [partition], max(0, moment - entity.window_ms))
        return starts[partition]

    async def _description_of(self, entity: Entity) -> EntityDescription | None:
        """Its queue's description, unless that is, or soon will be, another generation's."""
        known = await self.directory.get(entity.path.name)
        if (
            known is None
            or known.status is EntityStatus.DELETING
            or known.generation != entity.description.generation
            or generation_of(entity.path, known, entity.topic_id) != entity.generation
        ):
            return None
        return known

    def _anew(self, entity: Entity, description: EntityDescription, topic_id: str) -> Entity:
        """An entity's next generation."""
        return self.described(entity.path, description, entity.topic, topic_id)

    def _left(self, entity: Entity, why: str) -> str:
        """The next one who asks for an entity looks it up; what the one who found out is told."""
        self._look_up_again(entity)
        return f"{entity.path} is not what it was: {why}; call again to go on with what is there"

    def _look_up_again(self, entity: Entity) -> bool:
        """The next one who asks for an entity looks it up; False where another one of that name is known already."""
        known = self._entities.get(entity.path.key)
        if known is None or known[1].generation != entity.generation:
            return False
        del self._entities[entity.path.key]
        return True

    async def reader(self, entity: Entity) -> Reader:
        """The reader that all receivers of an entity share.

        Raises:
            MessagingEntityNotFoundError: The entity's topic is another one than before.
        """
        await self.check_topic(entity)
        return await self.readers.of(entity)

    async def close(self) -> None:
        """Have done what waits, and close all connections."""
        await self.readers.close()
        try:
            await self.courier.flush()
        except ServiceBusError as error:
            LOGGER.warning("close client=%s error=%s", self.client_id, error)
        for outbox in (self.outbox, self._keyless_outbox, self._transfer_outbox):
            if outbox is not None:
                await outbox.close()
        await self.points.close()
        await self.pool.close()
        await self.redis.aclose()

    async def _look_up(self, path: EntityPath, known: Entity | None) -> Entity:
        description = await self.directory.get(path.name)
        if description is None or description.status is EntityStatus.DELETING:
            raise MessagingEntityNotFoundError(_missing(path, self.settings.namespace))
        topic, topic_id = description.topic, description.topic_id
        if path.is_dead_letter:
            if known is not None and known.description.generation == description.generation:
                topic, topic_id = known.topic, known.topic_id
            else:
                topic, topic_id = await self._dead_letter_topic(path, description.partitions)
        if known is not None and known.generation == generation_of(path, description, topic_id):
            return known.described_as(description)
        if known is not None:
            LOGGER.warning("entity_anew entity=%s: its topic was made anew, or its log truncated", path)
        namespace = await self.namespace()
        entity = self.described(path, description, topic, topic_id, max_message_bytes=namespace.max_message_bytes)
        if path.is_dead_letter:
            await self.create_ledgers(entity.ledgers)
        return entity

    async def _dead_letter_topic(self, path: EntityPath, partitions: int) -> tuple[str, str]:
        topic = topic_name(self.settings.namespace, path)
        described = await self.pool.run(self.topics.describe, topic)
        if described is None:
            await self.pool.run(self.topics.create_entity, topic, partitions)
        described = await self.pool.run(self.topics.wait_for, topic)
        return topic, described.topic_id

    async def delete(self, description: EntityDescription) -> None:
        """Delete an entity, its dead-letter queues and all their messages; of a topic its subscriptions first.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        async with self.directory.changing(description.name) as turn:
            known = await self.directory.get(description.name)
            if known is None or known.generation != description.generation:
                return
            await turn.check()
            # Whoever looks after it stops first; the description goes last: a deletion that was cut off can be repeated.
            await self.directory.put(known.model_copy(update={"status": EntityStatus.DELETING}))
        for subscription in await self.subscriptions_of(description):
            await self.delete(subscription)
        path = EntityPath(description.name)
        for which in path.all:
            known = await self.directory.get(description.name)
            if known is None or known.generation != description.generation:
                return  # Somebody else has deleted it, and there may be another one of that name.
            borrowed = isinstance(description, SubscriptionDescription) and not which.is_dead_letter
            topic = description.topic if borrowed else topic_name(self.settings.namespace, which)
            described = await self.pool.run(self.topics.describe, topic)
            if described is not None:
                entity = self.described(which, description, topic, described.topic_id)
                await self._drop_keepsakes(entity)
                await self.session_states.drop(entity)
                await self.checkpoints.drop([ledger.keys.prefix for ledger in entity.ledgers])
                if not borrowed:
                    await self.pool.run(self.topics.delete, topic)
                await self.courier.forget(
                    entity.ledgers, entity_keys(self.settings.namespace, which, entity.generation)
                )
        async with self.directory.changing(description.name) as turn:
            known = await self.directory.get(description.name)
            if known is not None and known.generation == description.generation:
                await turn.check()
                await self.directory.remove(description.name)

    async def subscriptions_of(self, description: EntityDescription) -> list[SubscriptionDescription]:
        """A topic's subscriptions, by name; none of what is no topic.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if not isinstance(description, TopicDescription):
            return []
        name = description.name.lower()
        return [
            one
            for one in await self.directory.all()
            if isinstance(one, SubscriptionDescription) and one.topic_entity.lower() == name
        ]

    async def share(self, topic: EntityDescription) -> None:
        """Have a topic's subscriptions go by what the topic has now.

        Raises:
            OperationTimeoutError: Another client has been changing one of them for long; call again.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached; call again.
        """
        for one in await self.subscriptions_of(topic):
            if not isinstance(topic, TopicDescription) or one == one.under(topic):
                continue
            async with self.directory.changing(one.name) as turn:
                # Of clients that change the topic at once, whoever comes last finds what it is like then.
                latest, known = await self.directory.get(topic.name), await self.directory.get(one.name)
                if isinstance(latest, TopicDescription) and isinstance(known, SubscriptionDescription):
                    await turn.check()
                    await self.directory.put(known.under(latest))

    async def readers_of(self, entity: Entity) -> list[Entity]:
        """Whose ledgers say what is received of an entity's logs: its own, or those of a topic's subscriptions.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        if not entity.is_topic:
            return [entity]
        readers: list[Entity] = []
        for one in await self.subscriptions_of(entity.description):
            if one.topic_id == entity.topic_id and one.status is not EntityStatus.DELETING:
                # It may be deleted meanwhile.
                with suppress(MessagingEntityNotFoundError):
                    readers.append(await self.entity_of(one))
        return readers

    async def _drop_keepsakes(self, entity: Entity) -> None:
        """Nobody asks for any of its messages any more."""
        for partition in range(entity.partitions):
            await self.keepsakes.drop(entity, partition, await self.keepsakes.of(entity, partition))

    def described(
        self,
        path: EntityPath,
        description: EntityDescription,
        topic: str,
        topic_id: str,
        *,
        max_message_bytes: int = 0,
    ) -> Entity:
        """An entity as it is described, whoever uses it."""
        return Entity.of(
            self.settings.namespace,
            path,
            description,
            topic=topic,
            topic_id=topic_id,
            # Requests to a ledger are numbered, by each that is made of it.
            client_id=f"{self.client_id}.{next(self._made)}",
            max_message_bytes=max_message_bytes,
        )

    async def create_ledgers(self, ledgers: Sequence[Ledger]) -> None:
        """Create the ledgers of a new topic, which begin at its beginning; those that are there stay as they are."""
        for ledger in ledgers:
            await self.courier.create(ledger, 0)

    async def check_rights(self, path: EntityPath, description: EntityDescription) -> None:
        """Make a ledger and delete it, so that what Redis refuses is known before a topic is created for an entity.

        Raises:
            ServiceBusError: Redis refuses; see ``RedisConnection.call``.
        """
        entity = self.described(path, description, description.topic, uuid.uuid4().hex)
        ledger = entity.ledgers[0]
        self._by_ledger[ledger] = entity
        try:
            await self.create_ledgers([ledger])
            await self.courier.ask(Claim.of_nothing(ledger))
            await self.courier.forget([ledger])
        finally:
            del self._by_ledger[ledger]

    async def begin_subscription(self, entity: Entity) -> tuple[int, ...]:
        """Create a subscription's ledgers, which begin where its topic's logs end now; they outlive Redis from the start.

        Records of open transactions count: acknowledged messages may stand behind them.

        Returns:
            Where that is, by partition.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        ends = await self.pool.run(self.topics.stored_ends, entity.topic, range(entity.partitions))
        await self._begin_at(entity, ends)
        return tuple(ends[ledger.partition] for ledger in entity.ledgers)

    async def _begin_at(self, entity: Entity, offsets: Mapping[int, int]) -> None:
        """Create a subscription's ledgers, which begin at these offsets, by partition."""
        markers, detects = await self.markers.end(), entity.detects_duplicates
        begun = {
            ledger: Snapshot(
                at := offsets[ledger.partition], 1, mortal=True, judged=at if detects else None, markers=markers
            )
            for ledger in entity.ledgers
        }
        await self.checkpoints.write({ledger.keys.prefix: snapshot for ledger, snapshot in begun.items()})
        await self._make(entity, begun)

    async def _rebuild(self, ledgers: Sequence[Ledger]) -> dict[Ledger, ServiceBusError]:
        """Redis lost ledgers: go on from their last checkpoints, so that nothing is lost and little comes again.

        Returns:
            Why not, of those of which that cannot be.
        """
        failed: dict[Ledger, ServiceBusError] = {}
        places: dict[Ledger, Entity] = {}
        for ledger in ledgers:
            entity = self._by_ledger.get(ledger)
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
        for ledger, made in (await self.courier.restore(list(places), read)).items():
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
            return None if await self._description_of(entity) is not None else await self._replaced(entity)
        except ServiceBusError as error:
            return error

    async def _replaced(self, entity: Entity) -> ServiceBusError:
        """Why an entity's ledgers are not to be made anew."""
        known = await self.directory.get(entity.path.name)
        if known is None or known.status is EntityStatus.DELETING:
            self._look_up_again(entity)
            return MessagingEntityNotFoundError(_missing(entity.path, self.settings.namespace))
        if known.generation != entity.description.generation:
            return MessagingEntityNotFoundError(self._left(entity, "it was deleted and created again"))
        return LedgersReplacedError(
            self._left(
                entity,
                "it has other ledgers since one of its logs was truncated, or Redis went back to an earlier state, as in a "
                "failover",
            )
        )

    async def has_moved_on(self, entity: Entity) -> bool:
        """Whether an entity has other ledgers by now.

        Raises:
            MessagingEntityNotFoundError: It is gone.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return (await self.entity(entity.path)).generation != entity.generation

    async def _make(self, entity: Entity, snapshots: Mapping[Ledger, Snapshot]) -> None:
        """Make ledgers of an entity of what is known of them; those that are there stay.

        Raises:
            ServiceBusError: That failed, of some of them.
        """

        async def read(some: Sequence[Ledger]) -> dict[Ledger, Written | ServiceBusError]:
            return await self._written(dict.fromkeys(some, entity), {ledger: snapshots[ledger] for ledger in some})

        for made in (await self.courier.restore(list(snapshots), read)).values():
            if isinstance(made, ServiceBusError):
                raise made

    async def _written(
        self, places: Mapping[Ledger, Entity], snapshots: Mapping[Ledger, Snapshot | ServiceBusError]
    ) -> dict[Ledger, Written | ServiceBusError]:
        """All that ledgers are made of, where their snapshots are known, and whose each one is."""
        states = await self.session_states.read(places)
        names = {entity.path.name for entity in places.values()}
        described = {name: await self.directory.get(name) for name in names}

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
        snapshots = await self.checkpoints.read_now(ledger.keys.prefix for ledger in places)
        starts: dict[Ledger, int] = {}
        for ledger, start in (await self._starts_of(places)).items():
            if isinstance(start, ServiceBusError):
                found[ledger] = start
            else:
                starts[ledger] = start
        kept = await self.keepsakes.of_each({ledger: places[ledger] for ledger, start in starts.items() if start})
        true_ones: dict[str, Snapshot] = {}
        for ledger, start in starts.items():
            judged = start if places[ledger].detects_duplicates else None
            snapshot = snapshots[ledger.keys.prefix] or Snapshot(0, 0, mortal=True, judged=judged, markers=0)
            # Where the log ends before the cursor it was truncated: whoever reads on from there finds out where.
            due = {offset: one.due for offset, one in kept.get(ledger, {}).items()}
            true_ones[ledger.keys.prefix] = snapshot.within(start, kept=due)
        decided = await self.markers.account_for(true_ones)
        return found | {ledger: decided[ledger.keys.prefix] for ledger in starts}

    async def _starts_of(self, places: Mapping[Ledger, Entity]) -> dict[Ledger, int | ServiceBusError]:
        """Where logs begin."""
        partitions: defaultdict[str, set[int]] = defaultdict(set)
        for ledger, entity in places.items():
            partitions[entity.topic].add(ledger.partition)

        async def starts(topic: str) -> dict[int, int] | ServiceBusError:
            try:
                return await self.pool.run(self.topics.starts, topic, partitions[topic])
            except ServiceBusError as error:
                return error

        found = dict(zip(partitions, await all_of(partial(starts, topic) for topic in partitions), strict=True))
        return {
            ledger: its if isinstance(its := found[entity.topic], ServiceBusError) else its[ledger.partition]
            for ledger, entity in places.items()
        }


def marks_of(entity: Entity, description: EntityDescription) -> list[MarkName]:
    """What an entity's ledgers have to know, as its description says; of a dead-letter queue, nothing becomes due there."""
    told: list[MarkName] = [name for name in MARKS if getattr(description, name)]
    return [name for name in told if name == "transacts"] if entity.path.is_dead_letter else told


def _rules_version(entity: Entity, description: EntityDescription | None) -> int:
    """Which version of a subscription's rules is the last one, whose change may be under way; 0 where it has none."""
    if entity.chooser is None:
        return 0
    if not isinstance(description, SubscriptionDescription):
        return entity.rules_version
    return description.rules_version + (description.changing is not None)


def _missing(path: EntityPath, namespace: str) -> str:
    topic, between, subscription = path.name.partition(SUBSCRIPTIONS)
    if between:
        return (
            f"there is no subscription {subscription!r} of a topic {topic!r} in namespace {namespace!r}: create it with "
            "ServiceBusAdministrationClient.create_subscription or 'kafkabus subscription create'"
        )
    return (
        f"there is no queue or topic {path.name!r} in namespace {namespace!r}: create it with "
        "ServiceBusAdministrationClient.create_queue or create_topic, or 'kafkabus queue create' or 'kafkabus topic create'"
    )
