"""Settling messages of a lease, and renewing their locks; see ``lua/settle.lua``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafkabus._ledger.operations import read_runs
from kafkabus._ledger.ranges import Range, merge_offsets, offsets_of
from kafkabus.testing.ledger.layout import MemoryLedger, Message, MessageState
from kafkabus.testing.ledger.lease import expiry_of, leased, put_back, set_aside
from kafkabus.testing.ledger.prelude import Arguments, Reply
from kafkabus.testing.ledger.session_index import holder


def read_ranges(ranges: str | list[Any]) -> list[Range]:
    """Read ranges, which are a text or a list."""
    if isinstance(ranges, str):
        return [(first, last) for first, last, _ in read_runs(ranges)]
    return [(first, last) for first, last, *_ in ranges]


def keep_properties(
    ledger: MemoryLedger, offset: int, change: dict[str, str] | None, *, prepared: bool = False
) -> None:
    """Change application properties of a message, or note that a transaction would change them."""
    if change:
        before = {} if prepared else ledger.properties.changes.get((offset, prepared), {})
        ledger.properties.changes[offset, prepared] = before | change
        ledger.properties.may_exist = True


def forget_properties(ledger: MemoryLedger, offsets: Iterable[int]) -> None:
    """Forget the changed properties of messages that are settled."""
    for offset in offsets:
        ledger.properties.changes.pop((offset, False), None)


def select_held(ledger: MemoryLedger, lease: str, ranges: str | list[Any]) -> tuple[list[int], list[int]]:
    """Return the offsets in ranges that a lease holds, and those that it does not hold."""
    held: list[int] = []
    lost: list[int] = []
    for offset in offsets_of(read_ranges(ranges)):
        message = ledger.messages.get(offset)
        is_leased = message is not None and message.state is MessageState.LEASED and message.lease == lease
        (held if message and is_leased and expiry_of(ledger, message) > ledger.now else lost).append(offset)
    return held, lost


def take_changed(
    ledger: MemoryLedger, op: Arguments, place: Callable[[Message], None], *, unseen: bool = False
) -> Reply:
    """Take messages out of a lease, and keep the change of their properties.

    Args:
        ledger: The ledger.
        op: The operation, with ``lease``, ``ranges`` and perhaps ``change``.
        place: Gives a message its new state.
        unseen: Whether messages that are postponed stay so.

    Returns:
        The operation's reply.
    """
    taken, lost = select_held(ledger, op["lease"], op["ranges"])
    for offset in taken:
        keep_properties(ledger, offset, op.get("change"))
        if not unseen:
            ledger.messages[offset].wakes = 0
        place(ledger.messages[offset])
    return {"lost": merge_offsets(lost)}


def complete(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Settle messages: they are done with."""
    taken, lost = select_held(ledger, op["lease"], op["ranges"])
    for offset in taken:
        del ledger.messages[offset]
    forget_properties(ledger, taken)
    return {"lost": merge_offsets(lost)}


def abandon(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Return messages to be granted again, this delivery counted: after a delay, if there is one."""
    return take_changed(ledger, op, lambda message: put_back(ledger, message, message.count + 1, op.get("delay")))


def release(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Return messages uncounted, perhaps after a delay; without ranges, all that the lease has."""
    everything = [(offset, offset) for offset, _ in leased(ledger, op["lease"])]
    return take_changed(
        ledger,
        {"ranges": everything} | op,
        lambda message: put_back(ledger, message, message.count, op.get("delay")),
        unseen=True,
    )


def defer(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Set messages aside, unless too many would be."""
    coming = len(offsets_of(read_ranges(op["ranges"])))
    if len(ledger.messages_in(MessageState.DEFERRED)) + coming > op["limit"]:
        return {"lost": [], "full": op["limit"]}
    return take_changed(ledger, op, set_aside)


def renew(ledger: MemoryLedger, op: Arguments) -> Reply:
    """Lock messages for so long from now on."""
    expiry = ledger.now + op["lock_ms"]
    if holder(ledger, op["lease"]) is not None:
        return {"lost": read_ranges(op["ranges"]), "expiry": expiry}
    taken, lost = select_held(ledger, op["lease"], op["ranges"])
    for offset in taken:
        ledger.messages[offset].expiry = expiry
    return {"lost": merge_offsets(lost), "expiry": expiry}
