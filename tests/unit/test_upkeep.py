"""Upkeep plans before it asks for anything: when messages expire, and which service tends which entity."""

from __future__ import annotations

import time
from contextlib import closing

from kafkabus._core.record import StoredRecord
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.keys import upkeep_key
from kafkabus._sync.context import ClientContext
from kafkabus.testing import InMemoryNamespace
from kafkabus.upkeep.expiry_index import STRETCH, Expiries
from kafkabus.upkeep.quota import Sizes
from kafkabus.upkeep.service import HEARTBEAT_LIFETIME, is_home
from tests.upkeep import PATIENCE, upkeep


def record(offset: int, lives: int | None = None) -> StoredRecord:
    """Return a record that was enqueued at 1,000 ms times its offset."""
    headers: list[tuple[str, bytes | None]] = [] if lives is None else [("sb-time-to-live", str(lives).encode())]
    return StoredRecord(("t", 0, offset), (None, b"x", headers), (1, 1000 * offset))


def test_a_stretch_is_due_when_its_first_message_expires() -> None:
    """The message's own time to live counts, or the entity's if that is shorter. A message without any is never due."""
    expiries = Expiries(0)
    expiries.add(0, 9, [record(1, 5_000), record(2, 1_000), record(3)], None)
    assert expiries.due(2_999) == []
    assert expiries.due(3_000) == [(0, 9)]
    assert expiries.due(3_000) == []
    expiries.add(0, 9, [record(1, 5_000), record(3)], None)
    expiries.add(10, 19, [record(10, 90_000)], 1_000)
    assert expiries.due(6_000) == [(0, 9)]
    assert expiries.due(11_000) == [(10, 19)]


def test_a_stretch_in_which_nothing_can_expire_is_forgotten() -> None:
    """It takes no place."""
    expiries = Expiries(0)
    expiries.add(0, 9, [record(1), record(2)], None)
    assert expiries.due(1 << 60) == []


def test_a_log_is_read_once_stretch_by_stretch() -> None:
    """It is read from the first unsettled message up to its end."""
    expiries = Expiries(5)
    assert expiries.unread(5) is None
    assert expiries.unread(7) == (5, 6)
    expiries.add(5, 6, [], None)
    assert expiries.unread(7) is None
    assert expiries.unread(10 * STRETCH) == (7, 7 + STRETCH - 1)


def test_each_entity_has_one_home_and_few_change_hands() -> None:
    """All instances agree; without one of them only its entities move."""
    members = ["a", "b", "c"]
    entities = [f"queue-{number}" for number in range(300)]
    homes = {entity: [one for one in members if is_home(entity, one, members)] for entity in entities}
    assert all(len(home) == 1 for home in homes.values())
    assert all(sum(home == [one] for home in homes.values()) > 60 for one in members)
    for entity, (home,) in homes.items():
        if home != "c":
            assert is_home(entity, home, ["a", "b"])


def test_an_instance_that_was_not_heard_of_counts_itself() -> None:
    """That holds before its first heartbeat arrived."""
    assert is_home("q", "a", [])


def test_an_instance_that_was_stopped_is_not_waited_for() -> None:
    """Others take its entities with their next heartbeat."""
    with InMemoryNamespace(upkeep=False) as here:
        settings = parse_settings(here.connection_string)
        key = upkeep_key(settings.namespace)
        with closing(ClientContext(settings)) as context:
            with upkeep(here.connection_string):
                deadline = time.monotonic() + PATIENCE
                while context.ledger_client.last_heartbeat(key) is None:
                    assert time.monotonic() < deadline
            assert context.ledger_client.heartbeat(key, "other", HEARTBEAT_LIFETIME) == ["other"]


def sized(offset: int, size: int) -> StoredRecord:
    """Return a record of so many bytes."""
    return StoredRecord(("t", 0, offset), (None, b"x" * size, []), (1, 0))


def test_sizes_are_known_from_any_offset_on() -> None:
    """They are exact to within a stretch, without forgotten stretches."""
    sizes = Sizes(100)
    assert sizes.bytes_since(100) == 0
    sizes.add(300, [sized(offset, 10) for offset in range(100, 300)])
    sizes.add(310, [sized(offset, 1_000) for offset in range(300, 310)])
    assert sizes.upto == 310
    assert sizes.bytes_since(0) == sizes.bytes_since(100) == 12_000
    assert sizes.bytes_since(200) == 11_000
    assert sizes.bytes_since(275) == 10_250
    assert sizes.bytes_since(305) == 5_000
    assert sizes.bytes_since(310) == sizes.bytes_since(400) == 0
    sizes.add(360, [sized(offset, 1) for offset in range(310, 360, 2)])
    assert sizes.bytes_since(310) == 25
    assert sizes.bytes_since(0) == 12_025
    sizes.forget(305)
    assert (sizes.start, sizes.bytes_since(0), sizes.bytes_since(305)) == (300, 10_025, 5_025)
