"""Performatives, and what they consist of: described lists of fields (parts 2, 3 and 4 of AMQP 1.0's specification).

All fields are written, also null ones at the end: some clients read lists by position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar, cast

from typing_extensions import Self, dataclass_transform

from kafkabus.gateway.amqp.conditions import INVALID_FIELD, AmqpError
from kafkabus_mapping.amqp.types import (
    Array,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
)

C = TypeVar("C", bound="Composite")


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a field is read and written.

    Attributes:
        accepts: Types of Python in which it may come.
        make: Makes the value to write.
        most: The largest number; 0 if it is no number.
    """

    accepts: tuple[type[Any], ...]
    make: Callable[[Any], Any]
    most: int = 0

    def read(self, where: str, value: Any) -> Any:
        if type(value) is Described:
            value = decode_composite(value)
        if (
            not isinstance(value, self.accepts)
            or (isinstance(value, bool) and bool not in self.accepts)
            or (self.most and not 0 <= value <= self.most)
        ):
            raise AmqpError(INVALID_FIELD, f"{where} is {value!r:.60}")
        return value


def _as_is(value: Any) -> Any:
    return value


def _symbols(value: Any) -> Array:
    return Array(Symbol(text) for text in ([value] if isinstance(value, str) else value))


BOOL: Final = _Kind((bool,), bool)
UBYTE: Final = _Kind((int,), UByte, 0xFF)
USHORT: Final = _Kind((int,), UShort, 0xFFFF)
UINT: Final = _Kind((int,), UInt, 0xFFFF_FFFF)
ULONG: Final = _Kind((int,), ULong, 0xFFFF_FFFF_FFFF_FFFF)
TEXT: Final = _Kind((str,), str)
SYMBOL: Final = _Kind((str,), Symbol)
SYMBOLS: Final = _Kind((str, Array, list), _symbols)
BINARY: Final = _Kind((bytes,), bytes)
MAP: Final = _Kind((dict,), _as_is)
ANY: Final = _Kind((object,), _as_is)


class Composite:
    """A described list.

    Attributes:
        CODE: Its descriptor.
        NAME: Its symbolic descriptor.
        FIELDS: Names and kinds of its fields, in their order.
        NEEDED: Places and names of the fields that must not be null.
    """

    __slots__ = ()
    CODE: ClassVar[int]
    NAME: ClassVar[str]
    FIELDS: ClassVar[tuple[tuple[str, _Kind], ...]]
    NEEDED: ClassVar[tuple[tuple[int, str], ...]]

    @classmethod
    def read(cls, values: Any) -> Self:
        """Return the composite of some fields; those that are missing or null have their defaults.

        Raises:
            AmqpError: A field is missing that is needed, or of a type that it cannot have.
        """
        if not isinstance(values, list) or len(values) > len(cls.FIELDS):
            raise AmqpError(INVALID_FIELD, f"{cls.NAME} has at most {len(cls.FIELDS)} fields: {values!r:.60}")
        found = cls()
        for (name, kind), value in zip(cls.FIELDS, values, strict=False):
            if value is not None:
                setattr(found, name, kind.read(f"{cls.NAME}, field {name}", value))
        for place, name in cls.NEEDED:
            if place >= len(values) or values[place] is None:
                raise AmqpError(INVALID_FIELD, f"{cls.NAME} lacks the field {name}")
        return found

    def described(self) -> Described:
        """Return the described list."""
        values = [
            None if (value := getattr(self, name)) is None else _written(kind, value) for name, kind in self.FIELDS
        ]
        return Described(ULong(self.CODE), values)

    def encoded(self) -> bytes:
        """Return the encoded list."""
        return encode(self.described())


def _written(kind: _Kind, value: Any) -> Any:
    return value.described() if isinstance(value, Composite) else kind.make(value)


_KNOWN: dict[int | str, type[Composite]] = {}


def _field(kind: _Kind, *, default: Any, needed: bool = False, repr: bool = True) -> Any:
    """Return a field of a composite.

    Args:
        kind: Its kind.
        default: Its value if it is null or missing.
        needed: Whether it must not be null.
        repr: Whether its value may be shown.
    """
    return field(default=default, repr=repr, metadata={"kind": kind, "needed": needed})


@dataclass_transform(field_specifiers=(_field,))
def _composite(kind: type[C]) -> type[C]:
    """Make a class of fields known by its descriptors."""
    made = dataclass(slots=True)(kind)
    declared = fields(cast("Any", made))
    made.FIELDS = tuple((each.name, each.metadata["kind"]) for each in declared)
    made.NEEDED = tuple((place, each.name) for place, each in enumerate(declared) if each.metadata["needed"])
    _KNOWN[made.CODE] = _KNOWN[made.NAME] = made
    return made


