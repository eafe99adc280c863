"""The transactions of a client: which of its operations belong to each, and how each ends.

An operation joins its transaction in the moment at which it arrives, and leaves it when it was carried out or refused. A
discharge waits for the operations that joined before it, in any session of the connection, and for nothing else.

::

    open ──── discharge arrives ────▶ ending ──── no operation under way ────▶ committed, or rolled back
      │                                  │
      └── time-out, coordinator's link ──┴── time-out ──▶ rolled back

An operation that fails makes its transaction roll back only: its discharge is refused with the reason.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from kafkabus._async.handles.transaction import is_in_doubt
from kafkabus._core.exceptions import ServiceBusError
from kafkabus._core.message import ServiceBusReceivedMessage
from kafkabus._runtime.turns import Slots
from kafkabus.aio import ServiceBusTransaction
from kafkabus.gateway.amqp.conditions import (
    INTERNAL_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    UNKNOWN_TRANSACTION,
    AmqpError,
)
from kafkabus.gateway.amqp.performatives import Composite, TransactionalState
from kafkabus.gateway.server.service_bus_conditions import SERVER_BUSY

LOGGER = logging.getLogger("kafkabus.gateway")

REMEMBERED: Final = 1_000
"""How many abandoned transactions a connection remembers, to report to its client why they are gone."""

COMMITS_AT_ONCE: Final = 4
"""How many transactions of a client are committed at a time; slow ones would keep those of others waiting."""

GiveBack = Callable[[Sequence[ServiceBusReceivedMessage]], Awaitable[None]]
"""Makes messages available again that the client has settled in a transaction that was rolled back."""


@dataclass(frozen=True)
class TransactionLimits:
    """Bounds of the transactions of one client.

    Attributes:
        seconds: How long a transaction may last, in seconds; by default as on the service.
        transactions: The most transactions at once.
        bytes: The most bytes of messages that one transaction sends or copies.
        operations: The most messages that one transaction sends and settles.
        total_bytes: The most bytes of messages that the transactions of all clients keep together.
    """

    seconds: float = 120.0
    transactions: int = 100
    bytes: int = 64 * 1024 * 1024
    operations: int = 10_000
    total_bytes: int = 256 * 1024 * 1024


class SharedRoom:
    """The bytes of messages that the transactions of all clients keep.

    Args:
        most: The most bytes.

    Attributes:
        taken: The bytes that are kept.
    """

    def __init__(self, most: int) -> None:
        self.taken = 0
        self._most = most
        self._of: Counter[Transactions] = Counter()

    def add(self, client: Transactions, size: int) -> None:
        """Count bytes of a client's transactions; fewer if the size is negative."""
        self.taken += size
        self._of[client] += size
        if not self._of[client]:
            del self._of[client]

    def is_full(self, client: Transactions) -> bool:
        """Return whether more is kept than may be, also after clients that keep more than this one have given up some."""
        while self.taken > self._most:
            most = max(self._of, key=self._of.__getitem__)
            if self._of[most] <= self._of[client] or not most.give_up_largest():
                return True
        return False


