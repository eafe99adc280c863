"""Kafka's refusals: why no broker is reached, and what a user may not do."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafkabus._core.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusError,
)
from kafkabus._core.settings import Settings
from kafkabus._kafka.client_options import common_options

AT_FIRST = 1.5
"""For how long, in seconds, brokers are asked before it is looked why none answers."""
REACHED_WITHIN = 7.0
"""For how long, in seconds, a client tries to reach the first broker: one that starts takes that long."""
NO_RIGHTS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Codes with which Kafka says that the user may not do something."""

_OF_CREDENTIALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
_VARIES = re.compile(r" \(after .*\)$|/(?:bootstrap|\d+)(?=: )")
_SHOWN = 3
"""Of how many causes an error tells: each address of a host has one of its own."""


def no_rights(servers: str, action: str, error: KafkaError) -> ServiceBusAuthorizationError:
    """What is said where Kafka's user may not do something.

    Args:
        servers: Where Kafka is.
        action: What was to be done, as in "write to topic 'shop.orders'".
        error: Kafka's.
    """
    return ServiceBusAuthorizationError(
        f"Kafka {servers} does not let its user {action}: {error.str()}; grant that with 'kafka-acls.sh --add', or name "
        "another user as KafkaSaslUsername",
        error=KafkaException(error),
    )


class FirstContact:
    """Reaches a broker once. A client that cannot is told why within some seconds; once it has, Kafka's client waits by itself.

    Args:
        settings: Where Kafka is.
        admin: A client, which is asked first.

    Attributes:
        made: Whether a broker was reached.
    """

    def __init__(self, settings: Settings, admin: AdminClient) -> None:
        self.made = False
        self._settings = settings
        self._admin = admin
        self._guard = threading.Lock()
        self._ended_at = 0.0
        self._outcome: ServiceBusError | None = None

    def make(self) -> None:
        """Reach a broker where none was reached before.

        Raises:
            ServiceBusAuthenticationError: All refuse the credentials.
            ServiceBusCommunicationError: None can be reached.
        """
        if not self.made:
            failure = self._attempt(time.monotonic())
            if failure is not None:
                raise type(failure)(failure.message, error=failure.inner_exception)

    def _attempt(self, asked_at: float) -> ServiceBusError | None:
        """Try to reach a broker; who waited for another one's attempt is told what came of that."""
        with self._guard:
            if self._ended_at <= asked_at:
                self._outcome = None if _answers(self._admin, AT_FIRST) else self._look_why()
                self._ended_at = time.monotonic()
                self.made = self._outcome is None
            return self._outcome

    def _look_why(self) -> ServiceBusError | None:
        """Ask on, with a client that tells why it reaches no broker; None once it does."""
        causes: dict[str, KafkaError] = {}

        def hear(error: KafkaError) -> None:
            if error.code() != KafkaError._ALL_BROKERS_DOWN:
                causes[_VARIES.sub("", error.str())] = error

        # What it hears it tells; the client that was asked first goes on logging.
        setup: dict[str, Any] = {"socket.connection.setup.timeout.ms": 3_000, "log_level": 0, "error_cb": hear}
        admin = AdminClient(common_options(self._settings) | setup)
        found = _look_up(self._settings.bootstrap_servers)
        until = time.monotonic() + REACHED_WITHIN - AT_FIRST
        while (left := until - time.monotonic()) > 0 and not _of_credentials(causes):
            if _answers(admin, min(1.0, left)):
                return None
            admin.poll(0)
        told = [text for text, error in causes.items() if error.code() == KafkaError._RESOLVE]
        for host in [host for host, known in found.items() if not known and not any(host in text for text in told)]:
            # Kafka's client waits for the name server, and says nothing until then.
            causes[f"Failed to resolve '{host}' in time"] = KafkaError(KafkaError._RESOLVE)
        return self._unreachable(causes)

    def _unreachable(self, causes: Mapping[str, KafkaError]) -> ServiceBusError:
        servers, options = self._settings.bootstrap_servers, self._settings.kafka_options
        protocol = options.get("security.protocol", "PLAINTEXT")
        told = "; ".join(list(causes)[:_SHOWN])
        error = KafkaException(next(iter(causes.values()))) if causes else None
        if _of_credentials(causes):
            return ServiceBusAuthenticationError(
                f"Kafka {servers} refuses the credentials: {told}; see to KafkaSaslUsername, KafkaSaslPassword, "
                "KafkaSaslMechanism and KafkaSecurityProtocol",
                error=error,
            )
        if "certificate" in told:
            remedy = "name the file of the authority that signed it as KafkaSslCaLocation"
        elif "SSL" in told or "security.protocol" in told:
            remedy = f"KafkaSecurityProtocol is {protocol}: does the listener at this address speak that?"
        elif {cause.code() for cause in causes.values()} == {KafkaError._RESOLVE}:
            remedy = "is the host's name right?"
        elif not told or "timed out" in told or "Invalid response" in told:
            told = told or "it does not answer"
            remedy = f"is it a Kafka broker, is the address right, and does its listener speak {protocol}?"
        else:
            remedy = "is it running, and is the address right?"
        return ServiceBusCommunicationError(
            f"Kafka {servers} cannot be reached (tried for {REACHED_WITHIN:g} s): {told}; {remedy}", error=error
        )


def _of_credentials(causes: Mapping[str, KafkaError]) -> bool:
    """Whether a broker was reached and refused the credentials, which no waiting changes."""
    return any(cause.code() in _OF_CREDENTIALS for cause in causes.values())


def _look_up(servers: str) -> dict[str, bool]:
    """Look the hosts' names up meanwhile; whether each is known is there once the name server has answered."""
    hosts = {server.strip().rpartition("://")[2].rpartition(":")[0].strip("[]") for server in servers.split(",")}
    found = dict.fromkeys(sorted(hosts - {""}), False)

    def look(host: str) -> None:
        with suppress(OSError):
            found[host] = bool(socket.getaddrinfo(host, None))

    for host in found:
        threading.Thread(target=look, args=(host,), daemon=True, name=f"kafkabus-look-up-{host}").start()
    return found


def _answers(admin: AdminClient, timeout: float) -> bool:
    """Whether a broker answers in time."""
    try:
        admin.list_topics("__nothing", timeout=timeout)
    except KafkaException:
        return False
    return True
