"""Features that a tier allows and forbids."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from kafkabus_mapping.entities import QueueDescription
from kafkabus_mapping.namespaces import NamespaceDescription, NamespaceRuleError, Tier

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def namespace(tier: Tier = Tier.STANDARD, partitions: int | None = None) -> NamespaceDescription:
    """Return a namespace."""
    return NamespaceDescription(tier=tier, partitions=partitions, created_at=NOW, updated_at=NOW)


def queue(**settings: Any) -> QueueDescription:
    """Return a queue."""
    return QueueDescription(name="q", topic="t", topic_id="i", created_at=NOW, updated_at=NOW, **settings)


@pytest.mark.parametrize(
    ("where", "asked", "partitions"),
    [
        (namespace(), None, 1),
        (namespace(), False, 1),
        (namespace(), True, 16),
        (namespace(Tier.BASIC), True, 16),
        (namespace(Tier.PREMIUM, 4), None, 4),
        (namespace(Tier.PREMIUM, 4), True, 4),
        (namespace(Tier.PREMIUM, 1), None, 1),
        (namespace(Tier.PREMIUM, 1), False, 1),
    ],
)
def test_the_number_of_partitions(where: NamespaceDescription, asked: bool | None, partitions: int) -> None:
    """A queue has sixteen or one by choice, and the namespace's number in Premium."""
    assert where.partitions_for(asked) == partitions


@pytest.mark.parametrize(("partitions", "asked"), [(4, False), (1, True)])
def test_a_premium_namespace_decides_for_its_entities(partitions: int, asked: bool) -> None:
    """An entity cannot choose otherwise."""
    with pytest.raises(NamespaceRuleError, match=f"enable_partitioning={asked}.*created with {partitions}"):
        namespace(Tier.PREMIUM, partitions).partitions_for(asked)


@pytest.mark.parametrize(("tier", "partitions"), [(Tier.PREMIUM, None), (Tier.STANDARD, 16), (Tier.PREMIUM, 0)])
def test_only_premium_has_a_number_of_partitions(tier: Tier, partitions: int | None) -> None:
    """A Premium namespace must have one."""
    with pytest.raises(ValidationError):
        namespace(tier, partitions)


def test_the_largest_message_is_the_tiers() -> None:
    """It has 256 KB, and 1 MB in Premium."""
    assert [namespace(tier).max_message_bytes for tier in (Tier.BASIC, Tier.STANDARD)] == [262_144, 262_144]
    assert namespace(Tier.PREMIUM, 4).max_message_bytes == 1_048_576


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        (namespace(), {"max_size_in_megabytes": 5120}),
        (namespace(), {"max_size_in_megabytes": 5120, "partitions": 16}),
        (namespace(Tier.PREMIUM, 1), {"max_size_in_megabytes": 81_920}),
        (namespace(Tier.PREMIUM, 1), {"max_message_size_in_kilobytes": 1024}),
        (namespace(Tier.BASIC), {"default_message_time_to_live": timedelta(days=14)}),
        (namespace(Tier.BASIC), {}),
    ],
)
def test_what_a_tier_allows(where: NamespaceDescription, settings: dict[str, Any]) -> None:
    """Values at the bounds are allowed."""
    where.check_entity(queue(**settings))


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        (namespace(), {"max_size_in_megabytes": 1000}),
        (namespace(), {"max_size_in_megabytes": 10_240}),
        (namespace(Tier.PREMIUM, 4), {"max_size_in_megabytes": 10_240, "partitions": 4}),
        (namespace(), {"max_message_size_in_kilobytes": 1024}),
        (namespace(Tier.BASIC), {"requires_session": True}),
        (namespace(Tier.BASIC), {"requires_duplicate_detection": True}),
        (namespace(Tier.BASIC), {"forward_to": "other"}),
        (namespace(Tier.BASIC), {"default_message_time_to_live": timedelta(days=15)}),
    ],
)
def test_what_a_tier_forbids(where: NamespaceDescription, settings: dict[str, Any]) -> None:
    """The error names the setting."""
    with pytest.raises(NamespaceRuleError, match=next(iter(settings))):
        where.check_entity(queue(**settings))


def test_how_many_entities_a_namespace_holds() -> None:
    """It holds 10,000 in all, and 100 partitioned ones outside Premium."""
    namespace().check_room(16, 9_999, 99)
    namespace().check_room(1, 9_999, 100)
    namespace(Tier.PREMIUM, 4).check_room(4, 9_999, 9_999)
    with pytest.raises(NamespaceRuleError, match="100 partitioned"):
        namespace().check_room(16, 100, 100)
    for where in (namespace(), namespace(Tier.PREMIUM, 4)):
        with pytest.raises(NamespaceRuleError, match="10000"):
            where.check_room(1, 10_000, 0)
