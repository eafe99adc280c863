"""The doctor's checks as rules over facts that are hard to plant in real servers, and its list of checks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkabus._core.settings import parse_settings
from kafkabus._kafka.probe import BrokerAddress, PartitionReplicas, Tick, TopicState
from kafkabus._kafka.topic_admin import COMPACTED_TOPIC, ENTITY_TOPIC
from kafkabus.cli.commands.doctor import _rows
from kafkabus.doctor import CHECKS, Facts, LookLimits, State, gather, judge
from kafkabus.doctor.check import EXPIRES_SOON_DAYS, SHOWN, list_names
from kafkabus.doctor.facts import (
    EntityFacts,
    Handshake,
    KafkaFacts,
    LedgerFacts,
    Missing,
    NamespaceFacts,
    Reached,
    RedisFacts,
    RefusedCopyFacts,
    SystemLimits,
    require_fact,
)
from kafkabus.doctor.network import shake_hands
from kafkabus.embedded.ports import HOST
from tests.certificates import Authority
from tests.tls_server import speaking_tls

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "doctor.md"
EVERY_RIGHT = frozenset({"CREATE", "WRITE", "READ", "DELETE", "DESCRIBE", "ALTER_CONFIGS"})
BROKERS = 3


def topic(name: str, **changes: Any) -> TopicState:
    """Return a topic of one partition on three brokers; ``changes`` are those of its partition."""
    partition = replace(PartitionReplicas(0, True, BROKERS, BROKERS), **changes)
    return TopicState(name, "id", (partition,), EVERY_RIGHT)


def healthy() -> Facts:
    """Return facts of a namespace with all as it should be, on three brokers."""
    least = {"min.insync.replicas": "2"}
    addresses = [BrokerAddress(number, "broker", 9092) for number in range(BROKERS)]
    return Facts(
        None,
        KafkaFacts(
            addresses=[Reached("broker:9092")],
            tls=Handshake(True, days_left=90),
            refusal="",
            fetch_version=18,
            brokers=[(one, Reached("broker:9092")) for one in addresses],
            limits=Missing("the brokers run on other machines"),
            topics={"shop.orders": topic("shop.orders"), "shop.DESCRIPTIONS": topic("shop.DESCRIPTIONS")},
            hidden=frozenset(),
            settings={
                "shop.orders": {**ENTITY_TOPIC, "cleanup.policy": "delete", **least},
                "shop.DESCRIPTIONS": {**COMPACTED_TOPIC, **least},
            },
            open_transactions={},
            rights=dict.fromkeys(("create", "write", "read", "delete", "configure", "transactions"), ""),
            ticks=[Tick(1000, 1000, 1000)],
        ),
        RedisFacts(
            address=Reached("redis:6379"),
            tls=Handshake(True, days_left=90),
            refusal="",
            infos=[{"redis_version": "7.2.4", "role": "master", "aof_enabled": 1, "used_memory": 1}],
            settings={"save": "", "min-replicas-to-write": "0"},
            ahead_ms=(0.0, 0.1),
            rights=dict.fromkeys(("keys", "scripts", "channels"), ""),
        ),
        NamespaceFacts(
            upkeep_s=[0.5], entities=[EntityFacts("orders", False, "shop.orders", ledgers=[LedgerFacts(0)])]
        ),
    )


def partition(**changes: Any) -> Callable[[Facts], None]:
    """Return a change of the partition of the topic ``shop.orders``."""

    def change(facts: Facts) -> None:
        facts.kafka.topics = {"shop.orders": topic("shop.orders", **changes)}
        if changes.get("replicas") == 1:
            setting("min.insync.replicas", "1")(facts)

    return change


def setting(name: str, value: str, of: str = "shop.orders") -> Callable[[Facts], None]:
    """Return a change of a setting of a topic."""

    def change(facts: Facts) -> None:
        settings = require_fact(facts.kafka.settings)
        facts.kafka.settings = {**settings, of: {**settings[of], name: value}}

    return change


def info(**values: Any) -> Callable[[Facts], None]:
    """Return a change of values that Redis answers to INFO."""

    def change(facts: Facts) -> None:
        facts.redis.infos = [{**one, **values} for one in require_fact(facts.redis.infos)]

    return change


def kafka(**values: Any) -> Callable[[Facts], None]:
    """Return a change of facts of Kafka."""

    def change(facts: Facts) -> None:
        facts.kafka = replace(facts.kafka, **values)

    return change


def of_redis(**values: Any) -> Callable[[Facts], None]:
    """Return a change of facts of Redis."""

    def change(facts: Facts) -> None:
        facts.redis = replace(facts.redis, **values)

    return change


def entity(**values: Any) -> Callable[[Facts], None]:
    """Return a change of the only entity."""

    def change(facts: Facts) -> None:
        facts.namespace.entities = [replace(one, **values) for one in require_fact(facts.namespace.entities)]

    return change


LATE_REPLICA = {"ip": "10.0.0.2", "port": 6379, "state": "online", "lag": 60}
FAULTS: dict[str, tuple[Callable[[Facts], None], str, State, str]] = {
    "Kafka 3.5": (kafka(fetch_version=15), "kafka-version", State.FAILURE, "Kafka 3.5 or later, and older than 3.7"),
    "an older Kafka": (kafka(fetch_version=11), "kafka-version", State.FAILURE, "older than 3.5"),
    "one address of two": (
        kafka(addresses=[Reached("broker:9092"), Reached("gone:9092", "gone:9092 refuses")]),
        "kafka-address",
        State.WARNING,
        "gone:9092 refuses",
    ),
    "an address for insiders": (
        kafka(brokers=[(BrokerAddress(7, "inside", 9092), Reached("inside:9092", "the name 'inside' is not known"))]),
        "kafka-brokers",
        State.FAILURE,
        "broker 7: the name 'inside' is not known",
    ),
    "a certificate that ends": (
        kafka(tls=Handshake(True, days_left=EXPIRES_SOON_DAYS - 1)),
        "kafka-tls",
        State.WARNING,
        "the certificate ends in 13 days",
    ),
    "a listener with TLS": (kafka(tls=Handshake(False, "it speaks TLS")), "kafka-tls", State.FAILURE, "it speaks TLS"),
    "one replica on three brokers": (
        partition(replicas=1, in_sync=1),
        "kafka-replication",
        State.WARNING,
        "shop.orders has 1 of 3",
    ),
    "one replica in sync is enough": (
        setting("min.insync.replicas", "1"),
        "kafka-min-insync",
        State.WARNING,
        "may be lost with one broker: shop.orders has 1 of 3 replicas",
    ),
    "all replicas have to be in sync": (
        setting("min.insync.replicas", "3"),
        "kafka-min-insync",
        State.WARNING,
        "shop.orders asks for all 3",
    ),
    "no leader": (
        partition(has_leader=False, in_sync=0),
        "kafka-partitions",
        State.FAILURE,
        "no broker leads shop.orders/0",
    ),
    "too few in sync": (partition(in_sync=1), "kafka-partitions", State.FAILURE, "too few replicas are in sync"),
    "one not in sync": (partition(in_sync=2), "kafka-partitions", State.WARNING, "not all replicas are in sync"),
    "too many logs for Linux's default": (
        kafka(
            topics={
                "shop.orders": TopicState(
                    "shop.orders", "id", (PartitionReplicas(0, True, 3, 3),) * 27_000, EVERY_RIGHT
                )
            }
        ),
        "kafka-limits",
        State.WARNING,
        (
            "27,000 logs on each broker take 54,000 memory maps and 27,000 open files, and more for each full segment; Linux "
            "allows 65,530 maps"
        ),
    ),
    "too few files": (
        kafka(limits=SystemLimits(65_530, 1)),
        "kafka-limits",
        State.FAILURE,
        (
            "2 logs on each broker take 4 memory maps and 2 open files, and more for each full segment; this machine allows "
            "65,530 maps and 1 open files"
        ),
    ),
    "nearly too few maps": (kafka(limits=SystemLimits(4, 1024)), "kafka-limits", State.WARNING, "allows 4 maps"),
    "records that go": (setting("retention.ms", "1000"), "kafka-topic-settings", State.FAILURE, "retention.ms=1000"),
    "descriptions that go": (
        setting("cleanup.policy", "delete", "shop.DESCRIPTIONS"),
        "kafka-topic-settings",
        State.FAILURE,
        "shop.DESCRIPTIONS has cleanup.policy=delete instead of compact",
    ),
    "an entity of digits": (
        lambda facts: setattr(facts.kafka, "settings", {"shop.1": {"min.insync.replicas": "2"}}),
        "kafka-topic-settings",
        State.FAILURE,
        "shop.1 has message.timestamp.type= instead of LogAppendTime",
    ),
    "small records": (setting("max.message.bytes", "1000"), "kafka-topic-settings", State.FAILURE, "max.message.bytes"),
    "a hidden topic": (kafka(hidden=frozenset({"shop.x"})), "kafka-right-describe", State.FAILURE, "describe shop.x"),
    "Redis 6.0": (info(redis_version="6.0.16"), "redis-version", State.FAILURE, "Redis 6.0.16, and older than 6.2"),
    "a node of a cluster of Redis": (
        info(redis_mode="cluster"),
        "redis-mode",
        State.FAILURE,
        "part of a Redis Cluster",
    ),
    "a node of a cluster of Valkey": (
        info(server_mode="cluster"),
        "redis-mode",
        State.FAILURE,
        "part of a Redis Cluster",
    ),
    "a replica that lags": (
        info(connected_slaves=1, slave0=LATE_REPLICA),
        "redis-replication",
        State.WARNING,
        "do not keep up: 10.0.0.2:6379",
    ),
    "a node of a cluster that drops keys": (
        lambda facts: setattr(
            facts.redis,
            "infos",
            [
                {"redis_version": "7.2.4", "node": "10.0.0.1:6379", "aof_enabled": 1},
                {
                    "redis_version": "7.2.4",
                    "node": "10.0.0.2:6379",
                    "aof_enabled": 1,
                    "maxmemory_policy": "allkeys-lru",
                },
            ],
        ),
        "redis-eviction",
        State.FAILURE,
        "node 10.0.0.2:6379: maxmemory-policy is allkeys-lru",
    ),
    "memory nearly used up": (info(used_memory=80, maxmemory=100), "redis-memory", State.WARNING, "used"),
    "a file that cannot be written": (
        info(aof_last_write_status="err"),
        "redis-persistence",
        State.FAILURE,
        "the last write to the append-only file failed",
    ),
    "Redis's clock": (of_redis(ahead_ms=(5000.0, 1.0)), "clock-servers", State.WARNING, "5.0 s ahead of Kafka's"),
    "a copy that its topic refuses": (
        entity(
            ledgers=[
                LedgerFacts(0),
                LedgerFacts(1, refused=[RefusedCopyFacts(281474976710657, 2_000_100, "shop.dead")]),
            ]
        ),
        "refused-copies",
        State.FAILURE,
        "message 281474976710657 of orders partition 1: a copy of 2000100 bytes in shop.dead",
    ),
    "a full partition": (entity(full=frozenset({3})), "quota", State.FAILURE, "orders partition 3"),
}


def test_a_healthy_namespace_has_no_finding() -> None:
    """So each finding below is that of the planted fault."""
    facts = healthy()
    assert {check.name: judge(check, facts).state for check in CHECKS} == {check.name: State.OK for check in CHECKS}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_check_alone(fault: str) -> None:
    """The finding has a remedy."""
    change, name, state, found = FAULTS[fault]
    facts = healthy()
    change(facts)
    findings = {check.name: finding for check in CHECKS if (finding := judge(check, facts)).state is not State.OK}
    assert {name: one.state for name, one in findings.items()} == {name: state}
    assert found in findings[name].found
    assert findings[name].remedy


@pytest.mark.parametrize(("ms", "state"), [(0, State.OK), (900, State.OK), (1500, State.WARNING)])
def test_a_clock_counts_as_wrong_only_if_that_is_sure(ms: int, state: State) -> None:
    """If Redis took 2 s to answer, it may have read its clock at any time within these 2 s."""
    facts = healthy()
    facts.redis.ahead_ms, facts.kafka.ticks = (float(ms), 1.0), [Tick(0, ms, 0)]
    (check,) = (check for check in CHECKS if check.name == "clock-client")
    assert judge(check, facts).state is state
    facts.redis.ahead_ms, facts.kafka.ticks = (float(ms), 2000.0), Missing("no right to write")
    assert judge(check, facts).state is State.OK


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that signed the server's certificate."""
    return Authority(tmp_path_factory.mktemp("authority"))


