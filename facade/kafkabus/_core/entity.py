"""An entity as a client knows it: its description, its topic, its ledgers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from kafkabus._core.delivery import Delivery
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus._core.record import Record
from kafkabus._core.subscription_filter import SubscriptionFilter
from kafkabus._ledger.keys import LedgerKeys, notification_channel, receivers_key
from kafkabus._ledger.operations import Ledger
from kafkabus._ledger.ranges import NEVER
from kafkabus_mapping.codec import Envelope
from kafkabus_mapping.entities import (
    FOREVER,
    EntityDescription,
    EntityStatus,
    SubscriptionDescription,
    TopicDescription,
    generation_of,
    holder_id_of,
)
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.keys import effective_key
from kafkabus_mapping.names import EntityPath, SubQueue


class LedgersReplacedError(ServiceBusError):
    """Other ledgers of the entity have replaced those that were asked; nothing was done, and the new ones may be asked.

    If anything was lost by the replacement, the client that made it has reported that; see docs/decisions/0013-generations.md.
    """

    retryable = True


def has_sessions(path: EntityPath, description: EntityDescription) -> bool:
    """Return whether an entity of a queue with this description has sessions; dead-letter queues have none."""
    return description.requires_session and not path.is_dead_letter


def detects_duplicates(path: EntityPath, description: EntityDescription) -> bool:
    """Return whether an entity of a queue with this description detects duplicates; dead-letter queues do not."""
    return description.requires_duplicate_detection and not path.is_dead_letter


def retries_of(description: EntityDescription) -> str | None:
    """Return an entity's retry policy, as the ledgers' scripts read it; None if it has none."""
    policy = description.retry_policy
    if policy is None:
        return None
    return json.dumps({"delays": policy.delays_ms, "most": description.max_delivery_count}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Entity:
    """A queue, topic or subscription, or one of their dead-letter queues, bound to one client.

    Attributes:
        namespace: The name of its namespace.
        path: The path of the entity.
        description: The description of the queue, topic or subscription, also if this is one of its dead-letter queues.
        topic: The Kafka topic.
        topic_id: The topic's id.
        partitions: How many partitions it has.
        ledgers: One for each partition.
        max_message_bytes: The size limit of a message and of a batch; 0 if the client did not look it up.
        full: Partitions that have reached their maximum size.
        subscription_filter: The filter that decides which records of the log are its messages; None if all are.
    """

    namespace: str
    path: EntityPath
    description: EntityDescription
    topic: str
    topic_id: str
    partitions: int
    ledgers: tuple[Ledger, ...]
    max_message_bytes: int
    full: frozenset[int] = frozenset()
    subscription_filter: SubscriptionFilter | None = None

    @classmethod
    def create(
        cls,
        namespace: str,
        path: EntityPath,
        description: EntityDescription,
        *,
        topic: str,
        topic_id: str,
        client_id: str,
        max_message_bytes: int = 0,
    ) -> Entity:
        """Return an entity for the client with this id."""
        channel = notification_channel(namespace, path)
        generation = generation_of(path, description, topic_id)
        ledgers = tuple(
            Ledger(
                LedgerKeys.of(
                    namespace,
                    path,
                    generation,
                    partition,
                    sessions=has_sessions(path, description),
                    detects=detects_duplicates(path, description),
                ),
                partition=partition,
                channel=channel,
                client_id=client_id,
            )
            for partition in range(description.partitions)
        )
        partitions = description.partitions
        entity = cls(namespace, path, description, topic, topic_id, partitions, ledgers, max_message_bytes)
        return entity.with_description(description)

    def with_description(self, description: EntityDescription) -> Entity:
        """Return the entity with this description; its ledgers stay the same objects, which count this client's requests.

        The ledgers go by the description's retry policy from now on.
        """
        subscription_filter = None
        if self.path.is_dead_letter:
            description = description.model_copy(update={"default_message_time_to_live": FOREVER})
        elif isinstance(description, SubscriptionDescription):
            description = _with_shorter_life(description)
            same = self.subscription_filter is not None and description == self.description
            subscription_filter = self.subscription_filter if same else _filter_of(description, self.max_message_bytes)
        retries = None if self.path.is_dead_letter else retries_of(description)
        for ledger in self.ledgers:
            ledger.retries = retries
        return replace(self, description=description, subscription_filter=subscription_filter)

    def delivery(
        self,
        partition: int,
        lease: str,
        expiry: int,
        count: int,
        *,
        deferred: bool = False,
        session: bool = False,
        scheduled: bool = False,
        postponed_until: int | None = None,
        locked_until: int | None = None,
    ) -> Delivery:
        """Return a delivery of its messages; see ``Delivery``."""
        lives = self.description.default_message_time_to_live
        return Delivery(
            self.path.key,
            partition,
            lease,
            expiry,
            count,
            lives,
            deferred,
            session,
            scheduled,
            postponed_until,
            locked_until,
        )

    @property
    def kind(self) -> str:
        """The kind of the entity: queue, topic or subscription; a dead-letter queue has the kind of its owner."""
        return self.description.kind

    def check_in_use(self) -> None:
        """Refuse an entity that no longer takes and gives messages.

        Raises:
            MessagingEntityNotFoundError: The entity is about to be deleted.
        """
        description = self.description
        if description.retiring_at is not None:
            raise MessagingEntityNotFoundError(
                ErrorText(
                    f"{description.kind} {description.name!r} is being deleted: it was not used for its ",
                    Term("auto_delete_on_idle"),
                    f", {description.auto_delete_on_idle}; create it again, or update it within a minute to keep it",
                )
            )

    @property
    def closing_status(self) -> str | None:
        """The status that keeps its messages from being received, in words; None if there is none."""
        description, closed = self.description, {EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED}
        if description.status in closed:
            return f"{description.kind} {self.path} has status {description.status.value}"
        if isinstance(description, SubscriptionDescription) and description.topic_status in closed:
            return f"topic {description.topic_entity} has status {description.topic_status.value}"
        return None

    def key_of(self, envelope: Envelope) -> str | None:
        """Return the key that decides a message's partition in this entity; None if the message has no key.

        Raises:
            KeyRuleError: The message's session and its partition key differ.
        """
        return effective_key(
            session_id=envelope.session_id,
            partition_key=envelope.partition_key,
            message_id=envelope.message_id,
            detects_duplicates=self.detects_duplicates,
        )

    def select_received(self, records: Sequence[Record]) -> list[Record]:
        """Return those of its log's records that are its messages, as a receiver gets them."""
        return list(records) if self.subscription_filter is None else self.subscription_filter.select_received(records)

    def change_granted(self, records: Sequence[Record]) -> list[Record]:
        """Return granted records, as a receiver gets them."""
        return list(records) if self.subscription_filter is None else self.subscription_filter.change_granted(records)

    @property
    def is_topic(self) -> bool:
        """Whether its messages are received from its subscriptions."""
        return isinstance(self.description, TopicDescription)

    @property
    def holder_id(self) -> str:
        """The id that distinguishes its ledgers, of all incarnations, from those of all other entities."""
        return holder_id_of(self.path, self.description, self.topic_id)

    @property
    def log_path(self) -> EntityPath:
        """The path of the entity that owns the log: a subscription's log is its topic's."""
        if isinstance(self.description, SubscriptionDescription) and not self.path.is_dead_letter:
            return EntityPath(self.description.topic_entity)
        return self.path

    @property
    def rules_version(self) -> int:
        """The version of the subscription's rules that the client knows; 0 if the entity has no rules."""
        return (
            self.description.rules_version
            if self.subscription_filter and isinstance(self.description, SubscriptionDescription)
            else 0
        )

    @property
    def has_sessions(self) -> bool:
        """Whether its messages are received in sessions."""
        return has_sessions(self.path, self.description)

    @property
    def detects_duplicates(self) -> bool:
        """Whether only the first of the messages with one id counts, within ``window_ms``."""
        return detects_duplicates(self.path, self.description)

    @property
    def forwards_to(self) -> EntityPath | None:
        """The entity that its messages move on to, so that no receiver gets them here; None if they stay."""
        names = {
            SubQueue.NONE: self.description.forward_to,
            SubQueue.DEAD_LETTER: self.description.forward_dead_lettered_messages_to,
        }
        name = names.get(self.path.sub_queue)
        return None if name is None else EntityPath(name)

    @property
    def window_ms(self) -> int:
        """How long duplicates of a message are detected, in milliseconds."""
        return self.description.duplicate_detection_history_time_window // timedelta(milliseconds=1)

    @property
    def generation(self) -> str:
        """The topic's id, a subscription's own, and the incarnation of its ledgers; state of other ones means nothing here."""
        return generation_of(self.path, self.description, self.topic_id)

    @property
    def channel(self) -> str:
        """The Redis channel of its notifications."""
        return notification_channel(self.namespace, self.path)

    @property
    def receivers_key(self) -> str:
        """The set of clients that receive from it."""
        return receivers_key(self.namespace, self.path)

    @property
    def lock_ms(self) -> int:
        """How long a message is locked, in milliseconds."""
        return max(1, self.description.lock_duration // timedelta(milliseconds=1))

    @property
    def expires(self) -> bool:
        """Whether its messages have times to live; those of a dead-letter queue stay until a receiver settles them."""
        return not self.path.is_dead_letter and not self.is_topic

    @property
    def life(self) -> timedelta | None:
        """How long a message without an individual time to live may be received; None: for ever."""
        lives = self.description.default_message_time_to_live
        return None if lives >= FOREVER else lives

    @property
    def life_ms(self) -> int | None:
        """How long a message without an individual time to live may be received, in milliseconds; None: for ever."""
        return None if self.life is None else self.life // timedelta(milliseconds=1)

    @property
    def keeps_expired(self) -> bool:
        """Whether messages whose time to live is over are dead-lettered."""
        return self.description.dead_lettering_on_message_expiration and not self.path.is_dead_letter

    @property
    def max_deliveries(self) -> int:
        """After how many deliveries a message is dead-lettered; ``NEVER`` in a dead-letter queue, or if it forwards them."""
        return (
            NEVER if self.path.is_dead_letter or self.forwards_to is not None else self.description.max_delivery_count
        )


def filter_of(description: SubscriptionDescription) -> SubscriptionFilter:
    """Return the filter of a subscription that is described so, for a program that asks only which messages it wants."""
    return _filter_of(_with_shorter_life(description), 0)


def _with_shorter_life(description: SubscriptionDescription) -> SubscriptionDescription:
    """Return a subscription whose messages live as long as its settings and its topic's allow."""
    lives = min(description.default_message_time_to_live, description.topic_time_to_live)
    return description.model_copy(update={"default_message_time_to_live": lives})


def _filter_of(description: SubscriptionDescription, max_message_bytes: int) -> SubscriptionFilter:
    lives = description.default_message_time_to_live
    return SubscriptionFilter(
        EntityPath(description.name).key,
        description.rule_sets,
        keeps_faulty=description.dead_lettering_on_filter_evaluation_exceptions,
        time_to_live=None if lives >= FOREVER else lives,
        max_message_bytes=max_message_bytes or None,
    )