class Enlistment:
    """An operation of a transaction, from its arrival to its end.

    Args:
        of: The transaction; None if the client has no such transaction.
        refused: Why the operation cannot be part of it; None if it can.

    Attributes:
        is_unknown: Whether there is no such transaction, which a discharge would report.
    """

    def __init__(self, of: _Transaction | None, refused: AmqpError | None) -> None:
        self._of = of
        self._refused = refused
        self.is_unknown = of is None
        if of is not None:
            of.under_way += 1

    @property
    def is_refused(self) -> bool:
        """Whether the operation cannot be part of the transaction."""
        return self._of is None or self._refused is not None

    @property
    def transaction(self) -> ServiceBusTransaction:
        """The transaction.

        Raises:
            AmqpError: The operation cannot be part of it.
        """
        if self._of is None or self._refused is not None:
            raise self._refused or AmqpError(INTERNAL_ERROR, "the operation is part of no transaction")
        self._of.check()
        return self._of.inner

    def count(self, size: int, operations: int = 0) -> None:
        """Count bytes that the transaction keeps, and messages that it settles, beside those with which the operation came.

        Raises:
            AmqpError: They are too many.
        """
        if self._refused is not None:
            raise self._refused
        if self._of is not None and (error := self._of.count(size, operations)) is not None:
            raise error

    def end(self, error: AmqpError | None) -> None:
        """Note that the operation was carried out, or why it was not: the transaction can then only be rolled back."""
        if self._of is not None:
            if error is not None:
                self._of.fail(error)
            self._of.leave()
            self._of = None

    async def give_back(self, messages: Sequence[ServiceBusReceivedMessage], by: GiveBack) -> None:
        """Have messages that the client has settled made available again if the transaction is rolled back, or was.

        Args:
            messages: The messages.
            by: Makes messages of their link available.
        """
        if self._of is None or self._of.is_undone:
            await by(messages)
        else:
            self._of.returns[by] += messages


class _Transaction:
    """A transaction.

    Attributes:
        name: Its id.
        inner: The transaction of the SDK, which sends and settles at its end.
        owner: The link on which it was declared.
        under_way: How many operations have joined and not left it.
        is_ending: Whether its discharge has come; no operation joins any more.
        is_undone: Whether it was rolled back.
        returns: Messages that the client has settled, by the function that makes those of a link available again.
        failure: Why it can only be rolled back; None if it can be committed.
        failed: Set once there is a failure.
        size: The bytes that it keeps.
    """

    def __init__(
        self,
        name: bytes,
        inner: ServiceBusTransaction,
        owner: object,
        client: Transactions,
        limits: TransactionLimits,
        room: SharedRoom,
    ) -> None:
        self.name = name
        self._client = client
        self.inner = inner
        self.owner = owner
        self.under_way = 0
        self.is_ending = False
        self.is_undone = False
        self.returns = defaultdict[GiveBack, list[ServiceBusReceivedMessage]](list)
        self.failure: AmqpError | None = None
        self.failed = asyncio.Event()
        self._limits = limits
        self._room = room
        self.size = 0
        self._operations = 0
        self._changed = asyncio.Event()

    def check(self) -> None:
        """Check that operations may be part of it.

        Raises:
            AmqpError: It has failed.
        """
        if self.failure is not None:
            raise _rolled_back(self.failure)

    def count(self, size: int, operations: int) -> AmqpError | None:
        """Count bytes and operations; return an error, at which the transaction fails, if there are too many."""
        if self.failure is not None:
            # If it was rolled back, nothing would give these bytes back.
            return _rolled_back(self.failure)
        self.size += size
        self._room.add(self._client, size)
        self._operations += operations
        most = self._limits
        if self.size > most.bytes or self._operations > most.operations:
            error = AmqpError(
                RESOURCE_LIMIT_EXCEEDED,
                f"a transaction has at most {most.operations:,} messages of {most.bytes:,} bytes together: commit more often",
            )
        elif self._room.is_full(self._client):
            error = _no_room()
        else:
            return None
        self.fail(error)
        return error

    def fail(self, error: AmqpError) -> None:
        """Note that an operation failed; the first error counts."""
        self.failure = self.failure or error
        self.failed.set()
        self._changed.set()

    def leave(self) -> None:
        """Note that an operation is over."""
        self.under_way -= 1
        self._changed.set()

    async def is_quiet(self) -> None:
        """Wait until no operation is under way, or the transaction has failed."""
        while self.under_way and self.failure is None:
            self._changed.clear()
            await self._changed.wait()

    async def commit(self) -> None:
        """Commit it.

        Raises:
            AmqpError: That failed; nothing of it was done, unless the error says that it is unknown.
        """
        try:
            await self.inner.__aexit__(None, None, None)
        except Exception as error:
            if is_in_doubt(self.inner):
                raise AmqpError(INTERNAL_ERROR, str(error)) from error
            self.failure = AmqpError(TRANSACTION_ROLLBACK, str(error))
            self.is_undone = True
            await self._give_back()
            if isinstance(error, ServiceBusError):
                raise self.failure from error
            raise
        finally:
            self.release()

    async def roll_back(self, *, give_back: bool) -> None:
        """Undo it.

        Args:
            give_back: Whether messages that the client has settled are available again at once; else when their locks end.
        """
        self.is_undone = True
        # An operation that outlasts it finds it failed, whatever ended it.
        self.fail(AmqpError(TRANSACTION_ROLLBACK, "the transaction was rolled back"))
        error = _RolledBackError()
        await self.inner.__aexit__(type(error), error, None)
        self.release()
        if give_back:
            await self._give_back()

    def release(self) -> None:
        """Note that nothing of it is kept any more."""
        self._room.add(self._client, -self.size)
        self.size = 0

    async def _give_back(self) -> None:
        returns, self.returns = dict(self.returns), defaultdict(list)
        await asyncio.gather(*(give_back(messages) for give_back, messages in returns.items()))


