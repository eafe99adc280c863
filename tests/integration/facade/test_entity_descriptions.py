"""The list of a namespace's entities, while several clients create, delete and look at once."""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Callable, Iterator, Mapping

import pytest
import redis

from kafkabus._ledger.keys import description_index_key, descriptions_key
from kafkabus._sync.redis.connection import NOTHING, DescriptionCache, DescriptionRecord, RedisConnection
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import MessagingEntityNotFoundError
from kafkabus.management import ServiceBusAdministrationClient


@pytest.fixture
def cache(runtime: RunningNamespace) -> Iterator[DescriptionCache]:
    """An empty cache."""
    with redis.Redis.from_url(runtime.redis_url, protocol=2) as store:
        namespace = f"directory-{uuid.uuid4().hex[:8]}"
        yield DescriptionCache(RedisConnection(store, address="redis", namespace=namespace), namespace)


def before_all_is_kept(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let an event happen once, after a client has read all descriptions and before it keeps them."""
    keep = DescriptionCache.keep

    def late(
        cache: DescriptionCache, described: Mapping[str, DescriptionRecord], *, all_of: str = "", upto: int = NOTHING
    ) -> None:
        if all_of:
            monkeypatch.undo()
            act()
        keep(cache, described, all_of=all_of, upto=upto)

    monkeypatch.setattr(DescriptionCache, "keep", late)


def lose_all(runtime: RunningNamespace) -> None:
    """Delete the descriptions of all namespaces from Redis."""
    with redis.Redis.from_url(runtime.redis_url) as store:
        store.delete(*store.keys(descriptions_key("*")))


def test_in_whatever_order_it_comes_the_last_record_of_the_topic_counts(cache: DescriptionCache) -> None:
    """The last record of each name counts; a deletion is a record, too."""
    records = {
        "kept": [DescriptionRecord(1, "one"), DescriptionRecord(4, None), DescriptionRecord(10, "three")],
        "deleted": [DescriptionRecord(2, "one"), DescriptionRecord(9, None)],
    }
    steps = [{name: described} for name, several in records.items() for described in several]
    random.Random(5).shuffle(steps)
    for step in steps:
        cache.keep(step)
    assert cache.all() == (NOTHING, {"kept": "three"})
    cache.keep(
        {"deleted": DescriptionRecord(2, "one"), "kept": DescriptionRecord(4, None)}, all_of=cache.life(), upto=11
    )
    assert cache.all() == (11, {"kept": "three"})
    assert cache.get("kept") == (11, "three")
    assert cache.get("deleted") == (11, None)


def test_a_cache_holds_all_up_to_the_first_record_that_it_was_not_told_of(cache: DescriptionCache) -> None:
    """A late client leaves a gap behind its record, which the next reader of the topic closes."""
    cache.keep({"first": DescriptionRecord(0, "one")}, all_of=cache.life(), upto=1)
    cache.keep({"second": DescriptionRecord(1, "two")})
    assert cache.get("second") == (2, "two")
    cache.keep({"fourth": DescriptionRecord(3, "four")})
    assert cache.get("fourth") == (2, "four")
    cache.keep({"third": DescriptionRecord(2, None)})
    assert cache.get("third") == (3, None)
    cache.keep(
        {"first": DescriptionRecord(0, "one"), "second": DescriptionRecord(1, "two")}, all_of=cache.life(), upto=2
    )
    assert cache.get("fourth") == (3, "four")


def test_what_the_topic_names_no_more_was_deleted(cache: DescriptionCache) -> None:
    """Kafka drops the record of a deletion after a day. A replica that lagged may still have the deleted entity."""
    cache.keep(
        {"gone": DescriptionRecord(0, "one"), "later": DescriptionRecord(5, "three")}, all_of=cache.life(), upto=1
    )
    cache.keep({"stays": DescriptionRecord(1, "two")}, all_of=cache.life(), upto=4)
    assert cache.all() == (4, {"stays": "two", "later": "three"})


def test_that_there_is_nothing_is_looked_up_each_time(untended: str) -> None:
    """A broker that lags behind may have said so about a topic that holds more than the cache."""
    elsewhere = re.sub(r"(Redis=[^;]*)/0", r"\1/1", untended)
    assert elsewhere != untended
    with (
        ServiceBusAdministrationClient.from_connection_string(untended) as administration,
        ServiceBusAdministrationClient.from_connection_string(elsewhere) as another,
    ):
        assert list(administration.list_queues()) == []
        another.create_queue("orders")
        assert [queue.name for queue in administration.list_queues()] == ["orders"]


def test_a_deletion_stands_that_comes_while_another_client_reads_all_descriptions(
    runtime: RunningNamespace, untended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older descriptions that the client read must not bring the queue back."""
    name = f"directory-{uuid.uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:
        administration.create_queue(name)
        lose_all(runtime)
        before_all_is_kept(monkeypatch, lambda: administration.delete_queue(name))
        assert name in [queue.name for queue in administration.list_queues()]
        assert name not in [queue.name for queue in administration.list_queues()]
        with pytest.raises(MessagingEntityNotFoundError):
            administration.get_queue(name)


def test_a_queue_is_known_that_comes_while_redis_is_emptied_and_another_client_reads_all_descriptions(
    runtime: RunningNamespace, untended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older descriptions that the client read must not count as complete."""
    name = f"directory-{uuid.uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(untended) as administration:

        def create_and_lose_all() -> None:
            administration.create_queue(name)
            lose_all(runtime)

        administration.create_queue(f"{name}-before")
        lose_all(runtime)
        before_all_is_kept(monkeypatch, create_and_lose_all)
        list(administration.list_queues())
        assert administration.get_queue(name).name == name


def described(name: str) -> str:
    """Return as much of a description as the index goes by; a setting's text is not mistaken for another setting."""
    values = {"enable_partitioning": name.endswith("p"), "user_metadata": '"enable_partitioning":true'}
    return json.dumps(values, separators=(",", ":"))


def test_the_index_is_that_of_the_descriptions(cache: DescriptionCache, runtime: RunningNamespace) -> None:
    """Also if clients of versions that know no index write, and if Redis loses some of it."""
    dice = random.Random(7)
    names = ["a", "ap", "b", "t", "tp", *(f"{topic}/subscriptions/{n}" for topic in ("t", "tp") for n in "xyp")]
    key, index = descriptions_key(cache._namespace), description_index_key(cache._namespace)
    cache.life()
    with redis.Redis.from_url(runtime.redis_url) as store:
        for offset in range(300):
            name, is_there = dice.choice(names), dice.random() < 0.6
            text = described(name) if is_there else None
            kind = dice.choice(["write", "late", "load", "old", "lost", "emptied"])
            if kind == "write":
                cache.keep({name: DescriptionRecord(offset, text)})
            elif kind == "late":
                cache.keep({name: DescriptionRecord(offset // 2, text)})
            elif kind == "load":
                every = {one: DescriptionRecord(offset, described(one)) for one in names if dice.random() < 0.6}
                cache.keep(every, all_of=cache.life(), upto=offset + 1)
            elif kind == "old" and is_there:
                store.hset(key, name, f"{offset} {text}")
            elif kind == "old":
                store.hdel(key, name)
            elif kind == "lost":
                store.delete(index)
            else:
                cache.empty()
                cache.life()
            upto, every_text = cache.all()
            found = cache.find(dice.choice(["", "t/subscriptions/", "tp/s", "a"]))
            others = [one for one in every_text if "/" not in one]
            assert (found.upto, found.entities) == (upto, len(others))
            assert found.partitioned == sum(one.endswith("p") for one in others)
            for beginning in ("t/subscriptions/", "tp/subscriptions/", "a"):
                wanted = sorted(one for one in every_text if one.startswith(beginning))
                assert cache.find(beginning).texts == [every_text[one] for one in wanted]


def test_reservations_count_for_those_that_come_later(cache: DescriptionCache) -> None:
    """Until they are given back, or the entity is there."""
    cache.keep({"a": DescriptionRecord(0, described("a"))}, all_of=cache.life(), upto=1)

    def room(name: str, creation: str = "one", *, partitioned: bool = False) -> tuple[int, int]:
        found = cache.reserve(name, creation, partitioned=partitioned, seconds=60)
        assert found.upto >= 1
        return found.entities, found.partitioned

    assert room("first") == (1, 0)
    assert room("first", "other") == (1, 0)
    assert room("secondp", partitioned=True) == (2, 0)
    assert room("third") == (3, 1)
    cache.reserve("first", "other", partitioned=False, seconds=0)
    assert room("third") == (3, 1)
    cache.keep({"first": DescriptionRecord(1, described("first"))})
    assert room("first") == (1, 0)
    assert room("third") == (3, 1)
    cache.reserve("secondp", "one", partitioned=True, seconds=0)
    assert room("third") == (2, 0)
    assert room("fourth") == (3, 0)
