"""Checks of Kafka."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from kafkabus._kafka.topic_admin import CLOCK_TOPIC, COMPACTED_TOPIC, DELAY_TOPIC, ENTITY_TOPIC, MARKER_TOPIC
from kafkabus.doctor.check import Check, list_names, of_tls
from kafkabus.doctor.facts import NEARLY_FULL, Facts, Missing, require_fact
from kafkabus.doctor.findings import Finding, failure, ok, warning
from kafkabus_mapping.names import parse_topic

OLDEST_FETCH = 16
"""The latest version of the request to fetch that Kafka 3.7 knows; the oldest Kafka that kafkabus is made for."""

MAPS_OF_LOG = 2
"""How many memory maps a log takes for each of its segments: those of two indexes."""
USUAL_MAPS = 65_530
"""How many memory maps Linux allows a process by default (``vm.max_map_count``)."""

_RELEASES = {15: "3.5", 16: "3.7", 17: "3.9", 18: "4.1"}
"""Kafka's releases by the latest version of the request to fetch that each was the first to know."""
_ANY_REPLICAS = 3
"""The number of replicas that kafkabus gives a topic if there are as many brokers."""
_OF_PURPOSES: Mapping[str, Mapping[str, str]] = {
    "CLOCK": CLOCK_TOPIC,
    "POSTPONED": DELAY_TOPIC,
    "TRANSACTIONS": MARKER_TOPIC,
}
"""The settings of the namespace's own topics that are not compacted."""
_OWN = frozenset({"DESCRIPTIONS", "CHECKPOINTS", "ARCHIVE", "SESSION-STATES", *_OF_PURPOSES})
_RELIED_ON = ("message.timestamp.type", "retention.ms", "retention.bytes", "cleanup.policy", "max.message.bytes")
_AT_LEAST = frozenset({"max.message.bytes"})


def _addresses(facts: Facts) -> Finding:
    addresses = require_fact(facts.kafka.addresses)
    problems = [address.problem for address in addresses if address.problem]
    if not problems:
        return ok(f"connected to {list_names(address.address for address in addresses)}")
    return (warning if len(problems) < len(addresses) else failure)(list_names(problems))


def _tls(facts: Facts) -> Finding:
    return of_tls(require_fact(facts.kafka.tls), "Kafka is used")


def _authentication(facts: Facts) -> Finding:
    refusal = require_fact(facts.kafka.refusal)
    return failure(refusal) if refusal else ok("a broker accepts this client")


def _version(facts: Facts) -> Finding:
    version = require_fact(facts.kafka.fetch_version)
    since = max((first for first in _RELEASES if first <= version), default=None)
    release = f"Kafka {_RELEASES[since]} or later" if since is not None else "a Kafka older than 3.5"
    return ok(release) if version >= OLDEST_FETCH else failure(f"{release}, and older than 3.7")


def _brokers(facts: Facts) -> Finding:
    brokers = require_fact(facts.kafka.brokers)
    problems = [f"broker {broker.number}: {reached.problem}" for broker, reached in brokers if reached.problem]
    if problems:
        return failure(list_names(problems))
    count = len(brokers)
    return ok(f"{count} broker{'' if count == 1 else 's'}, each at the address that it gives")


def _replication(facts: Facts) -> Finding:
    topics, brokers = require_fact(facts.kafka.topics), len(require_fact(facts.kafka.brokers))
    usual = min(_ANY_REPLICAS, brokers)
    few = [
        f"{name} has {fewest} of {wanted}"
        for name, topic in sorted(topics.items())
        for wanted in [usual if _purpose(name) in _OWN else facts.replicas or usual]
        for fewest in [min((partition.replicas for partition in topic.partitions), default=wanted)]
        if fewest < wanted
    ]
    if few:
        return warning(f"too few replicas: {list_names(few)}")
    return ok(f"{len(topics)} topics, with {facts.replicas or usual} or more replicas")


def _min_insync(facts: Facts) -> Finding:
    topics, settings = require_fact(facts.kafka.topics), require_fact(facts.kafka.settings)
    low: list[str] = []
    high: list[str] = []
    for name in sorted(topics.keys() & settings.keys()):
        replicas = min((partition.replicas for partition in topics[name].partitions), default=1)
        least = int(settings[name].get("min.insync.replicas") or 1)
        if replicas >= _ANY_REPLICAS and least < 2:
            low.append(f"{name} has {least} of {replicas} replicas")
        if replicas > 1 and least >= replicas:
            high.append(f"{name} asks for all {replicas} replicas")
    if low:
        return warning(f"an acknowledged message may be lost with one broker: {list_names(low)}")
    if high:
        return warning(f"without one broker nothing can be sent: {list_names(high)}", "set min.insync.replicas lower")
    return ok("acknowledged messages are on as many brokers as they should be")


