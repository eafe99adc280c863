"""Checks of the namespace: its clocks, its upkeep, its entities."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafkabus.doctor.check import Check, list_names
from kafkabus.doctor.facts import NEARLY_FULL, EntityFacts, Facts, LedgerFacts, Missing, require_fact
from kafkabus.doctor.findings import Finding, failure, ok, warning

SKEW_MS = 1000
"""By how many milliseconds clocks may differ without a warning."""
LATE_S = 5.0
"""For how many seconds an upkeep instance, which gives a sign every second, may be silent."""
SILENT_S = 10.0
"""After how many seconds of silence upkeep counts as dead: then clients warn as well."""
WRITTEN_WITHIN_S = 60.0
"""How many seconds a checkpoint may be late; upkeep writes one within 5."""
FINISHED_WITHIN_S = 60.0
"""How many seconds the end of a transaction or a transfer may be overdue."""


def _client_clock(facts: Facts) -> Finding:
    by_redis, by_kafka = facts.redis.ahead_ms, _brokers_ahead(facts)
    measured = [difference for difference in (by_redis, by_kafka) if not isinstance(difference, Missing)]
    if not measured:
        require_fact(by_redis)
    ahead, unsure = min(measured, key=lambda difference: abs(difference[0]))
    if abs(ahead) - unsure > SKEW_MS:
        return warning(
            f"this machine's clock is {_seconds(ahead)} {'behind' if ahead > 0 else 'ahead of'} the servers'"
        )
    return ok(f"this machine's clock differs by {_seconds(ahead)} from the servers'")


def _server_clocks(facts: Facts) -> Finding:
    redis, redis_unsure = require_fact(facts.redis.ahead_ms)
    kafka, kafka_unsure = require_fact(_brokers_ahead(facts))
    ahead = redis - kafka
    if abs(ahead) - redis_unsure - kafka_unsure > SKEW_MS:
        return warning(f"Redis's clock is {_seconds(ahead)} {'ahead of' if ahead > 0 else 'behind'} Kafka's")
    return ok(f"the clocks of Redis and Kafka differ by {_seconds(ahead)}")


def _brokers_ahead(facts: Facts) -> tuple[float, float] | Missing:
    """Return by how many ms the broker whose clock differs most from this machine's is ahead, and how sure that is."""
    if isinstance(facts.kafka.ticks, Missing):
        return facts.kafka.ticks
    measured = [tick.ahead_ms for tick in facts.kafka.ticks]
    return (
        max(measured, key=lambda difference: abs(difference[0]))
        if measured
        else Missing("Kafka does not report its time")
    )


def _seconds(ms: float) -> str:
    return f"{abs(ms) / 1000:.1f} s"


def _ledger_clocks(facts: Facts) -> Finding:
    entity, most = max(
        ((entity, ledger.ahead_ms) for entity, ledger in _ledgers(facts)), key=lambda pair: pair[1], default=(None, 0.0)
    )
    if entity is not None and most > SKEW_MS:
        return warning(f"ledgers of {entity.path} go {_seconds(most)} ahead of Redis's clock, which was set back")
    return ok("the clocks of all ledgers are Redis's")


def _upkeep(facts: Facts) -> Finding:
    instances = require_fact(facts.namespace.upkeep_s)
    running = [silent for silent in instances if silent <= LATE_S]
    if running:
        count = len(running)
        return ok(f"{count} instance{'' if count == 1 else 's'}, last heard of {max(0.0, running[0]):.1f} s ago")
    if not instances:
        return failure("no upkeep service has ever sent a heartbeat")
    told = f"no sign of an upkeep service for {instances[0]:.0f} s"
    return warning(told) if instances[0] <= SILENT_S else failure(told)


def _entity_topics(facts: Facts) -> Finding:
    entities = require_fact(facts.namespace.entities)
    wrong = [
        f"topic {entity.topic} of {entity.path} {entity.topic_problem}" for entity in entities if entity.topic_problem
    ]
    if wrong:
        return failure(list_names(wrong))
    count = sum(not entity.is_dead_letter for entity in entities)
    return ok(f"{count} queues, topics and subscriptions have their topics")


def _ledgers_there(facts: Facts) -> Finding:
    missing = [entity.path for entity, ledger in _ledgers(facts) if not ledger.is_there]
    if missing:
        return warning(f"Redis does not hold all ledgers of {list_names(dict.fromkeys(missing))}")
    return ok("Redis holds all ledgers")


def _checkpoints(facts: Facts) -> Finding:
    late = {
        entity.path: ledger.unwritten_s
        for entity, ledger in _ledgers(facts)
        if ledger.unwritten_s is not None and ledger.unwritten_s > WRITTEN_WITHIN_S
    }
    if late:
        return warning(
            f"changes that are older than {WRITTEN_WITHIN_S:.0f} s are in no checkpoint, and come again if Redis is lost: "
            f"{list_names(late)}"
        )
    return ok("all changes are in checkpoints, or are new")


