"""Options of Kafka's client for each of its roles."""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import cast

from confluent_kafka import KafkaError
from typing_extensions import override

from kafkabus._core.settings import Settings, TokenProvider
from kafkabus._kafka import error_codes
from kafkabus_mapping.names import owned_name
from kafkabus_mapping.secret import reveal_text

AGAIN_AFTER = 60.0
"""The time after which a repeated message of Kafka's client is logged again, in seconds."""


class _Sparingly(logging.Filter):
    """Logs each message of Kafka's client once a minute; the client repeats it for each attempt to connect and each handle."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._said: dict[str, float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        what = _VARIES.sub("", record.getMessage())
        now = time.monotonic()
        with self._guard:
            if now - self._said.get(what, -AGAIN_AFTER) < AGAIN_AFTER:
                return False
            self._said = {line: said for line, said in self._said.items() if now - said < AGAIN_AFTER}
            self._said[what] = now
        return True


_VARIES = re.compile(r"\[rdkafka#[^]]*\]|\(after [^)]*\)")
"""The parts of a log message that vary: the handle, and the time and number of attempts."""

LOGGER = logging.getLogger("kafkabus.kafka")
LOGGER.addFilter(_Sparingly())

PASSING = {
    error_codes.TRANSPORT,
    error_codes.ALL_BROKERS_DOWN,
    error_codes.RESOLVE,
    error_codes.TIMED_OUT,
    error_codes.TIMED_OUT_QUEUE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
}
"""Errors from which Kafka's client recovers by itself on the same connection."""
GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, error_codes.UNKNOWN_TOPIC, error_codes.UNKNOWN_PARTITION}
"""Errors of a topic that was deleted."""

Options = dict[str, str | int | float | bool]


def common_options(settings: Settings) -> Options:
    """Return the options that every role shares: addresses, TLS and SASL, quick reconnection."""
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "topic.metadata.refresh.interval.ms": 60_000,
        "topic.metadata.propagation.max.ms": 5_000,
        "log_level": 3,
        **{option: reveal_text(value) for option, value in settings.kafka_options.items()},
        # The stubs of Kafka's client know no callbacks here.
        **({"oauth_cb": cast("str", Tokens(provider))} if (provider := settings.kafka_token_provider) else {}),
    }


class Tokens:
    """The callback by which a client of Kafka asks for a token: when it is made, and before the last token expires.

    Args:
        provider: Returns a token.

    Attributes:
        failure: The error of the provider when it was last asked, or None.
    """

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider
        self.failure: Exception | None = None

    def __call__(self, _options: str) -> tuple[str, float]:
        """Return a token, and when it expires, in seconds since 1970."""
        try:
            found = self._provider()
            token, expires_on = found if isinstance(found, tuple) else (found.token, found.expires_on)
            self.failure = None
            return str(token), float(expires_on)
        except Exception as error:
            self.failure = error
            raise


def producer_options(settings: Settings, *, message_timeout: float) -> Options:
    """Return options of a producer: records are acknowledged once they are durable, and retries store none twice.

    Args:
        settings: Settings with Kafka's address.
        message_timeout: The time after which the client gives up a record, in seconds.
    """
    return {
        **common_options(settings),
        "enable.idempotence": True,
        "acks": "all",
        # Waiting callers flush, which ends the linger: it only keeps a batch from leaving in pieces.
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "message.max.bytes": 2_000_000,
        "message.timeout.ms": int(message_timeout * 1000),
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 262_144,
    }


def transactional_options(
    settings: Settings, transactional_id: str, *, timeout: float, message_timeout: float
) -> Options:
    """Return options of a producer that stores its records in transactions.

    Args:
        settings: Settings with Kafka's address.
        transactional_id: The producer's transactional id.
        timeout: The time after which the broker aborts an open transaction, in seconds.
        message_timeout: The time after which the client gives up a record, in seconds.
    """
    return {
        **producer_options(settings, message_timeout=message_timeout),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(timeout * 1000),
    }


def _consumer_options(settings: Settings, role: str) -> Options:
    """Return options of a consumer that assigns its partitions itself and never commits.

    Args:
        settings: Settings with Kafka's address.
        role: The last part of the group's name. Kafka's client requires a group.
    """
    return {
        **common_options(settings),
        "group.id": owned_name(settings.namespace, role),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        # With the default of a second, a consumer whose small queue was full is very slow.
        "fetch.queue.backoff.ms": 1,
        "fetch.error.backoff.ms": 100,
        "check.crcs": True,
    }


def prompt_consumer_options(settings: Settings) -> Options:
    """Return options of a consumer of partitions that are new or busy.

    Kafka's client has one fetch under way at each broker. While it has enough of the busy partitions, that is one of the idle
    ones alone, which the broker holds for a while; busy and new partitions wait behind it. So the while is short.

    Args:
        settings: Settings with Kafka's address.
    """
    return {
        **_consumer_options(settings, "prompt"),
        "fetch.wait.max.ms": 20,
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 32_768,
    }


def patient_consumer_options(settings: Settings) -> Options:
    """Return options of a consumer of partitions at which little happens; each fetch lists them all, so there are few.

    Args:
        settings: Settings with Kafka's address.
    """
    return {
        **_consumer_options(settings, "patient"),
        "fetch.wait.max.ms": 2_000,
        "queued.min.messages": 1_000,
        "queued.max.messages.kbytes": 16_384,
    }


def offset_reader_options(settings: Settings) -> Options:
    """Return options of a consumer that reads single records by offset, and so fetches little ahead.

    Args:
        settings: Settings with Kafka's address.
    """
    return {
        **_consumer_options(settings, "offset_reader"),
        "fetch.wait.max.ms": 10,
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 1_024,
        "fetch.message.max.bytes": 262_144,
    }


def stream_options(settings: Settings) -> Options:
    """Return options of a consumer that reads much of a log by offset, and so fetches ahead, by up to about 4 MB.

    Args:
        settings: Settings with Kafka's address.
    """
    return {
        **_consumer_options(settings, "offset_reader"),
        "fetch.wait.max.ms": 10,
        "queued.min.messages": 4_000,
        "queued.max.messages.kbytes": 4_096,
        "fetch.message.max.bytes": 1_048_576,
    }
