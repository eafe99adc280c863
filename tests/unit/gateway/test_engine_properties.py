"""The engine of the gateway's connections: whatever a peer says, and however its bytes are cut."""

from __future__ import annotations

from typing import Any

from azure.servicebus._pyamqp._decode import decode_frame
from hypothesis import example, given
from hypothesis import strategies as st

from kafkabus.gateway.amqp.connection import Connection
from kafkabus.gateway.amqp.events import Closed, Delivered, Disposed, Event, LinkAttached, LinkFlowed
from kafkabus.gateway.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, FrameReader, frame_of
from kafkabus.gateway.amqp.output import Output
from kafkabus.gateway.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_disposition,
    encode_transfer,
    fitted,
)
from kafkabus.gateway.server.logins import MECHANISMS
from kafkabus_mapping.amqp.types import UInt, encode

SAID: tuple[tuple[int, Composite, bytes], ...] = (
    (0, Open("client", max_frame_size=512, idle_time_out=30_000), b""),
    (0, Begin(None, 0, 10, 10), b""),
    (1, Begin(None, 1, 3, 10), b""),
    (0, Attach("in", 0, False, source=Source("here"), target=Target("q"), initial_delivery_count=0), b""),
    (1, Attach("out", 7, True, source=Source("q", filter={"f": "s"}), target=Target("here")), b""),
    (0, Transfer(0, 0, b"\x00", 0, more=True), b"first "),
    (0, Transfer(0, more=True), b"second "),
    (0, Transfer(0), b"third"),
    (0, Transfer(0, 1, b"\x01", 0x8001_3700, settled=True), b"x"),
    (1, Flow(0, 3, 1, 10, 7, 0, 5, echo=True), b""),
    (1, Disposition(True, 0, 1, state=Modified(None, True, {"a": 1})), b""),
    (
        1,
        Disposition(
            True, 2, state=Rejected(ErrorCondition("com.microsoft:dead-letter", None, {"x": "y"})), settled=True
        ),
        b"",
    ),
    (1, Flow(2, 3, 1, 10, 7, 2, 5, drain=True), b""),
    (1, Detach(7, closed=True), b""),
    (0, Attach("in again", 4, False, target=Target("q"), initial_delivery_count=9), b""),
    (1, End(), b""),
    (0, Close(), b""),
)
"""The words of a client, from the opening of its connection to its end."""


def conversation() -> bytes:
    """Return the bytes of all that the client says."""
    frames = [frame_of(channel, said.encoded(), payload) for channel, said, payload in SAID]
    login = frame_of(0, SaslInit("ANONYMOUS", b"").encoded(), kind=SASL_FRAME)
    return b"".join((SASL_HEADER, login, AMQP_HEADER, *frames))


CONVERSATION = conversation()

FIELD_COUNTS: dict[type[Composite], int] = {
    Open: 10,
    Begin: 8,
    Attach: 14,
    Flow: 11,
    Transfer: 11,
    Disposition: 6,
    Detach: 3,
    End: 1,
    Close: 1,
    SaslMechanisms: 1,
    SaslOutcome: 2,
}
"""How many fields the performatives that the engine writes have in the specification.

Written out on purpose: the counts of the classes would agree with a field that is missing from a class.
"""


class Owner:
    """Does with an engine what the gateway does: accepts links, sends on them, settles.

    Attributes:
        engine: The engine.
        events: The events, as texts.
        heard: All bytes that the engine sent.
    """

    def __init__(self) -> None:
        self.engine = Connection("gateway", MECHANISMS)
        self.events: list[str] = []
        self.heard = b""

    def give(self, data: bytes) -> None:
        """Give bytes to the engine, and handle its events."""
        for event in self.engine.receive(data):
            self.events.append(_text_of(event))
            self._handle(event)
        self.heard += self.engine.output.take()

    def _handle(self, event: Event) -> None:
        if isinstance(event, LinkAttached):
            event.link.accept(max_message_size=100)
            if not event.link.sends:
                event.link.give_credit(10)
        elif isinstance(event, Delivered):
            event.link.acknowledge([event.delivery], Accepted())
        elif isinstance(event, LinkFlowed):
            link = event.link
            for number in range(min(link.credit, 3)):
                link.send(b"tag", bytes(300 * number), settled=False)
            if link.drain:
                link.give_up_credit()
        elif isinstance(event, Disposed):
            event.link.settle(event.deliveries, Released())


def _text_of(event: Event) -> str:
    if isinstance(event, Delivered):
        return f"{event.delivery.tag!r} {event.delivery.payload!r} {event.delivery.message_format}"
    if isinstance(event, Disposed):
        return f"{[one.number for one in event.deliveries]} {event.state} {event.settled}"
    return type(event).__name__


def in_one_piece() -> Owner:
    """Return the owner of an engine that was given the whole conversation."""
    owner = Owner()
    owner.give(CONVERSATION)
    return owner


