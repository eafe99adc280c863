"""Bounds of the bytes that clients make a gateway keep, and of the connections of those that have no right."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkabus.gateway.server.budget import Budget, Strangers


@dataclass(eq=False)
class Client:
    """A client."""

    network: str


@dataclass
class Ended:
    """The clients that were ended."""

    clients: list[Client] = field(default_factory=list[Client])


def test_the_client_that_has_most_ends_for_its_address() -> None:
    """And not another address that has less; what it had is given back."""
    ended = Ended()
    budget = Budget[Client](10, 100, ended.clients.append)
    small, large, other = Client("a"), Client("a"), Client("b")
    budget.note(large, 6)
    budget.note(other, 9)
    budget.note(small, 4)
    assert (ended.clients, budget.bytes) == ([], 19)
    budget.note(small, 5)
    assert (ended.clients, budget.bytes) == ([large], 14)
    budget.note(small, 10)
    budget.note(small, 0)
    budget.note(other, 0)
    assert (ended.clients, budget.bytes, budget._kept, budget._sums) == ([large], 0, {}, {})


def test_the_address_that_has_most_pays_for_all() -> None:
    """Until the total is kept to."""
    ended = Ended()
    budget = Budget[Client](10, 15, ended.clients.append)
    first, second, third = Client("a"), Client("b"), Client("c")
    budget.note(first, 8)
    budget.note(second, 5)
    budget.note(third, 7)
    assert (ended.clients, budget.bytes) == ([first], 12)


def test_unread_bytes_count_in_total_alone() -> None:
    """Many receivers whose applications are slow may have one address."""
    ended = Ended()
    budget = Budget[Client](10, 40, ended.clients.append)
    slow, slower, other = Client("a"), Client("a"), Client("b")
    budget.note(slow, 1, 12)
    budget.note(slower, 1, 14)
    assert (ended.clients, budget.bytes) == ([], 28)
    budget.note(other, 9, 4)
    assert (ended.clients, budget.bytes) == ([slower], 26)
    budget.note(slow, 11, 12)
    assert (ended.clients, budget.bytes) == ([slower, slow], 13)


def test_clients_without_a_right_have_a_share() -> None:
    """The oldest of the address that has too many, or the most, ends; one that got a right does not count."""
    ended = Ended()
    strangers = Strangers[Client](2, 3, ended.clients.append)
    first, second, third, *others = (Client(name) for name in "aaabcd")
    for client in (first, second):
        strangers.add(client)
    strangers.discard(first)
    strangers.add(third)
    assert ended.clients == []
    for client in others:
        strangers.add(client)
    assert ended.clients == [second, third]
    strangers.discard(third)
    assert list(strangers) == others
