"""The service: it finds the entities, takes those that are this instance's, and tends each when there is something to do."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafkabus._async.compat import run_uninterrupted
from kafkabus._async.context import ClientContext
from kafkabus._async.redis.upkeep_events import LOOK_EVERYWHERE, UpkeepEvents
from kafkabus._async.stores.entity_descriptions import Edition
from kafkabus._core.settings import Settings
from kafkabus._ledger.keys import upkeep_key
from kafkabus.exceptions import (
    MessagingEntityNotFoundError,
    NamespaceFormatError,
    ServiceBusError,
    UnsuitableRedisError,
)
from kafkabus.upkeep.agenda import Agenda
from kafkabus.upkeep.deadline import RETRY_AFTER
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
from kafkabus.upkeep.first_look import FirstLook, Quiet
from kafkabus.upkeep.forwarder import Forwarder, forwards
from kafkabus.upkeep.health import Health
from kafkabus.upkeep.log_watch import LogWatch
from kafkabus.upkeep.progress import LOOK_EVERY, Progress
from kafkabus_mapping.entities import EntityDescription, EntityStatus, SubscriptionDescription, TopicDescription
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath, parse_topic, topic_name

LOGGER = logging.getLogger("kafkabus.upkeep")

HEARTBEAT_EVERY = 1.0
"""How often, in seconds, an instance sends a heartbeat to the others."""
HEARTBEAT_LIFETIME = 5.0
"""After how many seconds without a heartbeat an instance's entities go to other instances."""
LOOK_FOR_ENTITIES = 2.0
"""How often, in seconds, new, changed and deleted entities are noticed."""
LOOK_FOR_DEAD_LETTERS = 2.0
"""How often, in seconds, at the most, to look whether an entity that is tended has a dead-letter queue by now."""
SWEEP_EVERY = 60.0
"""How often, in seconds, to look for changed ledgers that sent no event, or whose events were lost."""
SWEPT_AT_ONCE = 1_000
"""How many ledgers are asked for in one round trip."""
LOOK_AT_ALL_AFTER = 3600.0
"""After how many seconds without a look at the descriptions all are read again: Kafka forgets deletions after a day."""
DESCRIBED_AT_ONCE = 100
"""Up to how many topics are asked for by name; if there are more, for the names of all."""
AT_FIRST_LOOK = 500
"""How many new entities are looked at together."""
FORWARDED_FOR = 0.5
"""How long, in seconds, to forward before looking whether the entity still does."""
_SPACING = 0.02
"""The shortest time, in seconds, between an entity's being tended and its being tended again."""
AT_ONCE = 16
"""How many entities are tended at a time."""


class UpkeepObserver(Protocol):
    """Gets reports of an instance's work."""

    def on_tending(self, late: float) -> None:
        """Note that an entity is tended, so many seconds after the time for which it was asked for."""
        ...

    def on_failure(self) -> None:
        """Note that something failed; it is tried again."""
        ...


@dataclass(slots=True)
class _Described:
    """The descriptions of the namespace's entities, as the instance last looked them up.

    Attributes:
        by_name: The descriptions, by name in lower case.
        deleting: The names of those entities that are being deleted.
        edition: The edition of the descriptions; None before the first look.
        looked_at: When the instance last looked, on the monotonic clock.
        look_again_at: When it is to look again.
    """

    by_name: dict[str, EntityDescription] = field(default_factory=dict[str, EntityDescription])
    deleting: set[str] = field(default_factory=set[str])
    edition: Edition | None = None
    looked_at: float = -math.inf
    look_again_at: float = 0.0