def decode_composite(value: Described) -> Any:
    """Return the composite that a described list is; the value itself if no composite has the descriptor.

    Raises:
        AmqpError: A field is missing that is needed, or of a type that it cannot have.
    """
    descriptor = value.descriptor
    kind = _KNOWN.get(descriptor) if isinstance(descriptor, (int, str)) else None
    return value if kind is None else kind.read(value.value)


@_composite
class ErrorCondition(Composite):
    """An error: condition, description, information."""

    CODE, NAME = 0x1D, "amqp:error:list"
    condition: str = _field(SYMBOL, default="", needed=True)
    description: str | None = _field(TEXT, default=None)
    info: dict[Any, Any] | None = _field(MAP, default=None)


@_composite
class Open(Composite):
    """Opens a connection; times are in milliseconds."""

    CODE, NAME = 0x10, "amqp:open:list"
    container_id: str = _field(TEXT, default="", needed=True)
    hostname: str | None = _field(TEXT, default=None)
    max_frame_size: int = _field(UINT, default=0xFFFF_FFFF)
    channel_max: int = _field(USHORT, default=0xFFFF)
    idle_time_out: int | None = _field(UINT, default=None)
    outgoing_locales: Any = _field(SYMBOLS, default=None)
    incoming_locales: Any = _field(SYMBOLS, default=None)
    offered_capabilities: Any = _field(SYMBOLS, default=None)
    desired_capabilities: Any = _field(SYMBOLS, default=None)
    properties: dict[Any, Any] | None = _field(MAP, default=None)


@_composite
class Begin(Composite):
    """Begins a session."""

    CODE, NAME = 0x11, "amqp:begin:list"
    remote_channel: int | None = _field(USHORT, default=None)
    next_outgoing_id: int = _field(UINT, default=0)
    incoming_window: int = _field(UINT, default=0)
    outgoing_window: int = _field(UINT, default=0)
    handle_max: int = _field(UINT, default=0xFFFF_FFFF)
    offered_capabilities: Any = _field(SYMBOLS, default=None)
    desired_capabilities: Any = _field(SYMBOLS, default=None)
    properties: dict[Any, Any] | None = _field(MAP, default=None)


SETTLED: Final = 1
"""The ``snd_settle_mode`` of a link whose deliveries are settled when they are sent."""


@_composite
class Attach(Composite):
    """Attaches a link; its role is the peer's: ``True`` if the peer receives."""

    CODE, NAME = 0x12, "amqp:attach:list"
    name: str = _field(TEXT, default="", needed=True)
    handle: int = _field(UINT, default=0, needed=True)
    role: bool = _field(BOOL, default=False, needed=True)
    snd_settle_mode: int = _field(UBYTE, default=2)
    rcv_settle_mode: int = _field(UBYTE, default=0)
    source: Any = _field(ANY, default=None)
    target: Any = _field(ANY, default=None)
    unsettled: dict[Any, Any] | None = _field(MAP, default=None)
    incomplete_unsettled: bool = _field(BOOL, default=False)
    initial_delivery_count: int | None = _field(UINT, default=None)
    max_message_size: int | None = _field(ULONG, default=None)
    offered_capabilities: Any = _field(SYMBOLS, default=None)
    desired_capabilities: Any = _field(SYMBOLS, default=None)
    properties: dict[Any, Any] | None = _field(MAP, default=None)


@_composite
class Flow(Composite):
    """Carries windows and, with a handle, a link's credit."""

    CODE, NAME = 0x13, "amqp:flow:list"
    next_incoming_id: int | None = _field(UINT, default=None)
    incoming_window: int = _field(UINT, default=0)
    next_outgoing_id: int = _field(UINT, default=0)
    outgoing_window: int = _field(UINT, default=0)
    handle: int | None = _field(UINT, default=None)
    delivery_count: int | None = _field(UINT, default=None)
    link_credit: int | None = _field(UINT, default=None)
    available: int | None = _field(UINT, default=None)
    drain: bool = _field(BOOL, default=False)
    echo: bool = _field(BOOL, default=False)
    properties: dict[Any, Any] | None = _field(MAP, default=None)


