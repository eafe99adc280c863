"""A transfer stepped through every interleaving of its owner and upkeep, with a crash of either after any step."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from kafkabus import ServiceBusMessage
from kafkabus._core.entity import Entity
from kafkabus._core.message import receipt_of
from kafkabus._core.record import Record
from kafkabus._core.settings import parse_settings
from kafkabus._ledger.operations import Orphan
from kafkabus._sync.context import ClientContext
from kafkabus._sync.dispositions.transfer import ORPHAN_AGE, WINNER_KEPT, EntityLog, Intent
from kafkabus._sync.handles.client import ServiceBusClient
from kafkabus.embedded import RunningNamespace
from kafkabus.exceptions import OperationTimeoutError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath
from tests.clock import advance

PATIENCE_S = 30.0

OWNER = ("begin", "produce", "end")
UPKEEP = ("adopt", "search", "produce again", "end again")


@dataclass
class Source:
    """One message of a queue, and its destination."""

    queue: str
    entity: Entity
    destination: Entity
    partition: int
    lease: str
    record: Record

    @property
    def here(self) -> EntityLog:
        return EntityLog(self.entity, self.partition)

    @property
    def there(self) -> EntityLog:
        return EntityLog(self.destination, self.partition)

    @property
    def offset(self) -> int:
        offset = self.record.offset()
        assert offset is not None
        return offset


@dataclass
class Owner:
    """The receiver that began the transfer.

    Attributes:
        paused: Whether it was paused between looking at its age and producing, which no check can rule out.
    """

    context: ClientContext
    source: Source
    paused: bool
    late: bool = False
    ends: dict[int, int] = field(default_factory=dict)
    stopped: bool = False

    def step(self, name: str) -> None:
        source, transfers = self.source, self.context.transfers
        intent = Intent(0, "Bad", None)
        if self.stopped:
            return
        if name == "begin":
            assert transfers.begin(source.here, {source.lease: [source.record]}, intent) == {source.lease: []}
        elif name == "produce":
            began = time.monotonic() - (ORPHAN_AGE if self.late and not self.paused else 0)
            try:
                self.ends = transfers.produce(source.here, source.there, [(source.record, intent)], began)
            except OperationTimeoutError:
                self.stopped = True
        else:
            transfers.end(source.here, source.there, self.ends)


@dataclass
class Upkeep:
    """Upkeep that finishes the transfer."""

    context: ClientContext
    source: Source
    orphans: list[Orphan] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)

    def step(self, name: str) -> None:
        source, transfers = self.source, self.context.transfers
        if name == "adopt":
            self.orphans = transfers.adopt(source.here)
        elif not self.orphans:
            return
        elif name == "search":
            self.ends = transfers.search(source.here, source.there, self.orphans)
        elif name == "produce again":
            if source.offset not in self.ends:
                self.ends = transfers.produce_again(source.here, source.there, self.orphans, time.monotonic())
        else:
            transfers.end(source.here, source.there, self.ends)


class Stage:
    """A queue whose messages are transferred one after the other by two clients, and looked at by a third."""

    def __init__(self, runtime: RunningNamespace) -> None:
        self.runtime = runtime
        self.queue = f"transfers-{uuid.uuid4().hex[:8]}"
        # A namespace without upkeep, so that only the test finishes a half-made transfer.
        elsewhere = runtime.connection_string.replace("sb://tests.", "sb://untended.", 1)
        self.client = ServiceBusClient.from_connection_string(elsewhere)
        settings = parse_settings(elsewhere)
        self.owner, self.upkeep, self.third = ClientContext(settings), ClientContext(settings), ClientContext(settings)
        with ServiceBusAdministrationClient.from_connection_string(elsewhere) as administration:
            administration.create_queue(self.queue)
        self.sender = self.client.get_queue_sender(self.queue)
        self.receiver = self.client.get_queue_receiver(self.queue)
        self.dead_letters = self.client.get_queue_receiver(self.queue, sub_queue="deadletter")

    def close(self) -> None:
        self.client.close()
        for context in (self.owner, self.upkeep, self.third):
            context.close()

    def source(self) -> Source:
        """A new message, locked."""
        self.sender.send_messages(ServiceBusMessage(uuid.uuid4().hex))
        (message,) = self.receiver.receive_messages(max_wait_time=PATIENCE_S)
        path = EntityPath(self.queue)
        return Source(
            self.queue,
            self.owner.catalog.entity(path),
            self.owner.catalog.entity(path.dead_letter),
            0,
            receipt_of(message).delivery.lease,
            receipt_of(message).record,
        )

    def pass_time(self, seconds: float) -> None:
        advance(self.runtime.redis_url, "untended", self.queue, seconds)

    def outcome(self, source: Source) -> int:
        """Finish all unfinished work; return how many copies the dead-letter queue delivers."""
        for _ in range(2):
            self.pass_time(ORPHAN_AGE + 1)
            self.third.transfers.finish(source.entity, source.partition)
        self.pass_time(61)
        # Neither queue delivers a message that lies before another one that goes the same way afterwards.
        self.sender.send_messages(ServiceBusMessage("the last one"))
        (last,) = self.receiver.receive_messages(10, max_wait_time=PATIENCE_S)
        assert str(last) == "the last one", "the source still delivers it"
        self.receiver.dead_letter_message(last)
        bodies: list[str] = []
        while "the last one" not in bodies:
            copies = self.dead_letters.receive_messages(10, max_wait_time=PATIENCE_S)
            assert copies, f"only {bodies} came"
            self.dead_letters.complete_messages(copies)
            bodies += map(str, copies)
        assert bodies.pop() == "the last one"
        body = source.record.value()
        assert isinstance(body, bytes)
        assert set(bodies) <= {body.decode()}
        return len(bodies)


@pytest.fixture(scope="module")
def stage(runtime: RunningNamespace) -> Iterator[Stage]:
    """The queue and its clients."""
    opened = Stage(runtime)
    yield opened
    opened.close()


def interleavings() -> Iterator[tuple[str, ...]]:
    """Return all orders of the owner's and upkeep's steps; upkeep has nothing to adopt before the owner began."""
    slots = len(OWNER) + len(UPKEEP)
    for chosen in itertools.combinations(range(slots), len(OWNER)):
        owner, upkeep = iter(OWNER), iter(UPKEEP)
        order = tuple(next(owner) if slot in chosen else next(upkeep) for slot in range(slots))
        if order[0] == "begin":
            yield order


def crashes(order: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the order itself, and the order with each party gone after each of its steps."""
    for owner_steps in range(1, len(OWNER) + 1):
        for upkeep_steps in range(len(UPKEEP) + 1):
            kept = {*OWNER[:owner_steps], *UPKEEP[:upkeep_steps]}
            yield tuple(step for step in order if step in kept)


