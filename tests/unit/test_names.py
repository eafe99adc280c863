"""Names: the allowed ones, and their forms in Kafka and Redis."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkabus_mapping.names import (
    EntityPath,
    NameRuleError,
    check_entity,
    check_namespace,
    compacted_topic_name,
    ledger_tag,
    parse_topic,
    topic_name,
)

ENTITIES = st.from_regex(r"[a-z0-9]([a-z0-9._-]|/[a-z0-9]){0,40}[a-z0-9]", fullmatch=True)


def test_plain_names_stay_readable() -> None:
    """Characters that Kafka allows are left as they are."""
    assert topic_name("kafkabus", EntityPath("Flights")) == "kafkabus.flights"
    assert topic_name("kafkabus", EntityPath("flights").dead_letter) == "kafkabus.flights.DLQ"
    assert topic_name("kafkabus", EntityPath("flights").transfer_dead_letter) == "kafkabus.flights.TDLQ"
    assert topic_name("kafkabus", EntityPath("orders/eu_1")) == "kafkabus.ordersX2FeuX5F1"


@given(ENTITIES)
def test_the_encoding_is_reversible_and_kafkas(name: str) -> None:
    """Every name comes back from its topic, and no topic has a character that Kafka refuses.

    A path comes back from its text.
    """
    for path in EntityPath(name).all:
        topic = topic_name("my-namespace", path)
        assert re.fullmatch(r"[a-zA-Z0-9.-]{1,249}", topic)
        assert parse_topic(topic) == ("my-namespace", path)
        assert EntityPath.parse(str(path)) == path


@given(ENTITIES, ENTITIES)
def test_different_names_have_different_topics(one: str, other: str) -> None:
    """That holds even if Kafka's metrics would take '.' and '_' for the same."""
    if one != other:
        topics = {topic_name("n", path) for name in (one, other) for path in EntityPath(name).all}
        assert len({topic.replace(".", "_") for topic in topics}) >= len({topic.replace("_", ".") for topic in topics})
        assert len(topics) == 6


def test_companions_are_nobodys_topics() -> None:
    """No entity's name leads to one of them."""
    topic = compacted_topic_name("kafkabus", "descriptions")
    assert topic == "kafkabus.DESCRIPTIONS"
    assert parse_topic(topic) is None


@pytest.mark.parametrize("name", ["a", "a/b/c", "Orders.EU-1_x", "9", "x" * 260])
def test_service_bus_names_are_taken(name: str) -> None:
    """They have letters and digits, and '.', '-', '_' and '/' between."""
    assert check_entity(name) == name


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "-a", "a.", "a b", "ä", "a$b", "a\n", "x" * 261])
def test_other_names_are_refused(name: str) -> None:
    """The message has the rule."""
    with pytest.raises(NameRuleError, match=r"entity name.*(letter or digit|longest)"):
        check_entity(name)


def test_a_name_that_kafka_could_not_hold_is_refused() -> None:
    """Escapes count towards the length."""
    with pytest.raises(NameRuleError, match=r"Kafka takes 249.*shorten"):
        topic_name("kafkabus", EntityPath("a" + "_a" * 100))


@pytest.mark.parametrize("length", range(200, 250))
def test_a_name_whose_dead_letter_topics_kafka_could_not_hold_is_refused(length: int) -> None:
    """The name is refused before any topic is created, as no client could delete that."""
    path = EntityPath("a" * length)
    try:
        topic_name("kafkabus", path)
    except NameRuleError:
        assert length > 249 - len("kafkabus..TDLQ")
    else:
        assert max(len(topic_name("kafkabus", one)) for one in path.all) <= 249


@pytest.mark.parametrize("name", ["", "-a", "a.b", "a_b", "x" * 51])
def test_bad_namespaces_are_refused(name: str) -> None:
    """Letters, digits and hyphens are allowed."""
    with pytest.raises(NameRuleError, match="namespace name"):
        check_namespace(name)
    assert check_namespace("MyBus") == "mybus"


def test_all_ledgers_over_one_log_share_a_hash_tag() -> None:
    """The tag is namespace, entity, generation and partition, in braces."""
    assert ledger_tag("n", EntityPath("Q"), "id", 3) == "{n/q/id/3}"
    assert ledger_tag("n", EntityPath("Q").dead_letter, "id", 3) == "{n/q/$deadletterqueue/id/3}"