@_composite
class Transfer(Composite):
    """Transfers a message, or a piece of one; ``encode_transfer`` writes its fields, too."""

    CODE, NAME = 0x14, "amqp:transfer:list"
    handle: int = _field(UINT, default=0, needed=True)
    delivery_id: int | None = _field(UINT, default=None)
    delivery_tag: bytes | None = _field(BINARY, default=None)
    message_format: int | None = _field(UINT, default=None)
    settled: bool | None = _field(BOOL, default=None)
    more: bool = _field(BOOL, default=False)
    rcv_settle_mode: int | None = _field(UBYTE, default=None)
    state: Any = _field(ANY, default=None)
    resume: bool = _field(BOOL, default=False)
    aborted: bool = _field(BOOL, default=False)
    batchable: bool = _field(BOOL, default=False)


@_composite
class Disposition(Composite):
    """Carries the state of deliveries; its role is that of the peer that sends it.

    ``encode_disposition`` writes its fields, too.
    """

    CODE, NAME = 0x15, "amqp:disposition:list"
    role: bool = _field(BOOL, default=False, needed=True)
    first: int = _field(UINT, default=0, needed=True)
    last: int | None = _field(UINT, default=None)
    settled: bool = _field(BOOL, default=False)
    state: Any = _field(ANY, default=None)
    batchable: bool = _field(BOOL, default=False)


@_composite
class Detach(Composite):
    """Detaches a link."""

    CODE, NAME = 0x16, "amqp:detach:list"
    handle: int = _field(UINT, default=0, needed=True)
    closed: bool = _field(BOOL, default=False)
    error: Any = _field(ANY, default=None)


@_composite
class End(Composite):
    """Ends a session."""

    CODE, NAME = 0x17, "amqp:end:list"
    error: Any = _field(ANY, default=None)


@_composite
class Close(Composite):
    """Closes a connection."""

    CODE, NAME = 0x18, "amqp:close:list"
    error: Any = _field(ANY, default=None)


@_composite
class Source(Composite):
    """The node from which a link's messages come."""

    CODE, NAME = 0x28, "amqp:source:list"
    address: Any = _field(ANY, default=None)
    durable: int | None = _field(UINT, default=None)
    expiry_policy: str | None = _field(SYMBOL, default=None)
    timeout: int | None = _field(UINT, default=None)
    dynamic: bool | None = _field(BOOL, default=None)
    dynamic_node_properties: dict[Any, Any] | None = _field(MAP, default=None)
    distribution_mode: str | None = _field(SYMBOL, default=None)
    filter: dict[Any, Any] | None = _field(MAP, default=None)
    default_outcome: Any = _field(ANY, default=None)
    outcomes: Any = _field(SYMBOLS, default=None)
    capabilities: Any = _field(SYMBOLS, default=None)


@_composite
class Target(Composite):
    """The node to which a link's messages go."""

    CODE, NAME = 0x29, "amqp:target:list"
    address: Any = _field(ANY, default=None)
    durable: int | None = _field(UINT, default=None)
    expiry_policy: str | None = _field(SYMBOL, default=None)
    timeout: int | None = _field(UINT, default=None)
    dynamic: bool | None = _field(BOOL, default=None)
    dynamic_node_properties: dict[Any, Any] | None = _field(MAP, default=None)
    capabilities: Any = _field(SYMBOLS, default=None)


@_composite
class Coordinator(Composite):
    """The target of links that control transactions."""

    CODE, NAME = 0x30, "amqp:coordinator:list"
    capabilities: Any = _field(SYMBOLS, default=None)


@_composite
class Declare(Composite):
    """Asks for a transaction."""

    CODE, NAME = 0x31, "amqp:declare:list"
    global_id: Any = _field(ANY, default=None)


@_composite
class Discharge(Composite):
    """Ends a transaction: commits it, or rolls it back if ``fail`` is set."""

    CODE, NAME = 0x32, "amqp:discharge:list"
    txn_id: bytes = _field(BINARY, default=b"", needed=True)
    fail: bool = _field(BOOL, default=False)


@_composite
class Declared(Composite):
    """The outcome of a declaration."""

    CODE, NAME = 0x33, "amqp:declared:list"
    txn_id: bytes = _field(BINARY, default=b"", needed=True)


@_composite
class TransactionalState(Composite):
    """A delivery's state that counts if its transaction is committed."""

    CODE, NAME = 0x34, "amqp:transactional-state:list"
    txn_id: bytes = _field(BINARY, default=b"", needed=True)
    outcome: Any = _field(ANY, default=None)


@_composite
class Received(Composite):
    """How much of a delivery was received."""

    CODE, NAME = 0x23, "amqp:received:list"
    section_number: int | None = _field(UINT, default=None)
    section_offset: int | None = _field(ULONG, default=None)


@_composite
class Accepted(Composite):
    """The outcome of a delivery that was taken."""

    CODE, NAME = 0x24, "amqp:accepted:list"