def run(stage: Stage, order: tuple[str, ...], *, paused: bool) -> int:
    source = stage.source()
    owner, upkeep = Owner(stage.owner, source, paused), Upkeep(stage.upkeep, source)
    for step in order:
        if step in OWNER:
            owner.step(step)
        else:
            if step == "adopt":
                # The owner of an adopted transfer was silent for so long.
                stage.pass_time(ORPHAN_AGE + 1)
                owner.late = True
            upkeep.step(step)
    return stage.outcome(source)


ORDERS = sorted({cut for order in interleavings() for cut in crashes(order)})


@pytest.mark.timeout(600)
def test_every_interleaving_moves_the_message_exactly_once(stage: Stage) -> None:
    """The steps come in any order, and either party is gone at any point: one copy, and the source has given it up."""
    for order in ORDERS:
        assert run(stage, order, paused=False) == 1, order


@pytest.mark.timeout(600)
def test_an_owner_paused_at_the_worst_moment_loses_nothing(stage: Stage) -> None:
    """The owner pauses between looking at its age and producing, and makes a second copy, which is removed if possible."""
    for order in ORDERS:
        copies = run(stage, order, paused=True)
        # The owner of the losing copy removes it at its own end; if the owner is gone before that, a duplicate is left.
        second = "produce" in order and "produce again" in order and order.index("search") < order.index("produce")
        both_ended = {"end", "end again"} <= set(order)
        assert copies == (2 if second and not both_ended else 1), order


def test_an_end_that_comes_after_all_is_forgotten_leaves_a_duplicate(stage: Stage) -> None:
    """If no winner is known any more, upkeep must not destroy a copy that may be the only one."""
    source = stage.source()
    owner = Owner(stage.owner, source, paused=True)
    owner.step("begin")
    stage.pass_time(ORPHAN_AGE + 1)
    stage.third.transfers.finish(source.entity, source.partition)
    owner.step("produce")
    stage.pass_time(WINNER_KEPT + 1)
    stage.third.transfers.finish(source.entity, source.partition)
    owner.step("end")
    assert stage.outcome(source) == 2
