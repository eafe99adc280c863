"""The numbers of the deliveries that a session sends, by which the peer reports their states."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final, Generic, TypeVar

L = TypeVar("L")

NUMBERS: Final = 1 << 32
"""How many numbers there are before they begin again: AMQP's are of 32 bits."""
_MOST_REMEMBERED: Final = 10_000
"""How many deliveries of transactions, and how many runs of deliveries that were sent settled, are remembered."""


class SentNumbers(Generic[L]):
    """The numbers of the deliveries of one session; a link is any object.

    Args:
        first: The first number.
    """

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._links: dict[int, L] = {}
        # The numbers for which the peer has reported no state yet, in order; they do not wrap around.
        self._stateless: list[int] = []
        self._transactions: dict[int, bytes] = {}
        self._settled: deque[tuple[int, int]] = deque(maxlen=_MOST_REMEMBERED)

    def add(self, link: L, *, settled: bool) -> int:
        """Return the number of another delivery.

        Args:
            link: The link that it goes over.
            settled: Whether it is settled, so that the peer reports no state of it.
        """
        unwrapped, number = self._next, self._next % NUMBERS
        self._next += 1
        if settled:
            self._add_settled(unwrapped)
        else:
            self._links[number] = link
            self._stateless.append(unwrapped)
        return number

    def _add_settled(self, number: int) -> None:
        if self._settled and self._settled[-1][1] == number:
            begin, _ = self._settled.pop()
            self._settled.append((begin, number + 1))
        else:
            self._settled.append((number, number + 1))

    def remove(self, number: int) -> None:
        """Forget a delivery: it is settled."""
        self._links.pop(number, None)
        self._take_stateless(number, 1)

    def remove_all(self, numbers: Collection[int]) -> None:
        """Forget deliveries: their link is gone."""
        for number in numbers:
            self._links.pop(number, None)
        if self._stateless and numbers:
            self._stateless = [number for number in self._stateless if number % NUMBERS not in numbers]

    def clear(self) -> None:
        """Forget all deliveries."""
        self._links.clear()
        self._stateless.clear()

    def take_stateless(self, first: int, count: int) -> list[tuple[int, L]]:
        """Return the deliveries of some numbers for which the peer has reported no state before, with their links."""
        numbers = (number % NUMBERS for number in self._take_stateless(first, count))
        return [(number, self._links[number]) for number in numbers if number in self._links]

    def _take_stateless(self, first: int, count: int) -> list[int]:
        numbers: list[int] = []
        for begin in self._unwrap(first):
            low, high = bisect_left(self._stateless, begin), bisect_left(self._stateless, begin + count)
            numbers += self._stateless[low:high]
            del self._stateless[low:high]
        return numbers

    def _unwrap(self, first: int) -> tuple[int, int]:
        """Return where a range that begins with a number may begin, as numbers that do not go round."""
        start = self._next - (self._next - first) % NUMBERS
        # A range may go round, too.
        return start - NUMBERS, start

    def note_transaction(self, first: int, count: int, found: Iterable[int], transaction: bytes) -> bool:
        """Note which deliveries a transaction settles.

        Args:
            first: The first number whose state the peer reports.
            count: How many numbers.
            found: The numbers among them whose state it has not reported before.
            transaction: The transaction's id.

        Returns:
            Whether all numbers are those of deliveries that the transaction settles, or that were sent settled.
        """
        found = list(found)
        missing = count - len(found)
        if missing:
            missing -= sum(
                max(0, min(start + count, end) - max(start, begin))
                for start in self._unwrap(first)
                for begin, end in self._settled
            )
        if missing > 0:
            missing -= sum(
                other == transaction and (number - first) % NUMBERS < count
                for number, other in self._transactions.items()
            )
        self._transactions.update(dict.fromkeys(found, transaction))
        while len(self._transactions) > _MOST_REMEMBERED:
            del self._transactions[next(iter(self._transactions))]
        return missing <= 0
