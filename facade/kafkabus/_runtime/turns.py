"""Turns of clients: how much of what they have sent is looked at before the others have theirs.

A few bytes may ask for much work. Frames are looked at as soon as they come, until the time of a round is used up. Then clients
of which something is left have short turns, one after the other, and everything else of the process has its turn between two
rounds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Protocol

ROUND: Final = 0.02
"""How long clients' frames are looked at before the event loop does something else, in seconds."""
TURN: Final = 0.004
"""How long one client's frames are looked at before those of the next one if there are others that wait, in seconds."""


class Pace:
    """The pace of work that may take long: it lets others have their turn whenever it has taken as long as a turn."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + TURN

    async def keep(self) -> None:
        """Let others have their turn if it is time."""
        if self._time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._time() + TURN


class Slots:
    """Bounds how much of a client's work is under way at a time; the rest waits, the first that came first.

    Work that takes long gives its slot back after a while, so that others begin although it waits for something.

    Args:
        count: How much may be under way.
        held_for: How long work keeps a slot, in seconds; None: until it ends.
    """

    def __init__(self, count: int, held_for: float | None = None) -> None:
        self._free = count
        self._held_for = held_for
        self._waiting: deque[asyncio.Future[bool]] = deque()

    @asynccontextmanager
    async def slot(self, unless: asyncio.Event | None = None) -> AsyncGenerator[None]:
        """Do the block's work in a slot; wait until there is one.

        Args:
            unless: Once this is set, the block does without a slot.
        """
        is_held = await self._take(unless)

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._give_back()

        alarm = None
        if self._held_for is not None:
            alarm = asyncio.get_running_loop().call_later(self._held_for, give_back)
        try:
            yield
        finally:
            if alarm is not None:
                alarm.cancel()
            give_back()

    async def _take(self, unless: asyncio.Event | None) -> bool:
        """Wait for a slot; return whether there is one, else ``unless`` is set."""
        if unless is not None and unless.is_set():
            return False
        if self._free:
            self._free -= 1
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)

        def give_up(_: object) -> None:
            if not turn.done():
                turn.set_result(False)

        giving_up = None if unless is None else asyncio.ensure_future(unless.wait())
        if giving_up is not None:
            giving_up.add_done_callback(give_up)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result():
                self._give_back()
            raise
        finally:
            if giving_up is not None:
                giving_up.cancel()

    def _give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            # Those that were cancelled while they waited are passed over.
            if not turn.done():
                turn.set_result(True)
                return
        self._free += 1


class FairLock:
    """Held by one client at a time for work that keeps the event loop busy.

    Clients have it in turn, however much each has waiting; of one client, the work that came first goes first, to its end.

    Args:
        held_for: How long work keeps the lock if it waits for something, in seconds; None: until it ends.
    """

    def __init__(self, held_for: float | None = None) -> None:
        self._held_for = held_for
        self._is_held = False
        self._holder: object = None
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}

    @property
    def waiting_count(self) -> int:
        """How much work waits."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, client: object) -> AsyncGenerator[FairTurn]:
        """Do the block's work for a client in its turn."""
        turn = FairTurn(self, client)
        await turn.begin()
        alarm = None
        if self._held_for is not None:
            alarm = asyncio.get_running_loop().call_later(self._held_for, turn.end)
        try:
            yield turn
        finally:
            if alarm is not None:
                alarm.cancel()
            turn.end()

    async def take(self, client: object) -> None:
        """Wait for the client's turn, and take the lock."""
        if not self._is_held:
            self._is_held, self._holder = True, client
            return
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(came)
        await self._wait_until(came)

    async def pass_on(self, client: object) -> None:
        """Let the other clients that wait have their turns, then take the lock again, before what else of the client waits."""
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).appendleft(came)
        self.give_back()
        await self._wait_until(came)

    async def _wait_until(self, came: asyncio.Future[None]) -> None:
        try:
            await came
        except asyncio.CancelledError:
            if not came.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give the lock to the next client that waits; the holder's next work waits behind all other clients."""
        if self._holder in self._waiting:
            self._waiting[self._holder] = self._waiting.pop(self._holder)
        while self._waiting:
            client, line = next(iter(self._waiting.items()))
            came = line.popleft()
            if not line:
                del self._waiting[client]
            # Work that was cancelled while it waited is passed over.
            if not came.done():
                self._holder = client
                came.set_result(None)
                return
        self._is_held, self._holder = False, None


class FairTurn:
    """A client's turn of a ``FairLock``.

    Args:
        lock: The lock.
        client: The client.
    """

    def __init__(self, lock: FairLock, client: object) -> None:
        self._lock = lock
        self._client = client
        self._has_lock = False
        self._time = asyncio.get_running_loop().time
        self._until = 0.0

    async def begin(self) -> None:
        """Wait for the lock."""
        await self._lock.take(self._client)
        self._has_lock = True
        self._until = self._time() + TURN

    def end(self) -> None:
        """Give the lock back, if that was not done before."""
        if self._has_lock:
            self._has_lock = False
            self._lock.give_back()

    async def keep(self) -> None:
        """Let others have their turn if it is time: other clients that wait for the lock, and everything else."""
        if self._time() < self._until:
            return
        await asyncio.sleep(0)
        if self._has_lock:
            self._has_lock = False
            await self._lock.pass_on(self._client)
            self._has_lock = True
        self._until = self._time() + TURN


class Reader(Protocol):
    """A client whose frames are looked at."""

    def step(self) -> bool:
        """Look at the next frame; return whether there was one."""
        ...

    def end_turn(self, *, is_through: bool) -> None:
        """Take note that a turn is over.

        Args:
            is_through: Whether no frame is left; else another turn follows.
        """
        ...

    def fail(self) -> None:
        """End the client's connection: a turn failed."""
        ...


class Turns:
    """Gives clients their turns."""

    def __init__(self) -> None:
        self._waiting: deque[Reader] = deque()
        self._is_running = False
        self._ends = 0.0

    def begin(self, reader: Reader) -> None:
        """Look at the frames of a client, unless others wait for their turns; then it waits, too."""
        loop = asyncio.get_running_loop()
        if not self._is_running:
            # The round ends with this pass of the event loop.
            self._is_running = True
            self._ends = loop.time() + ROUND
            loop.call_soon(self._next_round)
        if self._waiting or loop.time() >= self._ends:
            reader.end_turn(is_through=False)
            if reader not in self._waiting:
                self._waiting.append(reader)
        else:
            self._take(reader, self._ends)

    def leave(self, reader: Reader) -> None:
        """Give a client no turn any more."""
        if reader in self._waiting:
            self._waiting.remove(reader)

    def _take(self, reader: Reader, until: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            while reader.step():
                if loop.time() >= until:
                    reader.end_turn(is_through=False)
                    self._waiting.append(reader)
                    return
            reader.end_turn(is_through=True)
        except Exception as error:  # noqa: BLE001 - it costs this client only; the others have their turns
            loop.call_exception_handler({"message": "a client's turn failed", "exception": error})
            reader.fail()

    def _next_round(self) -> None:
        loop = asyncio.get_running_loop()
        self._ends = loop.time() + ROUND
        while self._waiting and (now := loop.time()) < self._ends:
            self._take(self._waiting.popleft(), now + TURN)
        if self._waiting:
            loop.call_soon(self._next_round)
        else:
            self._is_running = False
