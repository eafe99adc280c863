"""Turns: what one client asks for does not keep the others waiting."""

from __future__ import annotations

import asyncio
import time

import pytest

from kafkabus._runtime import turns
from kafkabus._runtime.turns import FairLock, Pace, Slots, Turns


class Client:
    """A client with frames that take a while each.

    Args:
        frames: How many there are.
        seconds: How long each takes.
        raises_at: With how many frames left looking at one raises; never if it is negative.
    """

    def __init__(self, frames: int, seconds: float = 0.0, *, raises_at: int = -1) -> None:
        self.raises_at = raises_at
        self.has_failed = False
        self.frames = frames
        self.seconds = seconds
        self.ends: list[bool] = []
        self.through = asyncio.Event()

    def step(self) -> bool:
        """Look at a frame."""
        if self.frames == self.raises_at:
            raise ValueError("a frame that is looked at raises")
        if not self.frames:
            return False
        self.frames -= 1
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            pass
        return True

    def fail(self) -> None:
        """Note that a turn failed."""
        self.has_failed = True

    def end_turn(self, *, is_through: bool) -> None:
        """Note the end of a turn."""
        self.ends.append(is_through)
        if is_through:
            self.through.set()


async def test_a_client_alone_is_through_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is put off, as long as a round lasts."""
    monkeypatch.setattr(turns, "ROUND", 60.0)
    client = Client(10_000)
    Turns().begin(client)
    assert (client.frames, client.ends) == (0, [True])


async def test_a_client_that_asks_for_much_does_not_keep_others_waiting() -> None:
    """Neither others that read, nor the rest of the process. It takes half a second to be busy."""
    shared, busy, other = Turns(), Client(100, 0.005), Client(3)
    shared.begin(busy)
    assert 0 < busy.frames < 100
    shared.begin(other)
    assert not other.through.is_set()
    await asyncio.wait_for(other.through.wait(), 10)
    assert busy.frames > 50
    await asyncio.sleep(0)
    assert busy.frames > 50
    await busy.through.wait()
    assert busy.ends == [False] * (len(busy.ends) - 1) + [True]


async def test_many_that_come_at_once_share_a_round() -> None:
    """Each of them would use the time of a round for itself."""
    shared, clients = Turns(), [Client(8, 0.005) for _ in range(6)]
    for client in clients:
        shared.begin(client)
    assert sum(client.frames < 8 for client in clients) <= 2
    await asyncio.gather(*(client.through.wait() for client in clients))
    assert [client.frames for client in clients] == [0] * 6


async def test_a_turn_that_fails_is_the_last_of_its_client_alone() -> None:
    """The others have theirs, whether it failed at once or in a later round."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    shared = Turns()
    for left in (100, 10):
        broken, other = Client(100, 0.001, raises_at=left), Client(3)
        shared.begin(broken)
        shared.begin(other)
        await asyncio.wait_for(other.through.wait(), 10)
        while not broken.has_failed:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = Client(1)
        shared.begin(later)
        await asyncio.wait_for(later.through.wait(), 10)
    assert len(failures) == 2


async def test_a_client_that_leaves_has_no_turn() -> None:
    """Although it has frames left."""
    shared, busy, gone = Turns(), Client(10, 0.005), Client(5)
    shared.begin(busy)
    shared.begin(gone)
    shared.leave(gone)
    await busy.through.wait()
    assert gone.frames == 5