@given(st.lists(st.integers(1, 40), max_size=200))
@example([1] * len(CONVERSATION))
def test_it_does_not_matter_how_the_bytes_are_cut(sizes: list[int]) -> None:
    """The events are the same, and so is what the engine says."""
    whole, pieces, at = in_one_piece(), Owner(), 0
    for size in [*sizes, len(CONVERSATION)]:
        pieces.give(CONVERSATION[at : at + size])
        at += size
    assert pieces.events == whole.events
    assert pieces.heard == whole.heard
    assert pieces.engine.is_closed


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, len(CONVERSATION) - 1), st.integers(0, 255)),
            st.tuples(st.just("drop"), st.integers(0, len(CONVERSATION) - 1), st.integers(1, 20)),
            st.tuples(st.just("repeat"), st.integers(0, len(CONVERSATION) - 1), st.integers(1, 60)),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_a_mutated_conversation_costs_its_connection_at_most(changes: list[tuple[str, int, int]]) -> None:
    """No error leaves the engine; what it says is frames; and after it has closed, nothing more happens."""
    data = bytearray(CONVERSATION)
    for kind, at, what in changes:
        if kind == "set":
            data[at % max(1, len(data))] = what
        elif kind == "drop":
            del data[at : at + what]
        else:
            data[at:at] = data[at : at + what]
    owner = Owner()
    owner.give(bytes(data))
    check_frames(owner.heard)
    if owner.engine.is_closed:
        assert owner.events[-1] == Closed.__name__
        before = len(owner.heard)
        owner.give(CONVERSATION)
        assert len(owner.heard) == before


@given(st.binary(max_size=300))
def test_rubbish_in_a_session_costs_its_connection_at_most(rubbish: bytes) -> None:
    """The same for bytes that never were a frame."""
    owner = Owner()
    owner.give(CONVERSATION[: CONVERSATION.index(b"in again") - 60])
    owner.give(rubbish)
    check_frames(owner.heard)


def check_frames(data: bytes) -> None:
    """Check that bytes are protocol headers and frames."""
    while data:
        if data.startswith(b"AMQP"):
            data = data[8:]
            continue
        size = int.from_bytes(data[:4], "big")
        reader = FrameReader(1 << 20)
        reader.feed(data[:size])
        assert reader.frame() is not None
        data = data[size:]


def frames_of(data: bytes) -> list[bytes]:
    """Return the frames among protocol headers."""
    found: list[bytes] = []
    while data:
        size = 8 if data.startswith(b"AMQP") else int.from_bytes(data[:4], "big")
        if not data.startswith(b"AMQP"):
            found.append(data[:size])
        data = data[size:]
    return found


def test_another_implementation_reads_what_the_engine_says() -> None:
    """Azure's client for Python has another decoder. It needs all fields of a performative."""
    fields = {kind.CODE: count for kind, count in FIELD_COUNTS.items()}
    seen: set[int] = set()
    for frame in frames_of(in_one_piece().heard):
        code, values = decode_frame(memoryview(frame)[8:])
        seen.add(code)
        # Its decoder adds the payload to the fields of a transfer.
        assert len(values) == fields[code] + (code == Transfer.CODE), code
    assert seen == fields.keys()


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def test_another_implementation_reads_a_transfer() -> None:
    """Its fields, and its payload."""
    owner = in_one_piece()
    (first, *_) = [decode_frame(memoryview(one)[8:])[1] for one in frames_of(owner.heard) if one[10] == 0x14]
    assert [_plain(one) for one in first[:6]] == [UInt(7), 0, b"tag", 0, False, False]


NULL = encode(None)
UINTS = st.integers(0, 0xFFFF_FFFF)
STATES = st.one_of(
    st.none(),
    st.sampled_from((Accepted(), Released(), Modified(True), Rejected(), TransactionalState(b"id", Accepted()))),
    st.builds(Rejected, st.builds(ErrorCondition, st.just("condition"), st.text(max_size=300))),
)


def _encoded(state: Composite | None) -> bytes | None:
    return None if state is None else state.encoded()


@given(UINTS, UINTS, st.binary(max_size=255), st.booleans(), STATES, st.booleans())
def test_the_fast_encoder_of_transfers_writes_what_their_class_does(
    handle: int, number: int, tag: bytes, settled: bool, state: Composite | None, more: bool
) -> None:
    """All fields, also those that are always the same."""
    fast = encode_transfer(handle, number, tag, settled, _encoded(state) or NULL, more=more)
    transfer = Transfer(
        handle,
        number,
        tag,
        message_format=0,
        settled=settled,
        more=more,
        rcv_settle_mode=None,
        state=state,
        resume=False,
        aborted=False,
        batchable=False,
    )
    assert fast == transfer.encoded()


@given(st.booleans(), UINTS, UINTS, STATES)
def test_the_fast_encoder_of_dispositions_writes_what_their_class_does(
    role: bool, first: int, last: int, state: Composite | None
) -> None:
    """All fields, also those that are always the same."""
    fast = encode_disposition(role, first, last, _encoded(state))
    assert fast == Disposition(role, first, last, settled=True, state=state, batchable=False).encoded()


def test_a_transfer_with_the_largest_numbers_fits_into_a_frame() -> None:
    """With the longest tag, a long state, and as many bytes of the message as there is room for."""
    output, most, tag, state = Output(), 0xFFFF_FFFF, bytes(255), Rejected(ErrorCondition("a" * 100)).encoded()
    output.frame_bytes = 1_000
    payload = bytes(output.payload_room(len(tag) + len(state)))
    transfer = encode_transfer(most, most, tag, False, state, more=True)
    assert len(frame_of(0xFFFF, transfer, payload)) <= output.frame_bytes


def test_a_disposition_with_the_largest_numbers_fits_into_a_frame() -> None:
    """With a state that was cut to the room that there is."""
    output, most = Output(), 0xFFFF_FFFF
    state = fitted(Rejected(ErrorCondition("condition", "a" * 1_000)), output.payload_room(0))
    assert len(state) == output.payload_room(0)
    assert len(frame_of(0xFFFF, encode_disposition(True, most, most, state))) <= output.frame_bytes