def _partitions(facts: Facts) -> Finding:
    logs = [
        (name, partition)
        for name, topic in sorted(require_fact(facts.kafka.topics).items())
        for partition in topic.partitions
    ]
    needed = {name: int(its.get("min.insync.replicas") or 1) for name, its in _settings(facts).items()}
    dead = [f"{name}/{partition.number}" for name, partition in logs if not partition.has_leader]
    stopped = [
        f"{name}/{partition.number}"
        for name, partition in logs
        if partition.has_leader and partition.in_sync < needed.get(name, 1)
    ]
    behind = [f"{name}/{partition.number}" for name, partition in logs if partition.in_sync < partition.replicas]
    if dead:
        return failure(f"no broker leads {list_names(dead)}")
    if stopped:
        return failure(f"too few replicas are in sync to send to {list_names(stopped)}")
    if behind:
        return warning(f"not all replicas are in sync: {list_names(behind)}")
    return ok(f"{len(logs)} partitions are led, and in sync")


def _limits(facts: Facts) -> Finding:
    topics, brokers = require_fact(facts.kafka.topics), require_fact(facts.kafka.brokers)
    copies = sum(partition.replicas for topic in topics.values() for partition in topic.partitions)
    logs = math.ceil(copies / max(1, len(brokers)))
    maps = MAPS_OF_LOG * logs
    needs = f"{logs:,} logs on each broker take {maps:,} memory maps and {logs:,} open files, and more for each full segment"
    here = facts.kafka.limits
    if isinstance(here, Missing):
        if maps > NEARLY_FULL * USUAL_MAPS:
            return warning(f"{needs}; Linux allows {USUAL_MAPS:,} maps by default")
        return ok(needs)
    allowed = f"this machine allows {here.maps:,} maps and {here.files:,} open files"
    used = max(maps / here.maps, logs / here.files)
    if used > NEARLY_FULL:
        return (failure if used > 1 else warning)(f"{needs}; {allowed}")
    return ok(f"{needs}; {allowed}")


def _settings(facts: Facts) -> Mapping[str, Mapping[str, str]]:
    settings = facts.kafka.settings
    return settings if isinstance(settings, Mapping) else {}


def _topic_settings(facts: Facts) -> Finding:
    wrong: list[str] = []
    for name, settings in sorted(require_fact(facts.kafka.settings).items()):
        for setting, wanted in _required_settings(name).items():
            found = settings.get(setting, "")
            if found != wanted and not (setting in _AT_LEAST and found.isdigit() and int(found) >= int(wanted)):
                wrong.append(f"{name} has {setting}={found} instead of {wanted}")
    return failure(list_names(wrong)) if wrong else ok("all topics have the settings that kafkabus relies on")


def _required_settings(name: str) -> dict[str, str]:
    """Return the settings of a topic that kafkabus relies on."""
    purpose = _purpose(name)
    if purpose in _OF_PURPOSES:
        return {setting: value for setting, value in _OF_PURPOSES[purpose].items() if setting in _RELIED_ON}
    if purpose in _OWN:
        return {setting: value for setting, value in COMPACTED_TOPIC.items() if setting in _RELIED_ON}
    return {**ENTITY_TOPIC, "cleanup.policy": "delete"} if parse_topic(name) is not None else {}


def _purpose(name: str) -> str:
    """Return the part of a topic's name behind the namespace's; of the namespace's own topics it is in capitals."""
    return name.partition(".")[2]


def _open_transactions(facts: Facts) -> Finding:
    logs = require_fact(facts.kafka.open_transactions)
    if not logs:
        return ok("no Kafka transaction has been open for long")
    return failure(
        "nothing behind an open Kafka transaction is received: "
        + list_names(f"{topic}/{partition} from offset {end} on" for (topic, partition), end in sorted(logs.items()))
    )


def _right_to_describe(facts: Facts) -> Finding:
    hidden = require_fact(facts.kafka.hidden)
    if hidden:
        return failure(f"the user may not describe {list_names(sorted(hidden))}")
    return ok("the user may describe the namespace's topics")


def _right(trial: str, verb: str, operation: str = "") -> Callable[[Facts], Finding]:
    """Return the rule about a right that was tried on a topic, and that each topic of the namespace has to grant as well.

    Args:
        trial: The trial's name.
        verb: The action that the right allows, in words.
        operation: The name of Kafka's operation; empty if topics do not report whether they grant it.
    """

    def look(facts: Facts) -> Finding:
        tried = require_fact(facts.kafka.rights).get(trial, _NOT_TRIED)
        if isinstance(tried, str) and tried:
            return failure(tried)
        topics = facts.kafka.topics if operation and not isinstance(facts.kafka.topics, Missing) else {}
        refusing = sorted(name for name, topic in topics.items() if operation not in topic.operations)
        if refusing:
            return failure(f"Kafka does not let its user {verb} {list_names(refusing)}")
        if tried is _NOT_TRIED and topics:
            return ok(f"each topic lets the user {verb} it")
        require_fact(tried)
        return ok(f"the user may {verb} topics of the namespace" if operation else f"the user may {verb}")

    return look


