# Generated from facade/kafkabus/_async/connections.py by tools/generate_blocking.py. Do not edit.
"""The connections of a client to Kafka and Redis: one of each kind, shared by all that the client does."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence

from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.settings import Settings
from kafkabus._kafka.client_factory import open_topics
from kafkabus._kafka.consumer_pool import ConsumerPool
from kafkabus._ledger.operations import Ledger
from kafkabus._sync.compat import Pool
from kafkabus._sync.kafka.compacted_topic import CompactedTopic
from kafkabus._sync.kafka.offset_reader import OffsetReader
from kafkabus._sync.kafka.producer import RecordProducer
from kafkabus._sync.kafka.topic_admin import TopicAdmin
from kafkabus._sync.kafka.transactional_producer import TransactionalProducers
from kafkabus._sync.redis.connection import RedisConnection, connect
from kafkabus._sync.redis.ledger_client import LedgerClient
from kafkabus._sync.redis.notifications import Notifications
from kafkabus_mapping.names import compacted_topic_name

LOGGER = logging.getLogger("kafkabus")


KEYLESS_TIMEOUT = 15.0
"""After how many seconds another partition is tried for a message without a key."""
TRANSFER_TIMEOUT = 10.0
"""After how many seconds a transfer's record is given up; well within half of the time after which it is an orphan."""

Rebuild = Callable[[Sequence[Ledger]], Mapping[Ledger, ServiceBusError]]


class Connections:
    """One client's connections.

    Args:
        settings: The addresses and the name of the namespace.
        retry_for: For how long, in seconds, a call to Redis is made again while Redis cannot serve it.
        rebuild: Rebuilds ledgers that Redis lost; returns the errors of those that cannot be rebuilt.
    """

    def __init__(self, settings: Settings, *, retry_for: float, rebuild: Rebuild) -> None:
        self.settings = settings
        self.client_id = uuid.uuid4().hex
        self.pool = Pool("kafkabus")
        self.redis = connect(settings.redis_url.reveal())
        self.redis_connection = RedisConnection(
            self.redis, address=settings.redis_address, namespace=settings.namespace, retry_for=retry_for
        )
        self.ledger_client = LedgerClient(self.redis_connection, rebuild=rebuild)
        self.notifications = Notifications(self.redis, self.ledger_client, self.client_id)
        self.topics = TopicAdmin(open_topics(settings), self.pool)
        self.record_producer = RecordProducer(settings, self.pool)
        self.consumers = ConsumerPool(settings)
        self.offset_reader = OffsetReader(settings, self.pool)
        self.transactional_producers = TransactionalProducers(settings, self.client_id)
        self._guard = threading.Lock()
        self._keyless_producer: RecordProducer | None = None
        self._transfer_producer: RecordProducer | None = None

    @property
    def keyless_producer(self) -> RecordProducer:
        """The producer of messages without a key, which are given up soon enough to be sent to another partition."""
        with self._guard:
            if self._keyless_producer is None:
                self._keyless_producer = RecordProducer(self.settings, self.pool, message_timeout=KEYLESS_TIMEOUT)
            return self._keyless_producer

    @property
    def transfer_producer(self) -> RecordProducer:
        """The producer of transfers, whose records are given up sooner than those that senders wait for."""
        with self._guard:
            if self._transfer_producer is None:
                self._transfer_producer = RecordProducer(self.settings, self.pool, message_timeout=TRANSFER_TIMEOUT)
            return self._transfer_producer

    def compacted_topic(self, purpose: str, config: Mapping[str, str]) -> CompactedTopic:
        """Return one of the namespace's own topics."""
        return CompactedTopic(
            compacted_topic_name(self.settings.namespace, purpose),
            config,
            topics=self.topics,
            record_producer=self.record_producer,
            offset_reader=self.offset_reader,
            servers=self.settings.bootstrap_servers,
        )

    def reach_kafka(self) -> None:
        """Reach a broker, unless this client already did.

        Raises:
            ServiceBusAuthenticationError: Kafka refuses the credentials.
            ServiceBusCommunicationError: No broker can be reached; the message says why.
        """
        if not self.topics.has_contact:
            self.topics.reach()

    def open_transfer_producer(self) -> None:
        """Open the producer of transfers now: connecting takes half a second, for which the first transfer would wait."""
        _ = self.transfer_producer

    def close(self) -> None:
        """Have the waiting requests done, and close all connections."""
        try:
            self.ledger_client.flush()
        except ServiceBusError as error:
            LOGGER.warning("close client=%s error=%s", self.client_id, error)
        for producer in (self.record_producer, self._keyless_producer, self._transfer_producer):
            if producer is not None:
                producer.close()
        self.transactional_producers.close()
        self.notifications.end()
        self.consumers.end()
        self.offset_reader.close()
        self.pool.run(self.consumers.close)
        self.topics.close()
        self.pool.close()
        self.notifications.depart()
        self.redis.close()
        self.notifications.close()