def test_a_certificate_is_trusted_by_its_authority_alone(authority: Authority) -> None:
    """Without the authority the reason names the certificate; with it the end of the certificate is known."""
    with speaking_tls(authority.certify("server").both) as port:
        assert "certificate of 127.0.0.1" in shake_hands(HOST, port, 10.0).problem
        trusted = shake_hands(HOST, port, 10.0, str(authority.file))
    assert trusted.problem == ""
    assert trusted.days_left == pytest.approx(1, abs=0.1)
    assert "cannot be read" in shake_hands(HOST, port, 10.0, "/missing").problem


@pytest.mark.parametrize("server", ["kafka", "redis"])
def test_a_server_that_speaks_tls_unexpectedly_is_named(authority: Authority, server: str) -> None:
    """Its client gets no answer that it understands."""
    with speaking_tls(authority.certify(server).both) as port:
        at = {"kafka": f"{HOST}:1", "redis": f"{HOST}:1"} | {server: f"{HOST}:{port}"}
        facts = gather(
            parse_settings(f"Endpoint=sb://n.x/;KafkaBootstrapServers={at['kafka']};Redis=redis://{at['redis']}/0"),
            LookLimits(step_s=2.0),
        )
    findings = {check.name: judge(check, facts) for check in CHECKS}
    assert findings[f"{server}-tls"].state is State.FAILURE
    assert "speaks TLS" in findings[f"{server}-tls"].found
    assert findings[f"{server}-authentication"].state is State.NOT_CHECKED


