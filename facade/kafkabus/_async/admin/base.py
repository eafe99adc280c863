"""Administration that all kinds of entities have in common."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from types import TracebackType
from typing import NamedTuple, ParamSpec, TypeGuard, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError
from typing_extensions import Self

from kafkabus._async.compat import all_of, guard, sleep
from kafkabus._async.context import ClientContext
from kafkabus._core.compatibility import warn, warn_unsupported
from kafkabus._core.entity import Entity
from kafkabus._core.entity_properties import (
    READ_ONLY,
    EntityAvailabilityStatus,
    EntityProperties,
    NamespaceProperties,
    P,
    change_fields,
    namespace_properties,
    properties_of,
)
from kafkabus._core.exceptions import (
    InvalidOperationError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    NamespaceFormatError,
    ServiceBusCommunicationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from kafkabus._core.record import size_of
from kafkabus._core.settings import Settings, TokenProvider, host_of, parse_settings, settings_for
from kafkabus._kafka.topic_admin import Topic
from kafkabus._ledger.keys import holes_key
from kafkabus._ledger.operations import LedgerState, Peek
from kafkabus._ledger.ranges import NEVER
from kafkabus_mapping.codec import from_milliseconds
from kafkabus_mapping.entities import (
    EntityDescription,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    policy_fault,
)
from kafkabus_mapping.error_text import ErrorText, Term, text_of_error
from kafkabus_mapping.formats import FIRST, needs_latest
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath, NameRuleError, check_entity, topic_name
from kafkabus_mapping.namespaces import MAX_HOPS, NamespaceDescription, NamespaceRuleError, Tier, check_forwarding

CREATION_PATIENCE = 5.0
"""How long, in seconds, a creation waits for another one of the same name before it takes over what the other one left."""

WORDS: Mapping[type[EntityDescription], str] = {
    QueueDescription: "queue",
    TopicDescription: "topic",
    SubscriptionDescription: "subscription",
}
"""The word for each kind of entity."""
LISTED_AT_ONCE = 500
"""How many listed entities are looked up together."""
PROBES, PROBED = 4, 4
"""At how many places messages are sampled to estimate the size of all, and how many at each place."""
LOOKED_THROUGH, LOOK_FOR = 2_000, 0.5
"""Up to how many offsets of a log with transactions are looked through when its messages are counted, and for how long, in
seconds."""
FIXED = frozenset({"enable_partitioning", "requires_session", "requires_duplicate_detection"})
"""Settings that are fixed at creation."""

SETTABLE = (EntityStatus.ACTIVE, EntityStatus.DISABLED, EntityStatus.SEND_DISABLED, EntityStatus.RECEIVE_DISABLED)
"""Statuses that a caller can give an entity."""

C = TypeVar("C")
P_NAMES = ParamSpec("P_NAMES")
D = TypeVar("D", bound=EntityDescription)


class SessionCounts(NamedTuple):
    """The numbers of an entity's sessions.

    Attributes:
        available: Sessions that wait and that no receiver has; messages of a partition that no receiver has come to yet count
            as one.
        locked: Sessions that receivers have.
    """

    available: int
    locked: int


class PartitionCounts(NamedTuple):
    """The numbers of an entity's messages, each for all partitions in their order.

    Attributes:
        active: Messages that wait or are locked, postponed ones included.
        postponed: Those of them that are postponed.
        scheduled: Messages whose time has not come.
        moving: Messages on their way to another entity.
        sessions: Sessions that are available, and that are locked; None if the entity has none.
    """

    active: list[int]
    postponed: list[int]
    scheduled: list[int]
    moving: list[int]
    sessions: SessionCounts | None = None


class Administration:
    """The part of one namespace's administration that all kinds of entities share.

    Args:
        fully_qualified_namespace: Host name of the namespace; see ``ServiceBusClient``.
        credential: See ``ServiceBusClient``.
        kafka_token_provider: See ``ServiceBusClient``.
        **unsupported: See ``ServiceBusClient``.

    Raises:
        ValueError: The settings do not say where Kafka or Redis is.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: object = None,
        *,
        kafka_token_provider: TokenProvider | None = None,
        **unsupported: object,
    ) -> None:
        warn_unsupported(unsupported)
        self._open(
            settings_for(
                host_of(fully_qualified_namespace), credential=credential, kafka_token_provider=kafka_token_provider
            )
        )

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        environment: Mapping[str, str] | None = None,
        kafka_token_provider: TokenProvider | None = None,
        **unsupported: object,
    ) -> Self:
        """Return an administration client of the namespace that a connection string names.

        Args:
            conn_str: The connection string. Put a value with a semicolon into double quotes, and write a quote inside it
                twice: ``KafkaSaslPassword="a;b""c"`` is ``a;b"c``.
            environment: ``KAFKABUS_…`` settings; the process's environment by default.
            kafka_token_provider: See ``ServiceBusClient``.
            **unsupported: See ``ServiceBusClient``.

        Raises:
            ValueError: The string is malformed, or the settings do not say where Kafka or Redis is.
        """
        warn_unsupported(unsupported)
        client = cls.__new__(cls)
        client._open(parse_settings(conn_str, environment, kafka_token_provider=kafka_token_provider))
        return client

    def _open(self, settings: Settings) -> None:
        self.fully_qualified_namespace = settings.fully_qualified_namespace
        self._settings = settings
        self._context: ClientContext | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @guard
    async def close(self) -> None:
        """Close the connections; the client can be used again."""
        context, self._context = self._context, None
        if context is not None:
            await context.close()

    @guard
    async def create_namespace(self, tier: str = "Standard", partitions: int | None = None) -> NamespaceProperties:
        """Create the namespace, if it does not exist yet; kafkabus's own, Azure has a portal for it.

        Without this call, the first queue or topic creates a Standard namespace.

        Args:
            tier: ``Basic``, ``Standard`` or ``Premium``; fixed from now on.
            partitions: Number of partitions of every entity in a Premium namespace, 1 for plain ones; fixed from now on.

        Raises:
            InvalidOperationError: The namespace was created with another tier or number, or the two do not go together.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        try:
            description = await self._connections().catalog.create_namespace(_tier(tier), partitions)
        except ValueError as error:
            raise InvalidOperationError(
                ErrorText("the namespace cannot be created: ", reason_of(error)), error=error
            ) from error
        return namespace_properties(self._settings.namespace, description)

    @guard
    async def get_namespace_properties(self) -> NamespaceProperties:
        """Return the namespace's tier, and the number of partitions if the namespace fixes it.

        Raises:
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return namespace_properties(self._settings.namespace, await self._namespace())

    @guard
    async def update_namespace(self, *, longest_lock: timedelta | str) -> NamespaceProperties:
        """Change a setting of the namespace; kafkabus's own.

        Programs that run see the change at their next look at the namespace, after 5 seconds at the latest.

        Args:
            longest_lock: The longest ``lock_duration`` that entities may have: 5 minutes, as on the service, to a day.

        Raises:
            InvalidOperationError: The value is out of its bounds, or an entity has a longer lock; nothing was changed.
            NamespaceFormatError: The namespace's format has no place for it.
            OperationTimeoutError: Another client changes the namespace.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        try:
            changed = await self._connections().maintenance.namespace_changes.set_longest_lock(longest_lock)
        except ValueError as error:
            raise InvalidOperationError(
                ErrorText("the namespace cannot be updated: ", reason_of(error)), error=error
            ) from error
        return namespace_properties(self._settings.namespace, changed)

    async def _namespace(self) -> NamespaceDescription:
        """Return the namespace's description as it is now; that of a Standard one if it does not exist yet."""
        context = self._connections()
        return await context.descriptions.namespace() or await context.catalog.namespace()

    @guard
    async def upgrade_namespace(self) -> NamespaceProperties:
        """Bring the namespace into the latest format, for good; kafkabus's own.

        Programs may go on while this runs, which takes 70 seconds. It can be run again if it was cut off, and does nothing in
        a namespace of the latest format.

        Raises:
            InvalidOperationError: The namespace does not exist yet, or programs of earlier versions, which the error names, use
                it; nothing was changed.
            OperationTimeoutError: Another client upgrades the namespace.
            ServiceBusCommunicationError: Kafka or Redis cannot be reached.
        """
        return namespace_properties(
            self._settings.namespace, await self._connections().maintenance.format_upgrade.run()
        )

    async def _count_dead(self, path: EntityPath, description: EntityDescription) -> list[int]:
        """Count the messages of each partition of a dead-letter queue, which may not have been needed yet."""
        context, topic = self._connections(), topic_name(self._settings.namespace, path)
        described = await context.topics.describe(topic)
        if described is None:
            return [0] * description.partitions
        counts = await self._counts(path, description, topic, described.topic_id)
        return [sum(both) for both in zip(counts.active, counts.moving, strict=True)]

    async def _access_time(self, path: EntityPath, description: EntityDescription) -> datetime:
        context = self._connections()
        entity = self._entity(path, description, description.topic_id)
        sent = await context.topics.newest(entity.topic, range(entity.partitions))
        received = await context.ledger_client.last_heartbeat(entity.receivers_key)
        return latest_use(description, sent, received)

    async def _bytes(self, topic: str, counts: Sequence[int]) -> int:
        """Estimate the bytes of so many messages of each of a topic's partitions, by the mean size of a few of them.

        The samples are taken at the end of each log, where most of the messages are that are not settled.
        """
        context = self._connections()
        total = sum(counts)
        if not total:
            return 0
        ends = await context.topics.ends(topic, range(len(counts)))
        starts = await context.topics.starts(topic, range(len(counts)))
        last_ones = [
            (partition, max(starts[partition], ends[partition] - count), ends[partition])
            for partition, count in enumerate(counts)
            if count and ends[partition] > starts[partition]
        ]

        async def look(partition: int, first: int, last: int) -> list[int]:
            # If a sample cannot be read, the caller still gets an estimate by the others.
            with suppress(ServiceBusError):
                return [
                    size_of(record)
                    for record in await context.connections.offset_reader.read(topic, partition, first, last)
                ]
            return []

        places: set[tuple[int, int, int]] = set()
        for probe, (partition, first, end) in zip(range(PROBES), itertools.cycle(last_ones), strict=False):
            at = first + (end - first) * probe // PROBES
            places.add((partition, at, min(end, at + PROBED) - 1))
        sizes = [
            size
            for partition_sizes in await all_of(partial(look, *place) for place in places)
            for size in partition_sizes
        ]
        return round(total * sum(sizes) / len(sizes)) if sizes else 0

    async def _counts(
        self, path: EntityPath, description: EntityDescription, topic: str, topic_id: str
    ) -> PartitionCounts:
        """Count the messages of each partition."""
        context = self._connections()
        entity = self._entity(path, description, topic_id)
        # Cursors before ends: a cursor is never beyond the end that is asked for afterwards.
        states = await context.ledger_client.states(entity.ledgers)
        ends = await context.topics.ends(topic, range(entity.partitions))
        starts = await context.topics.starts(topic, range(entity.partitions))
        scheduled = [0 if state is None else state.scheduled for state in states]
        moving = [0 if state is None else state.moving for state in states]
        skipped = [frozenset[int]()] * entity.partitions
        if entity.detects_duplicates or any(state is not None and state.skipped for state in states):
            skipped = await self._find_skipped(await context.catalog.entity(path))
        holes = await self._holes(entity, states, ends, skipped)
        ahead = [
            ends[partition] - starts[partition]
            if state is None
            else max(0, ends[partition] - state.cursor - len(skipped[partition]) - holes[partition])
            for partition, state in enumerate(states)
        ]
        return PartitionCounts(
            active=[
                waiting + (0 if state is None else max(0, state.in_flight - state.scheduled - state.moving))
                for waiting, state in zip(ahead, states, strict=True)
            ],
            postponed=[0 if state is None else state.postponed for state in states],
            scheduled=scheduled,
            moving=moving,
            sessions=(await self._count_sessions([(entity, ahead)])).get(path.key),
        )

    async def _count_sessions(self, counted: Sequence[tuple[Entity, Sequence[int]]]) -> dict[str, SessionCounts]:
        """Count the sessions of those entities that have some, by the keys of their paths.

        Args:
            counted: The entities, and of each how many messages of each partition no receiver has come to yet.
        """
        with_sessions = [(entity, ahead) for entity, ahead in counted if entity.has_sessions]
        ledgers = [ledger for entity, _ in with_sessions for ledger in entity.ledgers]
        figures = iter(await self._connections().ledger_client.figures(ledgers) if ledgers else ())
        found: dict[str, SessionCounts] = {}
        for entity, ahead in with_sessions:
            known = [ledger for ledger in itertools.islice(figures, entity.partitions) if ledger is not None]
            found[entity.path.key] = SessionCounts(
                available=sum(ledger.free_sessions for ledger in known) + sum(map(bool, ahead)),
                locked=sum(ledger.held_sessions for ledger in known),
            )
        return found

    async def _holes(
        self,
        entity: Entity,
        states: Sequence[LedgerState | None],
        ends: Mapping[int, int],
        skipped: Sequence[Set[int]],
    ) -> list[int]:
        """Count the offsets of each partition, beyond the cursor, that hold no message: a transaction ended there, say.

        Short logs are read; for long ones, and logs that cannot be read, upkeep's last report counts.
        """
        context = self._connections()
        told = await context.ledger_client.holes(holes_key(entity.namespace, entity.path, entity.generation))
        holes = [told.get(partition, 0) for partition in range(entity.partitions)]
        deadline = time.monotonic() + LOOK_FOR
        for partition, state in enumerate(states):
            if (
                state is not None
                and state.transacts
                and 0 < ends[partition] - state.cursor <= LOOKED_THROUGH
                and time.monotonic() < deadline
            ):
                with suppress(ServiceBusError):
                    places = set(range(state.cursor, ends[partition]))
                    records = await context.connections.offset_reader.read(
                        entity.topic, partition, state.cursor, ends[partition] - 1, LOOK_FOR
                    )
                    there = {record.offset() or 0 for record in entity.select_received(records)}
                    holes[partition] = len(places - there - skipped[partition])
        return holes

    async def _find_skipped(self, entity: Entity) -> list[frozenset[int]]:
        """Return the records of each partition, beyond the cursor, that will not be granted."""
        context = self._connections()
        await context.duplicate_scan.scan_all(entity, range(entity.partitions))
        peeks = [Peek(ledger, NEVER, 1) for ledger in entity.ledgers]
        await context.ledger_client.execute(*peeks)
        return [frozenset(peek.skipped) for peek in peeks]

    async def _availability(self, description: EntityDescription) -> EntityAvailabilityStatus:
        context = self._connections()
        return _availability_of(await context.topics.describe(description.topic))

    async def _get_known(self, kind: type[D], name: str) -> D:
        """Return the description of an entity of a kind.

        Raises:
            MessagingEntityNotFoundError: There is no entity of that kind and name.
        """
        descriptions = self._connections().descriptions
        description = await descriptions.get(name)
        if not isinstance(description, kind):
            near = description or await descriptions.nearest(name)
            remedy = (
                ErrorText(Term(f"list_{WORDS[kind]}s"), " shows what there is")
                if near is None
                else f"did you mean {label_of(type(near), near.name)}?"
            )
            raise MessagingEntityNotFoundError(
                ErrorText(f"there is no {label_of(kind, name)} in namespace {self._settings.namespace!r}: ", remedy)
            )
        return description

    async def _list_entities(self, kind: type[P], listed: Sequence[EntityDescription]) -> AsyncIterator[P]:
        """Yield the settings of entities; their topics are looked up together."""
        context = self._connections()
        namespace = await context.catalog.namespace()
        for first in range(0, len(listed), LISTED_AT_ONCE):
            batch = listed[first : first + LISTED_AT_ONCE]
            topics = await context.topics.describe_all(list({description.topic for description in batch}))
            for description in batch:
                availability = _availability_of(topics.get(description.topic))
                yield properties_of(
                    kind, description, namespace, availability, self._settings.fully_qualified_namespace
                )

    async def _count_entities(
        self,
        listed: Sequence[D],
        count: Callable[[D], Awaitable[C]],
        count_empty: Callable[[Sequence[D]], Awaitable[Mapping[str, C]]] | None = None,
    ) -> AsyncIterator[C]:
        """Count entities as they are now, and leave out those that were deleted since they were listed.

        Args:
            listed: The entities.
            count: Counts one of them.
            count_empty: Returns the counts of those of several that hold nothing, by name: that takes less time.
        """
        for first in range(0, len(listed), LISTED_AT_ONCE):
            batch = listed[first : first + LISTED_AT_ONCE]
            described = await self._connections().descriptions.get_many([description.name for description in batch])
            known = [now for description, now in zip(batch, described, strict=True) if _is_still(now, description)]
            empty = {} if count_empty is None else await count_empty(known)
            remaining = [description for description in known if description.name not in empty]
            counts: list[C | None] = await all_of(partial(self._count, description, count) for description in remaining)
            counted = {**empty, **dict(zip([description.name for description in remaining], counts, strict=True))}
            for description in known:
                found = counted[description.name]
                if found is not None:
                    yield found

    async def _count(self, listed: D, count: Callable[[D], Awaitable[C]]) -> C | None:
        """Count an entity; None if it was deleted since it was listed."""
        try:
            return await count(listed)
        except ServiceBusError:
            description = await self._as_it_is_now(listed)
            if description is None or description.status is EntityStatus.DELETING:
                return None
            raise

    async def _as_it_is_now(self, listed: D) -> D | None:
        """Return the current description of an entity; None if the entity was deleted since."""
        known = await self._connections().descriptions.get(listed.name)
        return known if _is_still(known, listed) else None

    async def _check_new(
        self, kind: type[D], name: str, enable_partitioning: bool | None, given: Mapping[str, object]
    ) -> D:
        """Return the description of a new queue or topic, without its topic's id.

        Raises:
            MessagingEntityAlreadyExistsError: There is an entity of that name.
            InvalidOperationError: A setting is out of its bounds.
        """
        context, path = self._connections(), EntityPath(check_name(check_entity, name))
        await self._check_free(name)
        namespace = await context.descriptions.namespace()
        if namespace is None:
            # Another client may create it first, in another tier.
            with suppress(NamespaceRuleError):
                await context.catalog.create_namespace()
            namespace = await self._namespace()
        try:
            partitions = namespace.partitions_for(enable_partitioning)
        except NamespaceRuleError as error:
            raise InvalidOperationError(
                ErrorText(f"{label_of(kind, name)} cannot be created: ", text_of_error(error)), error=error
            ) from error
        now = datetime.now(timezone.utc)
        empty = kind(
            name=name,
            enable_partitioning=partitions > 1,
            partitions=partitions,
            topic=check_name(topic_name, self._settings.namespace, path),
            topic_id="",
            created_at=now,
            updated_at=now,
        )
        description = validate(kind, change_fields(empty, given), "created")
        obey(namespace, description)
        self._check_format(description)
        return description

    async def _create_entity(
        self, kind: type[D], name: str, enable_partitioning: bool | None, given: Mapping[str, object]
    ) -> D:
        """Create a queue or topic; return its description.

        Raises:
            MessagingEntityAlreadyExistsError: There is an entity of that name.
            InvalidOperationError: A setting is out of its bounds.
            ServiceBusQuotaExceededError: The namespace holds as many as it may.
        """
        context, description = self._connections(), await self._check_new(kind, name, enable_partitioning, given)
        namespace, partitioned = await context.catalog.namespace(), description.enable_partitioning
        token = uuid.uuid4().hex
        existing = await context.descriptions.reserve(name, token, partitioned=partitioned)
        is_reached = True
        try:
            namespace.check_room(description.partitions, *existing)
            description = await self._create_log(description)
            await context.descriptions.put(description)
        except NamespaceRuleError as error:
            raise ServiceBusQuotaExceededError(
                f"{label_of(kind, name)} cannot be created: {error}", error=error
            ) from error
        except ServiceBusCommunicationError:
            # The caller has waited for long, and the reservation ends by itself.
            is_reached = False
            raise
        finally:
            if is_reached:
                await context.descriptions.give_back(name, token, partitioned=partitioned)
        return description

    async def _create_log(self, description: D) -> D:
        """Create the Kafka topic of a new queue or topic, and its ledgers; return the description with the topic's id."""
        context = self._connections()
        await context.catalog.check_rights(EntityPath(description.name), description)
        # The broker lets one of several creations win.
        if not await context.topics.create_entity(description.topic, description.partitions):
            await self._wait_for_other(description.name)
        topic = await context.topics.wait_for(description.topic)
        if topic.partitions != description.partitions:
            raise InvalidOperationError(
                f"Kafka's topic {topic.name!r} exists with {topic.partitions} partitions and belongs to no entity; "
                f"{label_of(type(description), description.name)} needs {description.partitions}: delete it or choose another "
                "name"
            )
        description = description.model_copy(update={"topic_id": topic.topic_id})
        await context.catalog.create_ledgers(self._entity(EntityPath(description.name), description).ledgers)
        return description

    async def _check_free(self, name: str) -> None:
        if (description := await self._connections().descriptions.get(name)) is not None:
            raise MessagingEntityAlreadyExistsError(
                f"there is a {label_of(type(description), name)} already: use it as it is, or choose another name"
            )

    async def _wait_for_other(self, name: str) -> None:
        """Wait for another creation, which made the topic but no description yet: it is under way, or was cut off."""
        deadline = time.monotonic() + CREATION_PATIENCE
        while time.monotonic() < deadline:
            await self._check_free(name)
            await sleep(0.1)

    async def _update(
        self,
        kind: type[D],
        name: str,
        properties: type[EntityProperties],
        given: Mapping[str, object],
        settings: Mapping[str, object],
    ) -> D:
        """Return the description of an entity with some of its settings changed.

        Args:
            kind: The kind of the entity.
            name: The entity's name.
            properties: The class that names the settings of that kind.
            given: All settings.
            settings: Settings that override those in ``given``.

        Raises:
            TypeError: Settings are missing.
            InvalidOperationError: A setting is unknown, out of its bounds, or fixed at creation.
            MessagingEntityNotFoundError: There is no such entity, or it is being deleted.
        """
        missing = properties.settings() - set(given) - set(settings)
        if missing:
            raise TypeError(
                f"settings are missing: {sorted(missing)}; change what get_{WORDS[kind]} returns, and give that"
            )
        wanted = {
            setting: value for setting, value in {**given, **settings}.items() if setting not in {"name", *READ_ONLY}
        }
        unknown = wanted.keys() - properties.settings()
        if unknown:
            raise InvalidOperationError(
                f"there are no settings {sorted(unknown)}: choose from {sorted(properties.settings())}"
            )
        known = await self._get_known(kind, name)
        if known.status is EntityStatus.DELETING:
            # It would be there again for others, who would lose what they give it.
            raise MessagingEntityNotFoundError(
                f"{label_of(kind, known.name)} is being deleted: nothing of it changes any more"
            )
        for setting in sorted(FIXED & wanted.keys()):
            value = wanted.pop(setting)
            if value is not None and value != getattr(known, setting):
                raise InvalidOperationError(
                    ErrorText(
                        Term(setting),
                        f"={value!r} of {label_of(kind, name)}: fixed at creation as {getattr(known, setting)!r}; create "
                        f"another {WORDS[kind]}",
                    )
                )
        own = known.topic_entity if isinstance(known, SubscriptionDescription) else known.name
        await self._resolve_destinations(wanted, known, to_others_than=own)
        if known.retiring_at is not None and wanted.get("status") == EntityStatus.DELETING:
            # Callers get this status of an entity that is to be deleted as it is idle; this update is use, and keeps it.
            wanted["status"] = known.status
        now = datetime.now(timezone.utc)
        description = validate(
            kind, {**change_fields(known, wanted), "updated_at": now, "retiring_at": None}, "updated"
        )
        obey(await self._namespace(), description, known)
        self._check_format(description)
        return description

    def _check_format(self, description: EntityDescription) -> None:
        """Refuse a description that the namespace's format cannot store.

        Raises:
            NamespaceFormatError: It has a retry policy, or a destination of unmatched messages, and the format is 1.
        """
        if self._connections().descriptions.written_format != FIRST:
            return
        label = label_of(type(description), description.name)
        if description.retry_policy is not None:
            raise NamespaceFormatError(needs_latest(f"the retry policy of {label}", self._settings.namespace))
        if getattr(description, "unmatched_to", None) is not None:
            raise NamespaceFormatError(
                needs_latest(f"the destination of unmatched messages of {label}", self._settings.namespace)
            )

    async def _properties(self, kind: type[P], description: EntityDescription) -> P:
        return properties_of(
            kind,
            description,
            await self._connections().catalog.namespace(),
            await self._availability(description),
            self._settings.fully_qualified_namespace,
        )

    async def _resolve_destinations(
        self, settings: dict[str, object], known: EntityDescription | None = None, *, to_others_than: str
    ) -> None:
        """Replace each destination of forwarded messages, an address or a name, by the name of an existing entity.

        Args:
            settings: Settings of the entity that forwards.
            known: The present description of that entity; None if it is to be created.
            to_others_than: The name of the queue or topic that the messages come from.

        Warns:
            UserWarning: The messages come back to that queue or topic, until they have moved on as often as they may.

        Raises:
            InvalidOperationError: A destination is no valid name, or an address of another namespace; or unmatched messages
                would come back to their topic.
            MessagingEntityNotFoundError: A destination does not exist; a destination that is set already is not checked.
        """
        for setting in ("forward_to", "forward_dead_lettered_messages_to", "unmatched_to"):
            value = settings.get(setting)
            if value is None:
                continue
            name = self._name_of(setting, value)
            is_new = name != getattr(known, setting, None)
            if is_new and setting == "unmatched_to" and await self._leads_to(name, to_others_than):
                raise InvalidOperationError(
                    ErrorText(
                        Term(setting),
                        f"={value!r}: messages that no subscription wants would come back to topic {to_others_than!r}, where "
                        "none wants them: choose a queue or topic that does not forward there",
                    )
                )
            if is_new and await self._connections().descriptions.get(name) is None:
                raise MessagingEntityNotFoundError(
                    ErrorText(
                        Term(setting),
                        f"={value!r}: there is no queue or topic {name!r} in namespace {self._settings.namespace!r}: create it "
                        "first",
                    )
                )
            if setting == "forward_to" and await self._leads_to(name, to_others_than):
                warn(
                    f"{setting}={value!r}: its messages come back to {to_others_than!r}, and end in a transfer dead-letter "
                    f"queue once they have moved on {MAX_HOPS} times; choose another queue or topic, unless that is meant"
                )
            settings[setting] = name

    async def _leads_to(self, first: str, origin: str) -> bool:
        """Return whether messages to one entity are forwarded to another one, or the two are the same."""
        context = self._connections()
        reached, ahead = set[str](), {first.lower()}
        while ahead and origin.lower() not in ahead:
            reached |= ahead
            known = [
                description
                for description in await context.descriptions.get_many(sorted(ahead))
                if description is not None
            ]
            for topic in list(known):
                known += await context.catalog.subscriptions_of(topic)
            ahead = {
                description.forward_to.lower() for description in known if description.forward_to is not None
            } - reached
        return origin.lower() in ahead

    def _name_of(self, setting: str, value: object) -> str:
        """Return the entity's name in an address of it; leave a name as it is."""
        host, name = self._settings.fully_qualified_namespace, str(value)
        if "://" in name:
            parts = urlsplit(name)
            if (parts.hostname or "") != host.lower():
                raise InvalidOperationError(
                    ErrorText(Term(setting), f"={value!r}: messages are forwarded within their namespace, {host}")
                )
            name = parts.path.strip("/")
        try:
            return check_entity(name)
        except NameRuleError as error:
            raise InvalidOperationError(ErrorText(Term(setting), f"={value!r}: {error}"), error=error) from error

    def _entity(self, path: EntityPath, description: EntityDescription, topic_id: str | None = None) -> Entity:
        borrowed = isinstance(description, SubscriptionDescription) and not path.is_dead_letter
        topic = description.topic if borrowed else topic_name(self._settings.namespace, path)
        return self._connections().catalog.make_entity(path, description, topic, topic_id or description.topic_id)

    def _connections(self) -> ClientContext:
        if self._context is None:
            self._context = ClientContext(self._settings)
            self._context.registry.kind = "administration"
        return self._context


