"""Sends and settlements that happen together, or not at all.

A transaction keeps them until its ``with`` block ends; ``dispositions/transaction_commit.py`` carries them out.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

from typing_extensions import Self

from kafkabus._async.compat import guard, run_uninterrupted
from kafkabus._async.context import ClientContext
from kafkabus._async.dispositions.transaction_commit import PendingSends, PendingSettlement, TransactionCommit
from kafkabus._async.kafka.producer import OutgoingRecord
from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import InvalidOperationError, MessageAlreadySettled
from kafkabus._core.message import Outgoing, receipt_of
from kafkabus._runtime import forks, instruments
from kafkabus_mapping.error_text import ErrorText, Term

LOGGER = logging.getLogger("kafkabus.transaction")

Placed = Callable[[Sequence[Outgoing]], Awaitable[tuple[Entity, list[OutgoingRecord]]]]
"""Checks messages, finds their entity, and makes their records."""


@dataclass(frozen=True, slots=True)
class _Sends:
    """Messages to send to one queue, and the records that they become.

    Attributes:
        placed: Finds their queue and makes their records.
        outgoing: The messages.
        entity: The queue, as ``placed`` found it.
        records: The messages' records.
    """

    placed: Placed
    outgoing: Sequence[Outgoing]
    entity: Entity
    records: Sequence[OutgoingRecord]

    async def anew(self) -> _Sends:
        """Return the messages checked once more, against the queue as it is now."""
        return _Sends(self.placed, self.outgoing, *await self.placed(self.outgoing))


class ServiceBusTransaction:
    """Sends and settlements that happen together, or not at all; made by ``ServiceBusClient.transaction``.

    Use it in a ``with`` block, and give it to the methods that are to be part of it. They check their arguments and return at
    once; everything is done when the block ends. If an exception leaves the block, nothing is done, and the messages stay
    locked as they were; also if the end of the block raises, unless the error says that the outcome is unknown.
    One asyncio task uses it.

    Attributes:
        transaction_id: A generated id, for logs.
    """

    def __init__(self, context: ClientContext) -> None:
        self.transaction_id = uuid.uuid4().hex
        self._context = context
        self._open = False
        self._over = False
        self._in_doubt = False
        # Held for moments, and never while something is awaited: between the end of the block and work that joins then.
        self._guard = threading.Lock()
        self._key: tuple[str, str] | None = None
        self._sends: list[PendingSends] = []
        self._settlements: list[PendingSettlement] = []
        self._settled: set[tuple[str, int, str, int]] = set()
        forks.watch(self)

    def _after_fork(self) -> None:
        # The parent process carries the transaction out.
        self._open, self._over = False, True
        self._sends.clear()
        self._settlements.clear()

    def __str__(self) -> str:
        return f"Transaction {self.transaction_id}"

    async def __aenter__(self) -> Self:
        if self._open or self._over:
            raise ValueError("a transaction is used in one 'with' block: get another from the client")
        self._open = True
        return self

    @guard
    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._guard:
            self._open, self._over = False, True
        if not (self._sends or self._settlements):
            return
        commit = TransactionCommit(self._context.commit_parts, self.transaction_id, self._sends, self._settlements)
        try:
            if exc_type is None:
                await run_uninterrupted(commit.run())  # type: ignore[func-returns-value, unused-ignore]
                self._report()
        except BaseException:
            self._in_doubt = commit.done
            raise
        finally:
            commit.mark(settled=commit.done)

    def _report(self) -> None:
        """Report the sends and settlements that were committed to the process's observer."""
        observer = instruments.observer
        if observer is None:
            return
        for sends in self._sends:
            observer.on_send(sends.entity.path.name, len(sends.outgoing))
        for settlement in self._settlements:
            observer.on_settlement(str(settlement.path), settlement.verb, len(settlement.batch.messages))

    def _check(self, context: ClientContext) -> None:
        """Check that a handle's work may be part of the transaction.

        Raises:
            ValueError: The transaction is not open, or another client's.
        """
        self._check_open()
        if context is not self._context:
            raise ValueError(
                "the transaction is of another client: use senders and receivers of the client that made it"
            )

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the transaction is not open: use it within its 'with' block")

    def _add_sends(
        self, placed: Placed, outgoing: Sequence[Outgoing], entity: Entity, records: Sequence[OutgoingRecord]
    ) -> None:
        """Have checked messages sent.

        Raises:
            InvalidOperationError: The queue is partitioned, and a message has no key, or another key than those before.
            ValueError: The transaction ended while the messages were checked.
        """
        with self._guard:
            self._check_open()
            if entity.partitions > 1:
                self._check_keys(entity, records)
            self._sends.append(_Sends(placed, outgoing, entity, records))

    def _check_keys(self, entity: Entity, records: Sequence[OutgoingRecord]) -> None:
        known = self._key
        for record in records:
            if record.key is None:
                raise InvalidOperationError(
                    ErrorText(
                        f"message {record.message_id!r} to {entity.path} has no key, and the queue is partitioned: what a "
                        "transaction sends there needs a ",
                        Term("session_id"),
                        " or a ",
                        Term("partition_key"),
                        "; it was not sent",
                    )
                )
            known = known or (str(record.key), str(entity.path))
            if known[0] != record.key:
                raise InvalidOperationError(
                    ErrorText(
                        f"message {record.message_id!r} to {entity.path} has key {record.key!r}, and another one of the "
                        f"transaction, to {known[1]}, has {known[0]!r}: all that a transaction sends to partitioned queues has "
                        "one ",
                        Term("session_id"),
                        " or ",
                        Term("partition_key"),
                        "; use a transaction for each. It was not sent",
                    )
                )
        self._key = known

    def _add_settlements(
        self,
        settlements: Iterable[PendingSettlement],
    ) -> None:
        """Have checked messages settled.

        Raises:
            ValueError: The transaction ended while the messages were checked.
            MessageAlreadySettled: The transaction already settles one of the messages, perhaps given as another object.
        """
        with self._guard:
            self._check_open()
            added = list(settlements)
            places = [place for settlement in added for place in _places_of(settlement)]
            if len(set(places)) < len(places) or not self._settled.isdisjoint(places):
                raise MessageAlreadySettled("the transaction settles the message already")
            self._settled.update(places)
            for settlement in added:
                self._settlements.append(settlement)
                for message in settlement.batch.messages:
                    receipt_of(message).is_enlisted = True


def is_in_doubt(transaction: ServiceBusTransaction) -> bool:
    """Return whether the end of a transaction failed so that it is unknown whether it was committed."""
    return transaction._in_doubt


def _places_of(settlement: PendingSettlement) -> list[tuple[str, int, str, int]]:
    """Return what a transaction settles once: entity, partition, lease and offset of each message."""
    path, delivery = settlement.path.key, settlement.batch.delivery
    return [
        (path, delivery.partition, delivery.lease, receipt_of(message).offset) for message in settlement.batch.messages
    ]