def test_rights_that_cannot_be_tried_are_those_that_each_topic_grants() -> None:
    """Without topics they are not checked. A right to transactions is never one of a topic."""
    facts = healthy()
    facts.kafka.rights = {"create": "Kafka does not let its user create topics", "transactions": ""}
    findings = {check.name: judge(check, facts).state for check in CHECKS if check.name.startswith("kafka-right")}
    granted = ("describe", "write", "read", "delete", "configure", "transactions")
    assert findings == {"kafka-right-create": State.FAILURE} | {f"kafka-right-{one}": State.OK for one in granted}
    facts.kafka.topics = {"shop.orders": replace(topic("shop.orders"), operations=frozenset({"READ"}))}
    findings = {check.name: judge(check, facts).state for check in CHECKS if check.name.startswith("kafka-right")}
    assert [findings[f"kafka-right-{one}"] for one in ("write", "read")] == [State.FAILURE, State.OK]
    facts.kafka.topics = {}
    findings = {check.name: judge(check, facts).state for check in CHECKS if check.name.startswith("kafka-right")}
    assert findings["kafka-right-write"] is State.NOT_CHECKED


def test_what_is_not_known_is_not_checked() -> None:
    """Such a check is no failure; its finding has the reason."""
    facts = Facts()
    facts.kafka.miss_rest("Kafka is not reached")
    for check in CHECKS:
        finding = judge(check, facts)
        assert finding.state is State.NOT_CHECKED
        assert finding.remedy
        if check.name.startswith("kafka"):
            assert finding.found == "Kafka is not reached"


def test_long_lists_are_cut() -> None:
    """A namespace may have thousands of topics."""
    assert list_names(map(str, range(SHOWN + 2))) == "0, 1, 2 and 2 more"


def test_the_page_has_all_checks_with_their_remedies() -> None:
    """The table is that of the list of checks, in its order."""
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    told = [(check.name, check.about, check.remedy) for check in CHECKS]
    assert [tuple(cell.replace("`", "'") for cell in row) for row in rows] == told


def test_checks_that_are_not_made_for_one_reason_are_one_line() -> None:
    """Of a server that is not reached, so that the finding that matters is seen."""
    facts = healthy()
    facts.kafka = KafkaFacts([Reached("a:1", "a:1: connection refused")])
    facts.kafka.miss_rest("Kafka is not reached")
    rows = _rows([(check, judge(check, facts)) for check in CHECKS if check.name.startswith(("kafka", "redis"))])
    assert [row[:3] for row in rows[:2]] == [
        ["kafka-address", "failure", "a:1: connection refused"],
        ["kafka-tls and 16 more", "not checked", "Kafka is not reached"],
    ]
    assert [row[1] for row in rows[2:]] == ["ok"] * 12