def _is_still(known: EntityDescription | None, listed: D) -> TypeGuard[D]:
    """Return whether an entity is described now that was listed, and not another one of its name."""
    return isinstance(known, type(listed)) and known.generation == listed.generation


def latest_use(description: EntityDescription, *moments: int | None) -> datetime:
    """Return the latest of several times, ms since 1970, or when the entity was created."""
    return max([description.created_at, *(from_milliseconds(moment) for moment in moments if moment is not None)])


def _availability_of(topic: Topic | None) -> EntityAvailabilityStatus:
    if topic is None:
        return EntityAvailabilityStatus.UNKNOWN
    return EntityAvailabilityStatus.LIMITED if topic.unavailable else EntityAvailabilityStatus.AVAILABLE


class NameTypeError(InvalidOperationError, TypeError):
    """A name is no text; the service's administration has one error for that and for a text that is no name."""


def check_name(check: Callable[P_NAMES, str], *names: P_NAMES.args, **more: P_NAMES.kwargs) -> str:
    """Return the result of a check of names, and refuse a name as the service's administration does.

    Raises:
        InvalidOperationError: The name breaks a rule; the error is a ValueError, too, and a TypeError if the name is no text.
    """
    try:
        return check(*names, **more)
    except NameRuleError as error:
        raise InvalidOperationError(str(error), error=error) from error
    except TypeError as error:
        raise NameTypeError(str(error), error=error) from error