@_composite
class Rejected(Composite):
    """The outcome of a delivery that was refused."""

    CODE, NAME = 0x25, "amqp:rejected:list"
    error: Any = _field(ANY, default=None)


@_composite
class Released(Composite):
    """The outcome of a delivery that the receiver did not look at."""

    CODE, NAME = 0x26, "amqp:released:list"


@_composite
class Modified(Composite):
    """The outcome of a delivery that was not taken, and is to be changed."""

    CODE, NAME = 0x27, "amqp:modified:list"
    delivery_failed: bool | None = _field(BOOL, default=None)
    undeliverable_here: bool | None = _field(BOOL, default=None)
    message_annotations: dict[Any, Any] | None = _field(MAP, default=None)


@_composite
class SaslMechanisms(Composite):
    """The server's mechanisms."""

    CODE, NAME = 0x40, "amqp:sasl-mechanisms:list"
    mechanisms: Any = _field(SYMBOLS, default=None)


@_composite
class SaslInit(Composite):
    """The client's choice of a mechanism."""

    CODE, NAME = 0x41, "amqp:sasl-init:list"
    mechanism: str = _field(SYMBOL, default="", needed=True)
    initial_response: bytes | None = _field(BINARY, default=None, repr=False)
    hostname: str | None = _field(TEXT, default=None)


@_composite
class SaslOutcome(Composite):
    """The outcome of the authentication."""

    CODE, NAME = 0x44, "amqp:sasl-outcome:list"
    code: int = _field(UBYTE, default=0, needed=True)
    additional_data: bytes | None = _field(BINARY, default=None)


_TRUE, _FALSE, _NULL = b"\x41", b"\x42", b"\x40"


def encode_transfer(handle: int, number: int, tag: bytes, settled: bool, state: bytes, *, more: bool) -> bytes:
    """Return an encoded ``Transfer``, much sooner than that class would: each message has one.

    Args:
        handle: The link's handle.
        number: The delivery's number.
        tag: The delivery's tag, of at most 255 bytes.
        settled: Whether the delivery is settled.
        state: The delivery's encoded state.
        more: Whether more pieces of the message follow.
    """
    content = b"".join(
        (
            encode(UInt(handle)),
            encode(UInt(number)),
            b"\xa0%c" % len(tag),
            tag,
            b"\x43",
            _TRUE if settled else _FALSE,
            _TRUE if more else _FALSE,
            _NULL,
            state,
            _FALSE,
            _FALSE,
            _FALSE,
        )
    )
    return _encode_list(Transfer, content)


def encode_disposition(role: bool, first: int, last: int, state: bytes | None) -> bytes:
    """Return an encoded ``Disposition`` that settles, much sooner than that class would: each message has one.

    Args:
        role: Whether the peer has sent the deliveries.
        first: The first number.
        last: The last number.
        state: The encoded state of the deliveries; None without one.
    """
    content = b"".join(
        (_TRUE if role else _FALSE, encode(UInt(first)), encode(UInt(last)), _TRUE, state or _NULL, _FALSE)
    )
    return _encode_list(Disposition, content)


def _encode_list(kind: type[Composite], content: bytes) -> bytes:
    size, count = len(content), len(kind.FIELDS)
    if size < 255:
        return b"\x00\x53%c\xc0%c%c%b" % (kind.CODE, size + 1, count, content)
    return b"\x00\x53%c\xd0%b%b%b" % (kind.CODE, (size + 4).to_bytes(4, "big"), count.to_bytes(4, "big"), content)


def error_of(error: AmqpError | None) -> ErrorCondition | None:
    """Return an error as performatives carry it; None if there is none."""
    return None if error is None else ErrorCondition(error.condition, error.description)


def fitted(performative: Composite, most: int) -> bytes:
    """Return an encoded performative; the description of its error is cut if it exceeds ``most`` bytes.

    A peer has to close the connection for a frame that is larger than it said.
    """
    encoded, error = performative.encoded(), _error_in(performative)
    if len(encoded) > most and error is not None and error.description:
        text = error.description.encode()
        error.description = text[: max(0, len(text) - (len(encoded) - most))].decode(errors="ignore")
        encoded = performative.encoded()
    return encoded


def _error_in(performative: Any) -> ErrorCondition | None:
    """Return the error that a performative carries; None if it carries none."""
    if isinstance(performative, TransactionalState):
        performative = performative.outcome
    error = performative.error if isinstance(performative, (Close, End, Detach, Rejected)) else None
    return error if isinstance(error, ErrorCondition) else None


def fields_of(value: object) -> Mapping[Any, Any]:
    """Return a map of a performative; empty if it has none."""
    return value if isinstance(value, dict) else {}
