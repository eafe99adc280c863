"""Gathering the facts of Kafka."""

from __future__ import annotations

import resource
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from kafkabus._core.exceptions import ServiceBusAuthenticationError, ServiceBusCommunicationError
from kafkabus._core.settings import Settings
from kafkabus._kafka.probe import BrokerAddress, KafkaProbe
from kafkabus.doctor.facts import Handshake, KafkaFacts, Missing, Reached, SystemLimits, require_fact
from kafkabus.doctor.network import reach, shake_hands, speaks_tls
from kafkabus.doctor.steps import Line, LookLimits
from kafkabus_mapping.names import compacted_topic_name, owned_name
from kafkabus_mapping.secret import reveal_text

MEASURED = 12
"""How many partitions a trial's topic has at the most; each is led by another broker if there are so many."""


def look_at_kafka(settings: Settings, probe: KafkaProbe, limits: LookLimits, clock: Callable[[], float]) -> KafkaFacts:
    """Return the facts of Kafka.

    Args:
        settings: The settings of the namespace.
        probe: Asks Kafka.
        limits: The limits.
        clock: This machine's clock, seconds since 1970.
    """
    facts, line = KafkaFacts(), Line(limits)
    unreached = _connect(facts, line, settings, probe, limits)
    if not unreached:
        _ask(facts, line, probe, limits)
        _try(facts, line, settings, probe, limits)
        _look_for_transactions(facts, line, probe, limits, clock)
    facts.miss_rest(unreached or "Kafka was not asked")
    return facts


def _connect(facts: KafkaFacts, line: Line, settings: Settings, probe: KafkaProbe, limits: LookLimits) -> str:
    """Have a broker accept the client; return why none does, empty if one does."""
    addresses = [_host_and_port(server) for server in settings.bootstrap_servers.split(",")]
    facts.addresses = line.ask("to connect", lambda: [reach(*address, limits.answer_s) for address in addresses])
    if isinstance(facts.addresses, Missing):
        return facts.addresses.reason
    reached = [address for address, outcome in zip(addresses, facts.addresses, strict=True) if not outcome.problem]
    if not reached:
        return "Kafka is not reached"
    place = reached[0]
    options = {name: reveal_text(value) for name, value in settings.kafka_options.items()}
    secured = options.get("security.protocol", "PLAINTEXT").upper().endswith("SSL")
    if secured:
        authority, own = options.get("ssl.ca.location"), options.get("ssl.certificate.location")
        identity = own and (own, options.get("ssl.key.location"), options.get("ssl.key.password"))
        facts.tls = line.ask(
            "to agree on TLS", lambda: shake_hands(*place, limits.answer_s, authority, identity or None)
        )
        if isinstance(facts.tls, Missing) or facts.tls.problem:
            return "Kafka and this client do not agree on TLS"
    accepted = line.ask("to be accepted by a broker", probe.reach)
    if isinstance(accepted, Missing):
        return _note_refusal(facts, accepted, None if secured else lambda: speaks_tls(*place, limits.answer_s))
    if not secured:
        facts.tls = Handshake(False)
    facts.refusal = ""
    return ""


def _note_refusal(facts: KafkaFacts, why: Missing, answers_in_tls: Callable[[], bool] | None) -> str:
    """Note why no broker accepts the client, and return why nothing else is asked."""
    refused = isinstance(why.error, ServiceBusAuthenticationError)
    if answers_in_tls is not None:
        facts.tls = Handshake(False)
        if not refused and answers_in_tls():
            facts.tls = Handshake(False, "the listener speaks TLS, and KafkaSecurityProtocol asks for none")
            return "Kafka and this client do not agree on TLS"
    if not refused:
        # A broker that is frozen takes connections all the same.
        facts.addresses = [
            address if address.problem else replace(address, problem=why.reason)
            for address in require_fact(facts.addresses)
        ]
        return "Kafka does not answer"
    facts.refusal = why.reason
    return "no broker accepts this client"


