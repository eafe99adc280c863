"""The facts that the checks go by: each is known, or missing for a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from kafkabus._core.exceptions import ServiceBusError
from kafkabus._kafka.probe import BrokerAddress, Tick, TopicState

T = TypeVar("T")

NEARLY_FULL = 0.8
"""The part of its limit from which on a partition counts as nearly full."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that is not known.

    Attributes:
        reason: Why it is not known.
        error: The error that kept it from being known, if there was one.
    """

    reason: str
    error: ServiceBusError | None = None


class FactIsMissingError(Exception):
    """A check asks for a fact that is not known; the text is the reason."""


def require_fact(fact: T | Missing) -> T:
    """Return a fact.

    Raises:
        FactIsMissingError: The fact is not known.
    """
    if isinstance(fact, Missing):
        raise FactIsMissingError(fact.reason)
    return fact


UNSEEN = Missing("it was not looked at")


class _Part:
    """Facts of one kind, which are gathered one after the other."""

    def miss_rest(self, reason: str) -> None:
        """Give the reason for which the facts that were not looked at yet are missing."""
        for fact in fields(self):  # type: ignore[arg-type]  # every part is a dataclass
            if getattr(self, fact.name) is UNSEEN:
                setattr(self, fact.name, Missing(reason))


@dataclass(frozen=True, slots=True)
class Reached:
    """An attempt to connect to an address.

    Attributes:
        address: The address, ``host:port`` or a path.
        problem: Why no connection was made; empty if one was.
    """

    address: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Handshake:
    """An attempt to agree on TLS.

    Attributes:
        expected: Whether the connection string asks for TLS.
        problem: Why client and server do not agree; empty if they do.
        days_left: How many days the server's certificate is valid; None if there is none, or that is not known.
    """

    expected: bool
    problem: str = ""
    days_left: float | None = None


@dataclass(frozen=True, slots=True)
class SystemLimits:
    """The limits of this machine's operating system for a process.

    Attributes:
        maps: How many memory maps a process may have.
        files: How many files it may open.
    """

    maps: int
    files: int


@dataclass
class KafkaFacts(_Part):
    """Facts of Kafka.

    Attributes:
        addresses: Attempts to connect to the addresses in the connection string.
        tls: The attempt to agree on TLS.
        refusal: Why no broker accepts the client; empty if one does.
        fetch_version: The latest version of the request to fetch that a broker knows, which shows Kafka's version.
        brokers: The brokers, and attempts to connect to the addresses at which they say that they are.
        limits: The limits of this machine, if the brokers run on it.
        topics: The namespace's topics.
        hidden: Topics of the namespace that the user may not describe.
        settings: The settings of these topics, by name.
        open_transactions: The first offset of each log behind a transaction that is open for too long.
        rights: The refusals of trials, by name; empty if Kafka allowed what was tried.
        ticks: Readings of the brokers' clocks.
    """

    addresses: Sequence[Reached] | Missing = UNSEEN
    tls: Handshake | Missing = UNSEEN
    refusal: str | Missing = UNSEEN
    fetch_version: int | Missing = UNSEEN
    brokers: Sequence[tuple[BrokerAddress, Reached]] | Missing = UNSEEN
    limits: SystemLimits | Missing = UNSEEN
    topics: Mapping[str, TopicState] | Missing = UNSEEN
    hidden: frozenset[str] | Missing = UNSEEN
    settings: Mapping[str, Mapping[str, str]] | Missing = UNSEEN
    open_transactions: Mapping[tuple[str, int], int] | Missing = UNSEEN
    rights: dict[str, str | Missing] | Missing = UNSEEN
    ticks: Sequence[Tick] | Missing = UNSEEN


@dataclass
class RedisFacts(_Part):
    """Facts of Redis.

    Attributes:
        address: The attempt to connect.
        tls: The attempt to agree on TLS.
        refusal: Why Redis does not accept the client; empty if it does.
        infos: The answers to INFO: one, or those of a cluster's primaries, which name the ``node``.
        settings: Settings that are not in that answer.
        ahead_ms: By how many ms Redis's clock is ahead of this machine's, and by how many ms that may be wrong.
        rights: The refusals of trials, by name; empty if Redis allowed what was tried.
    """

    address: Reached | Missing = UNSEEN
    tls: Handshake | Missing = UNSEEN
    refusal: str | Missing = UNSEEN
    infos: Sequence[Mapping[str, Any]] | Missing = UNSEEN
    settings: Mapping[str, str] | Missing = UNSEEN
    ahead_ms: tuple[float, float] | Missing = UNSEEN
    rights: dict[str, str | Missing] | Missing = UNSEEN


@dataclass(frozen=True, slots=True)
class RefusedCopyFacts:
    """A copy of a message that its destination does not accept, because it is too large.

    Attributes:
        sequence_number: The message's sequence number.
        bytes: The size of the copy.
        topic: The topic of its destination.
    """

    sequence_number: int
    bytes: int
    topic: str


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Facts of a ledger.

    Attributes:
        partition: Its partition.
        is_there: Whether Redis holds it.
        waiting: How many messages wait in its log, or are locked.
        unwritten_s: For how many seconds a change of the ledger has been waiting for a checkpoint; None if none waits.
        ahead_ms: By how many ms its clock is ahead of Redis's, because Redis's was set back.
        prepared_s: For how many seconds the outcome of a transaction has been overdue; None if none is.
        moving_s: For how many seconds the end of a transfer has been overdue; None if none is.
        refused: Copies that their destinations do not accept, whose transfers do not count as overdue.
        bytes: About how many bytes wait; None if that is surely far below the limit.
    """

    partition: int
    is_there: bool = True
    waiting: int = 0
    unwritten_s: float | None = None
    ahead_ms: float = 0.0
    prepared_s: float | None = None
    moving_s: float | None = None
    refused: Sequence[RefusedCopyFacts] = ()
    bytes: float | None = None


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """Facts of a queue, a topic or a subscription, or of one of their dead-letter queues.

    Attributes:
        path: Its path.
        is_dead_letter: Whether it is a dead-letter queue.
        topic: Its Kafka topic.
        topic_problem: The fault of that, as in "is gone"; empty if it has none.
        limit: How many bytes a partition may hold.
        full: The partitions that are full by upkeep's last report.
        ledgers: Its ledgers; missing if Redis was not asked.
    """

    path: str
    is_dead_letter: bool
    topic: str
    topic_problem: str = ""
    limit: int = 0
    full: frozenset[int] = frozenset()
    ledgers: Sequence[LedgerFacts] | Missing = ()


@dataclass
class NamespaceFacts(_Part):
    """Facts of the namespace.

    Attributes:
        upkeep_s: How many seconds ago each upkeep instance was last heard of, ascending.
        entities: The entities.
    """

    upkeep_s: Sequence[float] | Missing = UNSEEN
    entities: Sequence[EntityFacts] | Missing = UNSEEN


@dataclass
class Facts:
    """All facts.

    Attributes:
        replicas: The number of replicas that the connection string asks for; None: 3, or as many as there are brokers.
        kafka: Facts of Kafka.
        redis: Facts of Redis.
        namespace: Facts of the namespace.
    """

    replicas: int | None = None
    kafka: KafkaFacts = field(default_factory=KafkaFacts)
    redis: RedisFacts = field(default_factory=RedisFacts)
    namespace: NamespaceFacts = field(default_factory=NamespaceFacts)