def label_of(kind: type[EntityDescription], name: str) -> str:
    """Return the words by which errors name an entity."""
    if kind is SubscriptionDescription:
        topic, _, own = name.partition(SUBSCRIPTIONS)
        return f"subscription {own!r} of topic {topic!r}"
    return f"{WORDS[kind]} {name!r}"


def validate(kind: type[D], settings: Mapping[str, object], verb: str) -> D:
    """Return a description with these settings.

    Raises:
        InvalidOperationError: A setting is out of its bounds.
    """
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise InvalidOperationError(
            ErrorText(f"{label_of(kind, str(settings['name']))} cannot be {verb}: ", reason_of(error)), error=error
        ) from error


def obey(
    namespace: NamespaceDescription, description: EntityDescription, known: EntityDescription | None = None
) -> None:
    """Refuse a description that the namespace does not allow, or whose status a caller cannot set.

    Args:
        namespace: The namespace.
        description: The description.
        known: The description before an update; None if the entity is created.

    Raises:
        InvalidOperationError: The description is refused.
    """
    if description.status not in SETTABLE:
        word = WORDS[type(description)]
        raise InvalidOperationError(
            ErrorText(
                f"{label_of(type(description), description.name)}: status {description.status.value!r} cannot be set: choose "
                f"from {[status.value for status in SETTABLE]}, or delete it with ",
                Term(f"delete_{word}"),
            )
        )
    try:
        namespace.check_entity(description)
        check_forwarding(known, description)
    except NamespaceRuleError as error:
        raise InvalidOperationError(
            ErrorText(f"{label_of(type(description), description.name)}: ", text_of_error(error)), error=error
        ) from error


def reason_of(error: ValueError) -> str:
    """Return what is wrong, without what pydantic adds, and without the values of authorization rules, which hold keys."""
    if not isinstance(error, ValidationError):
        return text_of_error(error)
    reasons: list[str | Term] = []
    for problem in error.errors():
        if problem["loc"][:1] == ("retry_policy",):
            reasons += ["; " if reasons else "", Term("retry_policy"), f": {policy_fault(problem)}"]
            continue
        value = "" if "authorization_rules" in problem["loc"] else f"={problem['input']}"
        where = ".".join(str(part) for part in problem["loc"])
        reasons += ["; " if reasons else "", Term(where), f"{value}: {problem['msg']}"]
    return ErrorText(*reasons)


def _tier(tier: str) -> Tier:
    for known in Tier:
        if known.value.lower() == str(tier).lower():
            return known
    raise ValueError(f"tier {tier!r}: choose from {[known.value for known in Tier]}")
