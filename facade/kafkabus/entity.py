"""An entity as a client knows it: its description, its topic, its ledgers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from kafkabus.ledger.keys import LedgerKeys, doorbell_channel, receivers_key
from kafkabus.ledger.operations import Ledger
from kafkabus.ledger.ranges import NEVER
from kafkabus.record import Delivery
from kafkabus_mapping.entities import FOREVER, QueueDescription
from kafkabus_mapping.names import EntityPath


def generation_of(path: EntityPath, description: QueueDescription, topic_id: str) -> str:
    """The generation of an entity of a queue that is described so."""
    incarnation = description.dead_letter_incarnation if path.is_dead_letter else description.incarnation
    return f"{topic_id}.{incarnation}" if incarnation else topic_id


def has_sessions(path: EntityPath, description: QueueDescription) -> bool:
    """Whether an entity of a queue that is described so has sessions; dead-letter queues have none."""
    return description.requires_session and not path.is_dead_letter


def detects_duplicates(path: EntityPath, description: QueueDescription) -> bool:
    """Whether an entity of a queue that is described so detects duplicates; dead-letter queues do not."""
    return description.requires_duplicate_detection and not path.is_dead_letter


@dataclass(frozen=True, slots=True)
class Entity:
    """A queue or a dead-letter queue, bound to one client.

    Attributes:
        namespace: Name of its namespace.
        path: Which queue it is.
        description: Of the queue, also where this is its dead-letter queue.
        topic: Kafka topic.
        topic_id: The topic's id.
        partitions: How many it has.
        ledgers: One for each partition.
        max_message_bytes: Largest message, and largest batch.
    """

    namespace: str
    path: EntityPath
    description: QueueDescription
    topic: str
    topic_id: str
    partitions: int
    ledgers: tuple[Ledger, ...]
    max_message_bytes: int

    @classmethod
    def of(
        cls,
        namespace: str,
        path: EntityPath,
        description: QueueDescription,
        *,
        topic: str,
        topic_id: str,
        client_id: str,
        max_message_bytes: int = 0,
    ) -> Entity:
        """An entity as the client with this id uses it."""
        channel = doorbell_channel(namespace, path)
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
        return entity.described_as(description)

    def described_as(self, description: QueueDescription) -> Entity:
        """The entity once its queue is described so; its ledgers stay the same objects: they count this client's requests."""
        if self.path.is_dead_letter:
            description = description.model_copy(update={"default_message_time_to_live": FOREVER})
        return replace(self, description=description)

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
    ) -> Delivery:
        """A delivery of its messages; see ``Delivery``."""
        lives = self.description.default_message_time_to_live
        return Delivery(self.path.key, partition, lease, expiry, count, lives, deferred, session, scheduled)

    @property
    def has_sessions(self) -> bool:
        """Whether its messages are received in sessions."""
        return has_sessions(self.path, self.description)

    @property
    def detects_duplicates(self) -> bool:
        """Whether of messages with one id only the first within a while counts."""
        return detects_duplicates(self.path, self.description)

    @property
    def window_ms(self) -> int:
        """How long that while is, in milliseconds."""
        return self.description.duplicate_detection_history_time_window // timedelta(milliseconds=1)

    @property
    def generation(self) -> str:
        """The topic's id, and which incarnation of its ledgers it is; state of another one means nothing here."""
        return generation_of(self.path, self.description, self.topic_id)

    @property
    def channel(self) -> str:
        """Its doorbell."""
        return doorbell_channel(self.namespace, self.path)

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
        """Whether its messages have times to live; those of a dead-letter queue stay until somebody settles them."""
        return not self.path.is_dead_letter

    @property
    def life_ms(self) -> int | None:
        """How long a message that brings no time to live may be received, in milliseconds; None: for ever."""
        lives = self.description.default_message_time_to_live
        return None if lives >= FOREVER else lives // timedelta(milliseconds=1)

    @property
    def keeps_expired(self) -> bool:
        """Whether messages whose time to live is over are dead-lettered."""
        return self.description.dead_lettering_on_message_expiration and not self.path.is_dead_letter

    @property
    def max_deliveries(self) -> int:
        """After how many deliveries a message is dead-lettered; a dead-letter queue has no end of them."""
        return NEVER if self.path.is_dead_letter else self.description.max_delivery_count