async def test_work_that_keeps_its_pace_lets_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that a turn is over, and not before."""
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    pace = Pace()
    for _ in range(100):
        await pace.keep()
    assert others == 0
    monkeypatch.setattr(turns, "TURN", 0.0)
    pace = Pace()
    for _ in range(5):
        await pace.keep()
    assert others >= 4
    task.cancel()


# Slots.


async def begun(count: int, slots: Slots, order: list[int], free: asyncio.Event) -> list[asyncio.Task[None]]:
    """Begin so many pieces of work, which note their numbers and wait."""

    async def work(number: int) -> None:
        async with slots.slot():
            order.append(number)
            await free.wait()

    tasks = [asyncio.create_task(work(number)) for number in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_so_much_is_under_way_and_the_first_waits_least() -> None:
    """Work that is given up while it waits, or when it is its turn, costs no slot."""
    slots, order, free = Slots(2, 60), list[int](), asyncio.Event()
    tasks = await begun(6, slots, order, free)
    assert order == [0, 1]
    tasks[2].cancel()
    tasks[0].cancel()
    await asyncio.sleep(0)
    # It has the slot of the first one from here on.
    tasks[3].cancel()
    await asyncio.wait(tasks[:1] + tasks[2:4])
    await asyncio.sleep(0)
    assert order == [0, 1, 4]
    free.set()
    await asyncio.wait(tasks)
    assert order == [0, 1, 4, 5]
    again = await begun(3, slots, order, asyncio.Event())
    assert order[4:] == [0, 1]
    for task in again:
        task.cancel()
    await asyncio.wait(again)


async def test_work_that_takes_long_gives_its_slot_back() -> None:
    """It does so once."""
    slots, order, free = Slots(1, 0.01), list[int](), asyncio.Event()
    tasks = await begun(2, slots, order, free)
    while order != [0, 1]:  # noqa: ASYNC110 - nothing notifies
        await asyncio.sleep(0.005)
    free.set()
    await asyncio.wait(tasks)
    assert slots._free == 1


async def test_work_may_do_without_a_slot() -> None:
    """It does not wait any more, and has none to give back; it is so whether it waits already or not."""
    slots, order, free, unless = Slots(1), list[int](), asyncio.Event(), asyncio.Event()
    (first,) = await begun(1, slots, order, free)

    async def work() -> None:
        async with slots.slot(unless):
            order.append(7)

    waiting = asyncio.create_task(work())
    await asyncio.sleep(0)
    assert order == [0]
    unless.set()
    await waiting
    await work()
    assert order == [0, 7, 7]
    free.set()
    await first
    assert slots._free == 1


# Locks.


async def holding(lock: FairLock, client: str, order: list[str], free: asyncio.Event) -> None:
    """Have the lock for a client, note that, and wait."""
    async with lock.turn(client):
        order.append(client)
        await free.wait()


async def test_clients_have_a_lock_in_turn() -> None:
    """One that has much waiting keeps no other one waiting. Work that was cancelled has no turn, or gives it up."""
    lock, order, free = FairLock(), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(holding(lock, client, order, free)) for client in "aaaaabcb"]
    await asyncio.sleep(0)
    assert (order, lock.waiting_count) == (["a"], 7)
    tasks[1].cancel()
    tasks[0].cancel()
    await asyncio.sleep(0)
    # It got the lock from the first one.
    tasks[5].cancel()
    free.set()
    await asyncio.wait(tasks)
    assert (order, lock.waiting_count) == (["a", "c", "a", "b", "a", "a"], 0)
    await asyncio.wait_for(holding(lock, "d", order, free), 30)


async def test_long_work_gives_a_lock_back() -> None:
    """If it waits for something, after a while; else whenever it has taken as long as a turn."""
    lock, order = FairLock(0.01), list[str]()
    first = asyncio.create_task(holding(lock, "a", order, asyncio.Event()))
    await asyncio.wait_for(holding(lock, "b", order, _set()), 30)
    first.cancel()
    await asyncio.wait([first])
    assert order == ["a", "b"]

    async def long() -> None:
        async with lock.turn("long") as turn:
            while "short" not in order:
                await turn.keep()
                order.append("long")

    work = asyncio.create_task(long())
    await asyncio.sleep(0)
    await asyncio.wait_for(holding(lock, "short", order, _set()), 30)
    await asyncio.wait_for(work, 30)
    assert lock.waiting_count == 0


async def test_work_that_has_begun_goes_before_the_clients_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of it would end at the same time. Other clients have their turns in between."""
    monkeypatch.setattr(turns, "TURN", 0.0)
    lock, order = FairLock(), list[str]()

    async def steps(client: str, name: str) -> None:
        async with lock.turn(client) as turn:
            for _ in range(4):
                order.append(name)
                await turn.keep()

    await asyncio.gather(steps("a", "1"), steps("a", "2"), steps("b", "3"))
    assert [name for name in order if name != "3"] == ["1"] * 4 + ["2"] * 4
    assert order.index("3") < order.index("2")


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
