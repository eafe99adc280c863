"""Errors of Kafka: causes for which no broker is reached, and missing rights of the user."""

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
from kafkabus._kafka import error_codes
from kafkabus._kafka.client_options import GONE, LOGGER, Tokens, common_options
from kafkabus._runtime.networks import loopback_hint

AT_FIRST = 1.5
"""How long to wait for a broker's answer before looking for the cause, in seconds."""
REACHED_WITHIN = 7.0
"""How long a client tries to reach the first broker, in seconds; a broker takes that long to start."""
NO_RIGHTS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Kafka's error codes for missing rights."""


def is_topic_gone(error: ServiceBusError) -> bool:
    """Return whether an error says that there is no such topic or partition."""
    inner = error.inner_exception
    return isinstance(inner, KafkaException) and inner.args[0].code() in GONE


_OF_CREDENTIALS = {error_codes.AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
_VARIES = re.compile(r" \(after .*\)$|/(?:bootstrap|\d+)(?=: )")
_SHOWN = 3
"""The maximum number of causes in an error; each address of a host has its own cause."""


def no_rights(servers: str, action: str, error: KafkaError) -> ServiceBusAuthorizationError:
    """Return the error for an action that Kafka's user has no right to.

    Args:
        servers: Kafka's address.
        action: The action, as in "write to topic 'shop.orders'".
        error: Kafka's error.
    """
    return ServiceBusAuthorizationError(
        f"Kafka {servers} does not let its user {action}: {error.str()}; grant that with 'kafka-acls.sh --add', or name "
        "another user as KafkaSaslUsername",
        error=KafkaException(error),
    )


def refused_options(servers: str, options: Mapping[str, object], error: KafkaException) -> ServiceBusError:
    """Return the error for options with which Kafka's client cannot be made.

    Args:
        servers: Kafka's address.
        options: The options.
        error: The client's error.
    """
    tokens = options.get("oauth_cb")
    if isinstance(tokens, Tokens):
        reason = tokens.failure or error.args[0].str()
        return ServiceBusAuthenticationError(
            f"there is no token for Kafka {servers}: {reason}; see to kafka_token_provider, or to the credential",
            error=error,
        )
    return ServiceBusError(
        f"Kafka's client refuses its options for {servers}: {error.args[0].str()}; see to the parts Kafka… of the connection "
        "string, and to the files that they name",
        error=error,
    )


class FirstContact:
    """The first contact with a broker.

    If no broker can be reached, the caller gets an error with the cause within some seconds. Once one was reached, Kafka's
    client waits for brokers by itself.

    Args:
        settings: Settings with Kafka's address.
        admin: The client that tries first.
        within: How long to try, in seconds; default ``REACHED_WITHIN``.

    Attributes:
        made: Whether a broker was reached.
    """

    def __init__(self, settings: Settings, admin: AdminClient, *, within: float | None = None) -> None:
        self.made = False
        self._within = within
        self._settings = settings
        self._admin = admin
        self._guard = threading.Lock()
        self._ended_at = 0.0
        self._outcome: ServiceBusError | None = None

    @property
    def _seconds_tried(self) -> float:
        return REACHED_WITHIN if self._within is None else self._within

    def make(self) -> None:
        """Reach a broker, unless one was reached before.

        Raises:
            ServiceBusAuthenticationError: All brokers refuse the credentials.
            ServiceBusCommunicationError: No broker can be reached.
        """
        if not self.made:
            failure = self._attempt(time.monotonic())
            if failure is not None:
                raise type(failure)(failure.message, error=failure.inner_exception)

    def _attempt(self, asked_at: float) -> ServiceBusError | None:
        """Try to reach a broker; a thread that waited for the attempt of another returns the result of that attempt."""
        with self._guard:
            if self._ended_at <= asked_at:
                self._outcome = None if _answers(self._admin, AT_FIRST) else self._look_why()
                self._ended_at = time.monotonic()
                self.made = self._outcome is None
            return self._outcome

    def _look_why(self) -> ServiceBusError | None:
        """Try again with a client that reports why it reaches no broker; return the error, or None once it reaches one."""
        causes: dict[str, KafkaError] = {}

        def hear(error: KafkaError) -> None:
            if error.code() != error_codes.ALL_BROKERS_DOWN:
                causes[_VARIES.sub("", error.str())] = error

        # This client passes its errors to hear; the first client goes on logging.
        setup: dict[str, Any] = {"socket.connection.setup.timeout.ms": 3_000, "log_level": 0, "error_cb": hear}
        admin = AdminClient(common_options(self._settings) | setup, logger=LOGGER)
        found = _look_up(self._settings.bootstrap_servers)
        until = time.monotonic() + self._seconds_tried - AT_FIRST
        while (left := until - time.monotonic()) > 0 and not _of_credentials(causes):
            if _answers(admin, min(1.0, left)):
                return None
            admin.poll(0)
        unresolved = [text for text, error in causes.items() if error.code() == error_codes.RESOLVE]
        for host in [
            host for host, known in found.items() if not known and not any(host in text for text in unresolved)
        ]:
            # Kafka's client reports nothing while it waits for the name server.
            causes[f"Failed to resolve '{host}' in time"] = KafkaError(error_codes.RESOLVE)
        return self._unreachable(causes)

    def _unreachable(self, causes: Mapping[str, KafkaError]) -> ServiceBusError:
        servers, options = self._settings.bootstrap_servers, self._settings.kafka_options
        protocol = options.get("security.protocol", "PLAINTEXT")
        is_token = options.get("sasl.mechanism") == "OAUTHBEARER"
        reasons = "; ".join(list(causes)[:_SHOWN])
        error = KafkaException(next(iter(causes.values()))) if causes else None
        if _of_credentials(causes):
            of_user = "KafkaSaslUsername, KafkaSaslPassword"
            return ServiceBusAuthenticationError(
                f"Kafka {servers} refuses the credentials: {reasons}; see to {'the tokens' if is_token else of_user}, "
                "KafkaSaslMechanism and KafkaSecurityProtocol",
                error=error,
            )
        if "alert" in reasons:
            remedy = (
                "does it ask for a certificate? Name its file as KafkaSslCertificateLocation, and that of its key as "
                "KafkaSslKeyLocation"
            )
        elif "certificate" in reasons:
            remedy = "name the file of the authority that signed it as KafkaSslCaLocation"
        elif "SSL" in reasons or "security.protocol" in reasons:
            remedy = f"KafkaSecurityProtocol is {protocol}: does the listener at this address speak that?"
        elif {cause.code() for cause in causes.values()} == {error_codes.RESOLVE}:
            remedy = "is the host's name right?"
        elif not reasons or "timed out" in reasons or "Invalid response" in reasons:
            reasons = reasons or "it does not answer"
            remedy = f"is it a Kafka broker, is the address right, and does its listener speak {protocol}?"
        else:
            remedy = "is it running, and is the address right?"
        return ServiceBusCommunicationError(
            f"Kafka {servers} cannot be reached (tried for {self._seconds_tried:g} s): {reasons}; "
            f"{remedy}{loopback_hint(servers)}",
            error=error,
        )


def _of_credentials(causes: Mapping[str, KafkaError]) -> bool:
    """Return whether a broker was reached and refused the credentials, so that waiting is useless."""
    return any(cause.code() in _OF_CREDENTIALS for cause in causes.values())


def _look_up(servers: str) -> dict[str, bool]:
    """Look up the hosts' names in the background; the result gains an entry for each host that the name server answered."""
    hosts = {server.strip().rpartition("://")[2].rpartition(":")[0].strip("[]") for server in servers.split(",")}
    found = dict.fromkeys(sorted(hosts - {""}), False)

    def look(host: str) -> None:
        with suppress(OSError):
            found[host] = bool(socket.getaddrinfo(host, None))

    for host in found:
        threading.Thread(target=look, args=(host,), daemon=True, name=f"kafkabus-look-up-{host}").start()
    return found


def _answers(admin: AdminClient, timeout: float) -> bool:
    """Return whether a broker answers in time."""
    try:
        admin.list_topics("__nothing", timeout=timeout)
    except KafkaException:
        return False
    return True