class _RolledBackError(Exception):
    """Leaves a transaction's block, so that nothing is done."""


class Transactions:
    """The transactions of a client.

    Args:
        begin: Makes a transaction.
        limits: Bounds.
        room: The room that the transactions of all clients share.
        start: Does some work in the background.
    """

    def __init__(
        self,
        begin: Callable[[], ServiceBusTransaction],
        limits: TransactionLimits,
        room: SharedRoom,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._begin = begin
        self._limits = limits
        self._room = room
        self._start = start
        self._known: dict[bytes, _Transaction] = {}
        self._alarms: dict[bytes, asyncio.TimerHandle] = {}
        self._given_up: dict[bytes, AmqpError] = {}
        self._is_lost = False
        self._commits = Slots(COMMITS_AT_ONCE)

    async def declare(self, owner: object) -> bytes:
        """Begin a transaction; return its id.

        Args:
            owner: The link on which it is declared.

        Raises:
            AmqpError: There are too many.
        """
        most = self._limits.transactions
        if len(self._known) >= most:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {most} transactions: discharge some")
        name = uuid.uuid4().bytes
        inner = self._begin()
        await inner.__aenter__()
        self._known[name] = _Transaction(name, inner, owner, self, self._limits, self._room)
        self._alarms[name] = asyncio.get_running_loop().call_later(self._limits.seconds, self._expire, name)
        return name

    def is_open(self, name: bytes) -> bool:
        """Return whether operations may still join a transaction."""
        return name in self._known and not self._known[name].is_ending

    def is_known(self, name: bytes) -> bool:
        """Return whether a transaction has not ended."""
        return name in self._known

    def join(self, state: object, size: int = 0, operations: int = 1) -> Enlistment | None:
        """Have an operation that has just arrived be part of a transaction.

        Args:
            state: The operation's state, which names the transaction.
            size: How many bytes the transaction keeps for it.
            operations: How many messages it sends or settles.

        Returns:
            Its part in the transaction, which may be refused; None if the state names no transaction.
        """
        if not isinstance(state, TransactionalState):
            return None
        if not self.is_open(state.txn_id):
            return Enlistment(None, self._unknown(state.txn_id))
        transaction = self._known[state.txn_id]
        return Enlistment(transaction, transaction.count(size, operations))

    def fail(self, state: object, error: AmqpError) -> None:
        """Note that something of a transaction was lost.

        Args:
            state: The state that names the transaction, if it names one.
            error: The loss.
        """
        if isinstance(state, TransactionalState) and state.txn_id in self._known:
            self._known[state.txn_id].fail(error)

    def discharge(self, name: bytes, *, commit: bool) -> Awaitable[None]:
        """End a transaction; from the call on no operation joins it.

        Returns:
            The end, to be awaited; it raises AmqpError if the transaction is not committed.

        Raises:
            AmqpError: There is no such transaction, or it lasted for too long.
        """
        if not self.is_open(name):
            raise self._unknown(name)
        transaction = self._known[name]
        transaction.is_ending = True
        return self._discharge(transaction, commit=commit)

    async def _discharge(self, transaction: _Transaction, *, commit: bool) -> None:
        await transaction.is_quiet()
        # Until it is its turn, it counts as one of the client's, and its time goes on.
        async with self._commits.slot(transaction.failed) if commit else nullcontext():
            self._forget(transaction.name)
            failure = transaction.failure
            if commit and failure is None:
                await transaction.commit()
                return
        await transaction.roll_back(give_back=not self._is_lost)
        if commit and failure is not None:
            raise _rolled_back(failure)

    async def end_those_of(self, owner: object) -> None:
        """Roll back the transactions of a link that is gone, unless they are ending."""
        theirs = [known for known in self._known.values() if known.owner is owner and not known.is_ending]
        for transaction in theirs:
            self._forget(transaction.name)
        for transaction in theirs:
            await transaction.roll_back(give_back=not self._is_lost)

    def lose(self) -> None:
        """Note that the connection is lost: the locks of messages that the client has settled last as long as they last."""
        self._is_lost = True

    async def close(self) -> None:
        """Roll back all transactions that are not ending, and the ending ones that still wait."""
        gone = AmqpError(TRANSACTION_ROLLBACK, "the connection is closed")
        for transaction in list(self._known.values()):
            transaction.fail(gone)
            if not transaction.is_ending:
                self._forget(transaction.name)
                await transaction.roll_back(give_back=False)

    def _forget(self, name: bytes) -> None:
        self._alarms.pop(name).cancel()
        del self._known[name]

    def _expire(self, name: bytes) -> None:
        """Roll back a transaction that lasted for too long."""
        lasted = f"the transaction lasted for more than {self._limits.seconds:g} s and was rolled back"
        self._give_up(self._known[name], AmqpError(TRANSACTION_TIMEOUT, lasted))

    def give_up_largest(self) -> bool:
        """Roll back the transaction that keeps most, for others; return whether there is one that is not being committed."""
        open_ones = [transaction for transaction in self._known.values() if transaction.size]
        if not open_ones:
            return False
        largest = max(open_ones, key=lambda transaction: transaction.size)
        self._give_up(largest, _no_room())
        largest.release()
        return True

    def _give_up(self, transaction: _Transaction, error: AmqpError) -> None:
        transaction.fail(error)
        self._given_up[transaction.name] = error
        while len(self._given_up) > REMEMBERED:
            del self._given_up[next(iter(self._given_up))]
        if not transaction.is_ending:
            self._forget(transaction.name)
            self._start(transaction.roll_back(give_back=not self._is_lost))

    def _unknown(self, name: bytes) -> AmqpError:
        if name in self._given_up:
            return self._given_up[name]
        return AmqpError(UNKNOWN_TRANSACTION, f"no transaction has the id {name.hex()}, or it was discharged")


def in_transaction(state: object, outcome: Composite) -> Composite:
    """Return the outcome of an operation as its client gets it: within the transaction that the operation's state names.

    A client may take a bare ``Rejected`` of a transactional transfer for success.
    """
    return TransactionalState(state.txn_id, outcome) if isinstance(state, TransactionalState) else outcome


def _no_room() -> AmqpError:
    return AmqpError(SERVER_BUSY, "the transactions of all clients hold too many bytes of messages: try again later")


def _rolled_back(failure: AmqpError) -> AmqpError:
    if failure.condition in {TRANSACTION_ROLLBACK, TRANSACTION_TIMEOUT}:
        return failure
    return AmqpError(
        TRANSACTION_ROLLBACK,
        f"the transaction is rolled back, as an operation of it failed: {failure.condition}: {failure.description}",
    )
