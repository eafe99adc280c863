"""The codes of errors that Kafka's client finds by itself; ``KafkaError`` has their names with an underscore before them."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN
AUTHENTICATION: Final = KafkaError._AUTHENTICATION
AUTO_OFFSET_RESET: Final = KafkaError._AUTO_OFFSET_RESET
DESTROY_BROKER: Final = KafkaError._DESTROY_BROKER
LOG_TRUNCATION: Final = KafkaError._LOG_TRUNCATION
MSG_TIMED_OUT: Final = KafkaError._MSG_TIMED_OUT
NOENT: Final = KafkaError._NOENT
PARTITION_EOF: Final = KafkaError._PARTITION_EOF
PURGE_QUEUE: Final = KafkaError._PURGE_QUEUE
RESOLVE: Final = KafkaError._RESOLVE
TIMED_OUT: Final = KafkaError._TIMED_OUT
TIMED_OUT_QUEUE: Final = KafkaError._TIMED_OUT_QUEUE
TRANSPORT: Final = KafkaError._TRANSPORT
UNKNOWN_PARTITION: Final = KafkaError._UNKNOWN_PARTITION
UNKNOWN_TOPIC: Final = KafkaError._UNKNOWN_TOPIC
