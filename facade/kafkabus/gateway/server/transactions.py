"""The transactions of a client."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Final

from kafkabus._core.exceptions import ServiceBusError
from kafkabus.aio import ServiceBusTransaction
from kafkabus.gateway.amqp.conditions import (
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    UNKNOWN_TRANSACTION,
    AmqpError,
)

LASTS: Final = 120.0
"""How long a transaction may last, in seconds; as on the service."""
MOST: Final = 100
"""The most transactions that a client has at once."""


class _RolledBackError(Exception):
    """Leaves a transaction's block, so that nothing is done."""


class Transactions:
    """The transactions of a client.

    Args:
        begin: Makes a transaction.
    """

    def __init__(self, begin: Callable[[], ServiceBusTransaction]) -> None:
        self._begin = begin
        self._open: dict[bytes, ServiceBusTransaction] = {}
        self._alarms: dict[bytes, asyncio.TimerHandle] = {}
        self._over: set[bytes] = set()

    async def declare(self) -> bytes:
        """Begin a transaction; return its id.

        Raises:
            AmqpError: There are too many.
        """
        if len(self._open) >= MOST:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, f"a connection has at most {MOST} transactions: discharge some")
        name = uuid.uuid4().bytes
        transaction = self._begin()
        await transaction.__aenter__()
        self._open[name] = transaction
        self._alarms[name] = asyncio.get_running_loop().call_later(LASTS, self._end, name)
        return name

    def find(self, name: bytes) -> ServiceBusTransaction:
        """Return a transaction.

        Raises:
            AmqpError: There is no such transaction, or it lasted for too long.
        """
        transaction = self._open.get(name)
        if transaction is None:
            raise self._unknown(name)
        return transaction

    async def discharge(self, name: bytes, *, commit: bool) -> None:
        """End a transaction.

        Raises:
            AmqpError: There is no such transaction, or it could not be committed.
        """
        transaction = self.find(name)
        self._forget(name)
        if not commit:
            await _roll_back(transaction)
            return
        try:
            await transaction.__aexit__(None, None, None)
        except ServiceBusError as error:
            raise AmqpError(TRANSACTION_ROLLBACK, error.message) from error

    async def close(self) -> None:
        """Roll back all transactions."""
        for name in list(self._open):
            transaction = self._open[name]
            self._forget(name)
            await _roll_back(transaction)

    def _forget(self, name: bytes) -> None:
        self._alarms.pop(name).cancel()
        del self._open[name]

    def _end(self, name: bytes) -> None:
        """Roll back a transaction that lasted for too long."""
        transaction = self._open[name]
        self._forget(name)
        self._over.add(name)
        self._task = asyncio.ensure_future(_roll_back(transaction))

    def _unknown(self, name: bytes) -> AmqpError:
        if name in self._over:
            return AmqpError(
                TRANSACTION_TIMEOUT, f"the transaction lasted for more than {LASTS:g} s and was rolled back"
            )
        return AmqpError(UNKNOWN_TRANSACTION, f"no transaction has the id {name.hex()}")


async def _roll_back(transaction: ServiceBusTransaction) -> None:
    error = _RolledBackError()
    await transaction.__aexit__(type(error), error, None)