class Upkeep:
    """One instance of the service, for one namespace.

    An entity is tended if one of its ledgers reports that it is due, if its logs grow, if its description changes, and at the
    time that its maintainer asked for. A sweep finds ledgers whose events were lost.

    Args:
        settings: The namespace and its addresses.

    Attributes:
        health: Whether the instance is ready.
        observer: Gets reports of the instance's work; by default there is none.
        context: The parts of the instance while it runs, else None.
        members: The ids of the instances that serve the namespace, as of the last heartbeat.
    """

    def __init__(self, settings: Settings) -> None:
        self.health = Health()
        self.observer: UpkeepObserver | None = None
        self.context: ClientContext | None = None
        self.members: list[str] = []
        self._settings = settings
        self._agenda = Agenda()
        self._maintainers: dict[str, EntityMaintainer] = {}
        self._tending: dict[str, asyncio.Task[bool]] = {}
        self._forwarding: dict[str, asyncio.Task[None]] = {}
        self._described = _Described()
        self._new: dict[EntityPath, EntityDescription] = {}
        self._have_new = asyncio.Event()
        self._retake: set[str] = set()
        self._told: set[str] = set()
        self._share_anew = self._is_heard_of = False
        self._looked_for: dict[str, float] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._progress = Progress()

    async def run(self, stop: asyncio.Event) -> None:
        """Tend the namespace until asked to stop; wait for servers that cannot be reached.

        Raises:
            UnsuitableRedisError: kafkabus cannot use this Redis, and waiting does not change that.
            NamespaceFormatError: The namespace is stored in a format that this version does not read.
        """
        self.context = context = ClientContext(self._settings)
        context.registry.kind = "upkeep"
        LOGGER.info("upkeep_started namespace=%s instance=%s", self._settings.namespace, context.client_id)
        events = UpkeepEvents(context.connections.redis, self._settings.namespace)
        watch = LogWatch(context)
        rounds = {
            asyncio.ensure_future(work)
            for work in (
                self._repeat(lambda: self._share_out(context), lambda: HEARTBEAT_EVERY, "sharing out"),
                self._repeat(lambda: self._look_first(context), lambda: 0.0),
                self._repeat(lambda: self._listen(events), lambda: 0.0, "listening"),
                self._repeat(lambda: self._watch(watch), lambda: watch.pause, "watching logs"),
                self._repeat(lambda: self._sweep(context), lambda: SWEEP_EVERY, "sweeping"),
                self._repeat(lambda: self._tend_next(context), lambda: 0.0),
                self._repeat(self._progress.look, lambda: LOOK_EVERY),
            )
        }
        stopping = asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait({stopping, *rounds}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done - {stopping}:
                ended.result()
        finally:
            self.health.end()
            for task in rounds:
                task.cancel()
            # Before the rest ends, which may take long if Kafka does not answer: others take over a second after this.
            leaving = asyncio.ensure_future(self._depart(context))
            await _end({stopping, *rounds})
            await _end({*self._tending.values(), *self._forwarding.values()})
            await events.close()
            await leaving
            await context.close()
            LOGGER.info("upkeep_stopped namespace=%s", self._settings.namespace)

    @property
    def maintainers(self) -> list[EntityMaintainer]:
        """The maintainers of the entities that the instance tends."""
        return list(self._maintainers.values())

    def _note_failure(self) -> None:
        if self.observer is not None:
            self.observer.on_failure()

    async def _depart(self, context: ClientContext) -> None:
        if self._is_heard_of:
            key = upkeep_key(self._settings.namespace)
            await context.ledger_client.leave([key], context.client_id, HEARTBEAT_LIFETIME)

    async def _repeat(
        self, work: Callable[[], Awaitable[None]], pause: Callable[[], float], what: str | None = None
    ) -> None:
        """Do some work again and again, also if it fails; ``what`` names it if it should not take long."""
        while True:
            try:
                with nullcontext() if what is None else self._progress.note_work(what):
                    await work()
            except (NamespaceFormatError, UnsuitableRedisError):
                raise
            except ServiceBusError as error:
                self._note_failure()
                LOGGER.warning("upkeep namespace=%s error=%s", self._settings.namespace, error)
                await asyncio.sleep(RETRY_AFTER)
            except Exception:
                self._note_failure()
                LOGGER.exception("upkeep namespace=%s", self._settings.namespace)
                await asyncio.sleep(RETRY_AFTER)
            await asyncio.sleep(pause())

    # The entities to tend.

    async def _share_out(self, context: ClientContext) -> None:
        """Begin to tend this instance's entities, and leave those of other instances."""
        if not context.topics.has_contact:
            # An instance that never reached Kafka takes no entity from other instances.
            with self.health.observe_part("kafka"):
                await context.connections.reach_kafka()
        context.connections.open_transfer_producer()
        if self._described.edition is None:
            # Nor does an instance that must not touch this namespace, because it is of an earlier version.
            with self.health.observe_part("kafka"):
                await context.descriptions.catch_up()
        self._is_heard_of = True
        # First, as an instance that is heard of without a report is one of an earlier version.
        await context.registry.report()
        with self.health.observe_part("redis"):
            members = await context.ledger_client.heartbeat(
                upkeep_key(self._settings.namespace), context.client_id, HEARTBEAT_LIFETIME
            )
        news, self._retake = self._retake, set()
        if sorted(members) != self.members:
            self._share_anew = True
            self._told.clear()
        self.members = sorted(members)
        try:
            if time.monotonic() >= self._described.look_again_at:
                self._described.look_again_at = time.monotonic() + LOOK_FOR_ENTITIES
                with self.health.observe_part("descriptions"):
                    news |= await self._look_for_entities(context)
            if self._share_anew or news:
                await self._take_entities(context, set(self._described.by_name) | news if self._share_anew else news)
                await self._finish_deletions(context)
            self._share_anew = False
        except BaseException:
            # It is done again.
            self._retake |= news
            raise

    async def _look_for_entities(self, context: ClientContext) -> set[str]:
        """Look up the descriptions that were changed; return the names, in lower case, of the entities."""
        with self.health.observe_part("kafka"):
            await context.descriptions.catch_up()
        before, edition = self._described.edition, await context.descriptions.edition()
        now = time.monotonic()
        if edition == before:
            self._described.looked_at = now
            return set()
        if before is None or before.life != edition.life:
            # Redis was emptied, or this is the first look.
            self._wake_all()
            before = None
        if before is None or before.upto > edition.upto or now - self._described.looked_at >= LOOK_AT_ALL_AFTER:
            described = {description.name.lower(): description for description in await context.descriptions.all()}
            known = self._described.by_name
            changes: dict[str, EntityDescription | None] = {
                name: described.get(name)
                for name in known.keys() | described.keys()
                if known.get(name) != described.get(name)
            }
        else:
            changes = await context.descriptions.changes(before.upto, edition.upto)
        for name, description in changes.items():
            self._note_description(name, description)
        self._described.edition, self._described.looked_at = edition, now
        return set(changes)

    def _note_description(self, name: str, description: EntityDescription | None) -> None:
        """Note how an entity is described now, and have it tended; None: it was deleted."""
        self._described.deleting.discard(name)
        # Its dead-letter queues may be new ones.
        self._told.difference_update(path.key for path in EntityPath(name).all)
        if description is None:
            self._described.by_name.pop(name, None)
            return
        self._described.by_name[name] = description
        if description.status is EntityStatus.DELETING:
            self._described.deleting.add(name)
        # A topic's subscriptions take its settings, and a topic keeps what its subscriptions have not settled.
        relatives = [description.topic_entity] if isinstance(description, SubscriptionDescription) else []
        for path in (*EntityPath(description.name).all, *map(EntityPath, relatives)):
            self._wake(path.key)

    async def _finish_deletions(self, context: ClientContext) -> None:
        """Delete entities whose deletion an instance did not finish, and subscriptions, which would be in their topic's way."""
        for description in [self._described.by_name[name] for name in self._described.deleting]:
            ours = description.retiring_at is not None or isinstance(description, SubscriptionDescription)
            if ours and is_home(EntityPath(description.name).key, context.client_id, self.members):
                await context.maintenance.lifecycle.delete(description)

    async def _take_entities(self, context: ClientContext, names: Iterable[str]) -> None:
        """Begin to tend those of several entities whose home this instance is, and leave the others.

        Args:
            context: The service's parts.
            names: The names of the entities in lower case.
        """
        new: dict[EntityPath, EntityDescription] = {}
        for name in names:
            description = self._described.by_name.get(name)
            mine: dict[str, EntityPath] = {}
            if description is not None and description.status is not EntityStatus.DELETING:
                paths = _paths_of(description)
                mine = {path.key: path for path in paths if is_home(path.key, context.client_id, self.members)}
                new |= {path: description for key, path in mine.items() if key not in self._maintainers}
            for path in EntityPath(name).all:
                if path.key in self._maintainers and path.key not in mine:
                    self._leave(path.key)
        dead_letters = [path for path in new if path.is_dead_letter]
        there = await self._topics_of(context, dead_letters)
        for path in dead_letters:
            if topic_name(self._settings.namespace, path) not in there:
                del new[path]
        for path, description in new.items():
            if path.key in self._maintainers:
                continue  # It was taken during the call.
            self._maintainers[path.key] = EntityMaintainer(context, path)
            self._new[path] = description
        self._have_new.set()
        LOGGER.info("upkeep_tends entities=%d instances=%d", len(self._maintainers), len(self.members))

    async def _topics_of(self, context: ClientContext, paths: Sequence[EntityPath]) -> Set[str]:
        """Return the names of those topics of several entities that exist, and maybe of others."""
        if len(paths) > DESCRIBED_AT_ONCE:
            return await context.topics.names()
        wanted = [topic_name(self._settings.namespace, path) for path in paths]
        return set(await context.topics.describe_all(wanted)) if wanted else set()

    def _take(self, context: ClientContext, path: EntityPath) -> None:
        self._maintainers[path.key] = EntityMaintainer(context, path)
        self._wake(path.key)

    def _leave(self, key: str) -> None:
        del self._maintainers[key]
        self._looked_for.pop(key, None)
        self._agenda.drop(key)
        for task in (self._tending.get(key), self._forwarding.get(key)):
            if task is not None:
                task.cancel()

    async def _look_first(self, context: ClientContext) -> None:
        """Look at new entities together, and tend those that may need it."""
        await self._have_new.wait()
        looked_at = dict(itertools.islice(self._new.items(), AT_FIRST_LOOK))
        for path in looked_at:
            del self._new[path]
        if not self._new:
            self._have_new.clear()
        quiet: dict[str, Quiet] = {}
        try:
            with self._progress.note_work("looking at new entities"):
                quiet = {
                    quiet_entity.entity.path.key: quiet_entity
                    for quiet_entity in await FirstLook(context).quiet(looked_at)
                }
        finally:
            for key in (path.key for path in looked_at):
                maintainer = self._maintainers.get(key)
                if maintainer is not None and key in quiet and maintainer.entity is None and key not in self._tending:
                    maintainer.begin_quiet(quiet[key])
                else:
                    self._wake(key)

    async def _look_for_dead_letters(self, context: ClientContext, path: EntityPath) -> None:
        """Take an entity's dead-letter queues that were needed since the last look; notify other instances of theirs."""
        if path.is_dead_letter or time.monotonic() < self._looked_for.get(path.key, 0.0):
            return
        self._looked_for[path.key] = time.monotonic() + LOOK_FOR_DEAD_LETTERS
        for dead_letters in _paths_of(self._described.by_name[path.name.lower()])[1:]:
            if (
                dead_letters.key in self._maintainers
                or dead_letters.key in self._told
                or not await context.catalog.exists(dead_letters)
            ):
                continue
            if not is_home(dead_letters.key, context.client_id, self.members):
                # Its instance does not look for it.
                self._told.add(dead_letters.key)
                await context.ledger_client.ask_upkeep(self._settings.namespace, dead_letters, 0.0)
            elif dead_letters.key not in self._maintainers:
                self._take(context, dead_letters)

    # When to tend it.

    def _wake(self, key: str, seconds: float = 0.0) -> None:
        if key in self._maintainers:
            self._agenda.wake(key, seconds)

    def _wake_all(self) -> None:
        for key in self._maintainers:
            self._wake(key)

    async def _listen(self, events: UpkeepEvents) -> None:
        event = await events.next()
        if event == LOOK_EVERYWHERE:
            self._wake_all()
        elif event is not None:
            self._wake(event.entity, event.within)
            self._look_whether_ours(event.entity, event.entity.partition("/$")[0])
            if event.whole:
                subscriptions = event.entity + SUBSCRIPTIONS.lower()
                for key in [key for key in self._maintainers if key.startswith(subscriptions)]:
                    self._wake(key, event.within)

    def _look_whether_ours(self, key: str, name: str) -> None:
        """Have an entity taken if it is this instance's: a dead-letter queue that another instance has seen.

        Args:
            key: The key of its path.
            name: The name of its queue or subscription in lower case.
        """
        if key in self._maintainers or name not in self._described.by_name or self.context is None:
            return
        if is_home(key, self.context.client_id, self.members):
            self._retake.add(name)

    async def _watch(self, watch: LogWatch) -> None:
        for maintainer in await watch.find_moved(self.maintainers):
            self._wake(maintainer.path.key)
        if watch.answered:
            self.health.on_success("kafka")

    async def _sweep(self, context: ClientContext) -> None:
        """Tend entities with ledgers that were changed and not written down, or that Redis lost."""
        ledgers = [
            (maintainer, ledger)
            for maintainer in self.maintainers
            if maintainer.entity
            for ledger in maintainer.entity.ledgers
        ]
        for first in range(0, len(ledgers), SWEPT_AT_ONCE):
            swept = ledgers[first : first + SWEPT_AT_ONCE]
            written = [maintainer.last_change(ledger) for maintainer, ledger in swept]
            for place in await context.ledger_client.not_as_written([ledger for _, ledger in swept], written):
                self._wake(swept[place][0].path.key)
        if len(self.members) > 1:
            # Another instance may have ended before it reported a dead-letter queue.
            for name in await context.topics.names():
                parsed = parse_topic(name)
                if parsed is not None and parsed[0] == self._settings.namespace:
                    self._look_whether_ours(parsed[1].key, parsed[1].name.lower())

    # Tending it.

    async def _tend_next(self, context: ClientContext) -> None:
        """Begin to tend the next entity that is due, if there is room."""
        key = await self._agenda.next()
        due_at = self._agenda.due_at
        if key in self._tending:
            # It is tended now, and a request during that may have come too late.
            self._agenda.wake(key, _SPACING)
            return
        await self._room.acquire()
        maintainer = self._maintainers.get(key)
        if maintainer is None:
            self._room.release()
            return
        if self.observer is not None:
            self.observer.on_tending(time.monotonic() - due_at)
        self._tending[key] = tending = asyncio.create_task(self._tend(context, maintainer))
        # Not at the end of the task's work: one that is cancelled before it began does none.
        tending.add_done_callback(lambda task: self._end_tending(maintainer, found=task.cancelled() or task.result()))

    async def _tend(self, context: ClientContext, maintainer: EntityMaintainer) -> bool:
        """Tend an entity once, and return whether it is there; a failure keeps no other one waiting."""
        path, found = maintainer.path, True
        try:
            with self._progress.note_work(f"tending {path}"):
                found = await maintainer.maintain() is not None
                self._forward(context, maintainer)
                await self._look_for_dead_letters(context, path)
        except MessagingEntityNotFoundError:
            found = False
        except ServiceBusError as error:
            self._note_failure()
            LOGGER.warning("upkeep_entity entity=%s error=%s", path, error)
            maintainer.retry_later()
        except Exception:
            self._note_failure()
            LOGGER.exception("upkeep_entity entity=%s", path)
            maintainer.retry_later()
        return found

    def _end_tending(self, maintainer: EntityMaintainer, *, found: bool) -> None:
        """Make room for another entity, and note when this one is to be tended again."""
        key = maintainer.path.key
        del self._tending[key]
        self._room.release()
        if not found and self._maintainers.get(key) is maintainer:
            # Another one takes its place if there is an entity of that name.
            self._leave(key)
            self._retake.add(maintainer.path.name.lower())
        self._wake(key, max(_SPACING, maintainer.next_at - time.monotonic()))

    def _forward(self, context: ClientContext, maintainer: EntityMaintainer) -> None:
        """Begin to move on what comes to an entity, if it forwards."""
        key, entity = maintainer.path.key, maintainer.entity
        if entity is not None and forwards(entity) and key not in self._forwarding and key in self._maintainers:
            self._forwarding[key] = forwarding = asyncio.create_task(self._move_on(context, maintainer))
            forwarding.add_done_callback(lambda _: self._forwarding.pop(key))

    async def _move_on(self, context: ClientContext, maintainer: EntityMaintainer) -> None:
        """Move on what comes to an entity, for as long as it forwards."""
        forwarder = Forwarder(context)
        try:
            while maintainer.entity is not None and forwards(maintainer.entity):
                try:
                    await forwarder.forward(maintainer.entity, FORWARDED_FOR)
                    continue
                except MessagingEntityNotFoundError:
                    return
                except ServiceBusError as error:
                    self._note_failure()
                    LOGGER.warning("upkeep_entity entity=%s error=%s", maintainer.path, error)
                except Exception:
                    self._note_failure()
                    LOGGER.exception("upkeep_entity entity=%s", maintainer.path)
                await asyncio.sleep(RETRY_AFTER)
        finally:
            await run_uninterrupted(forwarder.close())


async def _end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """End tasks; they may be waiting for Redis."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        # Cancelled again, as a library may forget that it was cancelled.
        _, left = await asyncio.wait(left, timeout=RETRY_AFTER)


def is_home(entity: str, instance: str, members: list[str]) -> bool:
    """Return whether an entity is this instance's, by rendezvous hashing: few entities move when an instance comes or goes."""
    return instance == max({*members, instance}, key=lambda member: (zlib.crc32(f"{member}/{entity}".encode()), member))


def _paths_of(description: EntityDescription) -> tuple[EntityPath, ...]:
    """Return the path of an entity, and those of the dead-letter queues that it can have."""
    path = EntityPath(description.name)
    return (path,) if isinstance(description, TopicDescription) else path.all