def _host_and_port(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def _ask(facts: KafkaFacts, line: Line, probe: KafkaProbe, limits: LookLimits) -> None:
    """Ask for the cluster and the namespace's topics."""
    version = line.ask("to ask for Kafka's version", probe.fetch_version)
    facts.fetch_version = Missing("Kafka's client does not report it") if version is None else version
    facts.brokers = line.ask("to describe the cluster", lambda: _reach_brokers(probe.brokers(), limits))
    facts.limits = _limits_here(facts)
    described = line.ask("to describe the topics", lambda: probe.describe(sorted(_names(probe))))
    if isinstance(described, Missing):
        facts.topics = facts.hidden = described
        return
    facts.topics, hidden = described
    facts.hidden = frozenset(hidden)
    names = sorted(facts.topics)
    facts.settings = line.ask("to read the settings of the topics", lambda: probe.settings_of(names))


def _limits_here(facts: KafkaFacts) -> SystemLimits | Missing:
    """Return the limits of this machine if, by their addresses, all brokers run on it."""
    brokers = [] if isinstance(facts.brokers, Missing) else [broker.host for broker, _ in facts.brokers]
    if not brokers or not all(host == "localhost" or host.startswith("127.") for host in brokers):
        return Missing("the brokers run on other machines")
    try:
        maps = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    except OSError:
        return Missing("this system does not report its limits")
    # Java raises its limit of files to the highest that is allowed.
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    return SystemLimits(maps, sys.maxsize if files == resource.RLIM_INFINITY else files)


def _names(probe: KafkaProbe) -> set[str]:
    """Return the names of the namespace's topics, and of one that has to be there if an entity is."""
    return probe.names() | {probe.descriptions_topic}


def _reach_brokers(brokers: list[BrokerAddress], limits: LookLimits) -> list[tuple[BrokerAddress, Reached]]:
    each = limits.answer_s / max(1, len(brokers))
    return [(broker, reach(broker.host, broker.port, each)) for broker in brokers]


def _try(facts: KafkaFacts, line: Line, settings: Settings, probe: KafkaProbe, limits: LookLimits) -> None:
    """Try each right: on a topic of the namespace's own, which is there for a moment."""
    if isinstance(facts.brokers, Missing):
        facts.rights = facts.brokers
        return
    facts.rights = rights = dict[str, "str | Missing"]()
    brokers = len(facts.brokers)
    mark = uuid.uuid4().hex
    name = compacted_topic_name(settings.namespace, f"doctor-{mark}")
    partitions = min(brokers, MEASURED)
    replicas = settings.replication_factor or min(3, brokers)
    transaction = owned_name(settings.namespace, f"doctor-{mark}")
    rights["transactions"] = _refusal(
        line.ask("to begin a transaction", lambda: probe.trials.try_transaction(transaction))
    )
    rights["delete"] = _refusal(line.ask("to try a deletion", lambda: probe.trials.try_deletion(name)))
    rights["create"] = _refusal(
        line.ask("to try a creation", lambda: probe.trials.try_creation(name, partitions, replicas))
    )
    if rights["delete"] or rights["create"]:
        # A topic that cannot be deleted again is not created.
        return
    rights["create"] = _refusal(line.ask("to create a topic", lambda: probe.trials.create_topic(name, partitions)))
    try:
        if rights["create"] == "":
            _try_on(name, partitions, facts, line, probe)
    finally:
        # The topic has to go even if the line has ended.
        gone = _refusal(Line(limits).ask("to delete the topic again", lambda: probe.trials.delete_topic(name)))
        if gone:
            text = gone.reason if isinstance(gone, Missing) else gone
            rights["delete"] = f"topic {name} was left behind: {text}"


def _try_on(name: str, partitions: int, facts: KafkaFacts, line: Line, probe: KafkaProbe) -> None:
    """Try the rights that need a topic, on this one."""
    rights = require_fact(facts.rights)
    facts.ticks = line.ask("to write to a topic", lambda: probe.trials.write(name, partitions))
    rights["write"] = _refusal(facts.ticks)
    rights["read"] = _refusal(line.ask("to read a topic", lambda: probe.trials.read(name)))
    rights["configure"] = _refusal(line.ask("to configure a topic", lambda: probe.trials.try_configuration(name)))
    rights["delete"] = _refusal(line.ask("to delete records", lambda: probe.trials.delete_records(name)))


def _refusal(outcome: object) -> str | Missing:
    """Return the server's refusal of a trial; empty if it allowed it, missing if it did not decide."""
    if not isinstance(outcome, Missing):
        return ""
    decided = outcome.error is not None and not isinstance(outcome.error, ServiceBusCommunicationError)
    return outcome.reason if decided else outcome


def _look_for_transactions(
    facts: KafkaFacts, line: Line, probe: KafkaProbe, limits: LookLimits, clock: Callable[[], float]
) -> None:
    """Look for logs that cannot be read on, because a transaction in them has been open for too long."""
    if isinstance(facts.topics, Missing):
        facts.open_transactions = facts.topics
        return
    counts = {name: len(topic.partitions) for name, topic in facts.topics.items()}
    ahead_ms = 0.0 if isinstance(facts.ticks, Missing) else max((tick.ahead_ms[0] for tick in facts.ticks), default=0.0)
    moment = round(1000 * (clock() - limits.transaction_s) + ahead_ms)
    facts.open_transactions = line.ask("to look for open transactions", lambda: _open_before(probe, counts, moment))


def _open_before(probe: KafkaProbe, counts: Mapping[str, int], moment: int) -> dict[tuple[str, int], int]:
    """Return the ends of the committed records of logs with a transaction that was open at a moment, ms since 1970."""
    committed, stored = probe.ends(counts), probe.ends(counts, stored=True)
    behind = {
        (name, partition): end
        for name, ends in committed.items()
        for partition, end in ends.items()
        if end < stored[name].get(partition, 0)
    }
    since = probe.find_first_since(list(behind), moment)
    return {log: end for log, end in behind.items() if (first := since[log]) is None or end < first}