_NOT_TRIED = Missing("it was not tried, because no topic can be created and deleted for that")
_GRANT = "grant it with 'kafka-acls.sh --add --operation {}{}', or name another user as KafkaSaslUsername"
_ON_TOPICS = " --topic <namespace>. --resource-pattern-type prefixed"

KAFKA_CHECKS = (
    Check(
        "kafka-address",
        "the names of the brokers in the connection string are known, and each takes connections",
        "see to KafkaBootstrapServers, to the name server and the firewall, and whether the broker runs",
        _addresses,
    ),
    Check(
        "kafka-tls",
        "client and broker agree on TLS or on none, and the certificate is trusted and does not end soon",
        "let KafkaSecurityProtocol say what the listener speaks, and KafkaSslCaLocation name the file of the authority",
        _tls,
    ),
    Check(
        "kafka-authentication",
        "a broker accepts the client and its credentials",
        "see to KafkaSaslUsername, KafkaSaslPassword, KafkaSaslMechanism and KafkaSecurityProtocol",
        _authentication,
    ),
    Check(
        "kafka-version",
        "Kafka is 3.7 or later",
        "update the brokers",
        _version,
    ),
    Check(
        "kafka-brokers",
        "each broker can be reached at the address that it gives to clients",
        "let the broker's advertised.listeners name an address that this machine reaches",
        _brokers,
    ),
    Check(
        "kafka-right-describe",
        "the user may describe all topics of the namespace",
        _GRANT.format("Describe", _ON_TOPICS),
        _right_to_describe,
    ),
    Check(
        "kafka-right-create",
        "the user may create topics: for administration, and for dead-letter queues when they are first needed",
        _GRANT.format("Create", _ON_TOPICS),
        _right("create", "create topics"),
    ),
    Check(
        "kafka-right-write",
        "the user may write: to send, and to dead-letter when receiving",
        _GRANT.format("Write", _ON_TOPICS),
        _right("write", "write to", "WRITE"),
    ),
    Check(
        "kafka-right-read",
        "the user may read: to receive",
        _GRANT.format("Read", _ON_TOPICS),
        _right("read", "read", "READ"),
    ),
    Check(
        "kafka-right-delete",
        "the user may delete topics, for administration, and their records, for upkeep",
        _GRANT.format("Delete", _ON_TOPICS),
        _right("delete", "delete", "DELETE"),
    ),
    Check(
        "kafka-right-configure",
        "the user may set the settings of topics: for topics that were created again with Kafka's own tools",
        _GRANT.format("AlterConfigs", _ON_TOPICS),
        _right("configure", "configure", "ALTER_CONFIGS"),
    ),
    Check(
        "kafka-right-transactions",
        "the user may store transactions",
        _GRANT.format("Write", " --transactional-id <namespace>. --resource-pattern-type prefixed"),
        _right("transactions", "store transactions"),
    ),
    Check(
        "kafka-replication",
        "each topic has 3 replicas, or as many as there are brokers, or KafkaReplicationFactor",
        "add replicas with 'kafka-reassign-partitions.sh'",
        _replication,
    ),
    Check(
        "kafka-min-insync",
        "min.insync.replicas keeps acknowledged messages if one broker is lost, and does not stop senders then",
        "set it with 'kafka-configs.sh --alter --topic … --add-config min.insync.replicas=2'",
        _min_insync,
    ),
    Check(
        "kafka-partitions",
        "each partition has a leader, and its replicas are in sync",
        "see whether all brokers run, and to their logs",
        _partitions,
    ),
    Check(
        "kafka-limits",
        "each broker's system allows as many memory maps and open files as the logs take; without them, a broker ends",
        "raise vm.max_map_count with 'sysctl', and the limit of open files ('ulimit -n', or 'LimitNOFILE' of systemd)",
        _limits,
    ),
    Check(
        "kafka-topic-settings",
        "topics have the settings that kafkabus relies on: whose clock counts, how long records stay, how large they may be",
        "set it with 'kafka-configs.sh --alter --topic … --add-config …'",
        _topic_settings,
    ),
    Check(
        "kafka-transactions",
        "no Kafka transaction in a topic of the namespace has been open for long",
        "see which client left it open with 'kafka-transactions.sh find-hanging', and end it with its 'abort', which loses "
        "what that transaction wrote to this log",
        _open_transactions,
    ),
)
"""The checks of Kafka."""