def _overdue_rule(what: str, since: Callable[[LedgerFacts], float | None]) -> Callable[[Facts], Finding]:
    """Return the rule about unfinished work."""

    def look(facts: Facts) -> Finding:
        late = [
            f"{entity.path} partition {ledger.partition} for {seconds:.0f} s"
            for entity, ledger in _ledgers(facts)
            if (seconds := since(ledger)) is not None and seconds > FINISHED_WITHIN_S
        ]
        return failure(f"{what} overdue: {list_names(late)}") if late else ok(f"no {what} overdue")

    return look


def _refused_copies(facts: Facts) -> Finding:
    refused = [
        f"message {copy.sequence_number} of {entity.path} partition {ledger.partition}: "
        f"a copy of {copy.bytes} bytes in {copy.topic}"
        for entity, ledger in _ledgers(facts)
        for copy in ledger.refused
    ]
    return (
        failure(f"too large for their topics: {list_names(refused)}")
        if refused
        else ok("no copy is too large for its topic")
    )


def _quota(facts: Facts) -> Finding:
    entities = require_fact(facts.namespace.entities)
    full = [f"{entity.path} partition {partition}" for entity in entities for partition in sorted(entity.full)]
    if full:
        return failure(f"full, and refusing messages: {list_names(full)}")
    nearly = [
        f"{entity.path} partition {ledger.partition} to {ledger.bytes / entity.limit:.0%}"
        for entity, ledger in _ledgers(facts)
        if ledger.bytes is not None and entity.limit and ledger.bytes >= entity.limit * NEARLY_FULL
    ]
    return warning(f"nearly full: {list_names(nearly)}") if nearly else ok("no partition is nearly full")


def _dead_letters(facts: Facts) -> Finding:
    found = {
        entity.path: sum(ledger.waiting for ledger in require_fact(entity.ledgers))
        for entity in require_fact(facts.namespace.entities)
        if entity.is_dead_letter
    }
    there = [f"{count:,} in {path}" for path, count in found.items() if count]
    return warning(list_names(there)) if there else ok("no dead letters")


def _ledgers(facts: Facts) -> Iterator[tuple[EntityFacts, LedgerFacts]]:
    """Yield all ledgers with their entities.

    Raises:
        FactIsMissingError: The ledgers were not looked at.
    """
    return (
        (entity, ledger) for entity in require_fact(facts.namespace.entities) for ledger in require_fact(entity.ledgers)
    )


NAMESPACE_CHECKS = (
    Check(
        "clock-client",
        "this machine's clock differs by at most 1 s from that of Redis or of Kafka",
        "have a time service set it",
        _client_clock,
    ),
    Check(
        "clock-servers",
        "the clocks of Redis and Kafka differ by at most 1 s",
        "have a time service set both",
        _server_clocks,
    ),
    Check(
        "clock-ledgers",
        "Redis's clock was not set back: ledgers go on with the later time, and locks last as long as they should",
        "have a time service set Redis's clock, slowly",
        _ledger_clocks,
    ),
    Check(
        "upkeep",
        "an upkeep service gave a sign in the last 5 s",
        "run 'kafkabus serve'",
        _upkeep,
    ),
    Check(
        "entity-topics",
        "the Kafka topic of each entity is there, with the right number of partitions",
        "delete the entity, and create it again; its messages are gone if its topic is",
        _entity_topics,
    ),
    Check(
        "ledgers",
        "Redis holds the ledgers of each entity",
        "upkeep and clients rebuild them from checkpoints; run 'kafkabus serve' if none runs",
        _ledgers_there,
    ),
    Check(
        "checkpoints",
        "changes of ledgers are in a checkpoint after a minute",
        "run 'kafkabus serve', and see to its log",
        _checkpoints,
    ),
    Check(
        "transactions",
        "no message waits for the outcome of a transaction for longer than a minute",
        "run 'kafkabus serve', and see to its log; kafka-transactions says whether Kafka's own transaction is open",
        _overdue_rule("outcomes of transactions", lambda ledger: ledger.prepared_s),
    ),
    Check(
        "transfers",
        "no message is half dead-lettered, forwarded or activated for longer than a minute",
        "run 'kafkabus serve', and see to its log",
        _overdue_rule("transfers", lambda ledger: ledger.moving_s),
    ),
    Check(
        "refused-copies",
        "topics accept the copies of messages that are dead-lettered, forwarded or activated",
        "set max.message.bytes of the topic above that size with 'kafka-configs.sh --alter'; upkeep tries again every 30 s",
        _refused_copies,
    ),
    Check(
        "quota",
        "no partition holds 80 % of max_size_in_megabytes, or more",
        "receive, purge, or raise --max-size-in-megabytes",
        _quota,
    ),
    Check(
        "dead-letters",
        "dead-letter queues are empty",
        "see 'kafkabus dead-letter list'; then resubmit or purge them",
        _dead_letters,
    ),
)
"""The checks of the namespace."""
