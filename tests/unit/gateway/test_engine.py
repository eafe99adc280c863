"""The engine of the gateway's connections."""

from __future__ import annotations

from typing import Any

import pytest

from kafkabus.gateway.amqp.conditions import (
    DECODE_ERROR,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    AmqpError,
)
from kafkabus.gateway.amqp.events import (
    Closed,
    Delivered,
    Discarded,
    Disposed,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Opened,
)
from kafkabus.gateway.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, SASL_HEADER, FrameReader, frame_of
from kafkabus.gateway.amqp.limits import Limits
from kafkabus.gateway.amqp.link import Link
from kafkabus.gateway.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Open,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
    error_of,
)
from kafkabus.gateway.amqp.sasl import TRY_LATER, LoginError
from kafkabus.gateway.server.logins import MECHANISMS
from kafkabus_mapping.amqp.types import Array, Described, Symbol, ULong, decode, encode
from tests.unit.gateway.talk import Talk, only


@pytest.fixture
def talk() -> Talk:
    """An open connection with a session."""
    talk = Talk()
    talk.open()
    talk.begin()
    return talk


def condition_of(performative: Close | End | Detach) -> str | None:
    """Return the condition of the error that a performative carries."""
    return performative.error.condition if isinstance(performative.error, ErrorCondition) else None


# Frames.


@pytest.mark.parametrize("name", ["q" * 300, "\N{GREEK SMALL LETTER ALPHA}" * 300])
def test_no_error_makes_a_frame_larger_than_its_peer_takes(name: str) -> None:
    """A peer closes the connection for that: a wrong name would end all its links. The description is cut instead."""
    talk, error = Talk(), AmqpError(NOT_FOUND, f"no queue {name!r} is in this namespace")
    talk.open(max_frame_size=512)
    talk.begin()
    talk.begin(1)
    incoming(talk)
    came = only(talk.say(Transfer(0, 0, b"tag", 0), b"..."), Delivered)
    link = came.link
    link.acknowledge([came.delivery], TransactionalState(b"t" * 16, Rejected(error_of(error))))
    link.detach(error)
    talk.engine.output.write(End(error_of(error)), 1)
    talk.engine.close(error)
    output = talk.engine.output.take()
    sizes: list[int] = []
    told: list[Any] = []
    while output:
        size = int.from_bytes(output[:4], "big")
        reader = FrameReader(1 << 20)
        reader.feed(output[:size])
        frame = reader.frame()
        assert frame is not None
        told.append(frame.performative)
        sizes.append(size)
        output = output[size:]
    assert [type(one) for one in told] == [Disposition, Detach, End, Close]
    assert max(sizes) <= 512
    errors = [told[0].state.outcome.error, *(one.error for one in told[1:])]
    assert [one.condition for one in errors] == [NOT_FOUND] * 4
    assert all(error.description.startswith(one.description) and len(one.description) > 150 for one in errors)


# Opening and closing.


def test_a_connection_is_opened_through_sasl() -> None:
    """Each mechanism will do; the answer has all fields, also null ones at its end."""
    talk = Talk()
    assert talk.give(SASL_HEADER) == []
    (offer,) = talk.heard(SaslMechanisms)
    assert offer.mechanisms == Array(MECHANISMS)
    talk.give(frame_of(0, SaslInit("MSSBCBS", b"x").encoded(), kind=SASL_FRAME))
    assert [one.code for one in talk.heard(SaslOutcome)] == [0]
    talk.give(AMQP_HEADER)
    assert talk.headers == [SASL_HEADER, AMQP_HEADER]
    event = only(talk.say(Open("client", channel_max=9, idle_time_out=60_000)), Opened)
    assert (event.open.container_id, event.open.idle_time_out) == ("client", 60_000)
    assert talk.engine.mechanism == "MSSBCBS"
    (answer,) = talk.heard(Open)
    assert (answer.container_id, answer.channel_max, answer.idle_time_out) == ("gateway", 9, 120_000)
    assert len(decode(answer.encoded())[0].value) == 10


def test_a_connection_needs_no_sasl() -> None:
    """A client that sends AMQP's own header at once is served."""
    talk = Talk()
    talk.give(AMQP_HEADER)
    only(talk.say(Open("client")), Opened)
    assert talk.engine.mechanism is None


def test_an_unknown_mechanism_is_refused() -> None:
    """The outcome says so, and the connection is over."""
    talk = Talk()
    talk.give(SASL_HEADER)
    closed = only(talk.give(frame_of(0, SaslInit("KERBEROS").encoded(), kind=SASL_FRAME)), Closed)
    assert [one.code for one in talk.heard(SaslOutcome)] == [1]
    assert closed.error is not None
    assert "KERBEROS" in closed.error.description


def test_an_owner_refuses_logins() -> None:
    """The peer gets the outcome that the owner chose, and no more; what else it has said does not count."""
    given: list[tuple[str, bytes]] = []

    def log_in(mechanism: str, response: bytes) -> None:
        given.append((mechanism, response))
        if response != b"right":
            raise LoginError(TRY_LATER, "wrong")

    for response in (b"right", b"left", None):
        talk = Talk(mechanisms=("PLAIN", "OTHER"), log_in=log_in)
        events = talk.give(
            SASL_HEADER + frame_of(0, SaslInit("OTHER", response).encoded(), kind=SASL_FRAME) + AMQP_HEADER
        )
        (offer,) = talk.heard(SaslMechanisms)
        assert offer.mechanisms == Array(("PLAIN", "OTHER"))
        (outcome,) = talk.heard(SaslOutcome)
        if response == b"right":
            assert (events, outcome.code, talk.headers) == ([], 0, [SASL_HEADER, AMQP_HEADER])
        else:
            closed = only(events, Closed)
            assert (str(closed.error), outcome.code, talk.headers) == ("wrong", TRY_LATER, [SASL_HEADER])
            assert talk.engine.is_closed
    assert given == [("OTHER", b"right"), ("OTHER", b"left"), ("OTHER", b"")]


@pytest.mark.parametrize(
    "frame",
    [
        encode(Described(ULong(0x41), [Symbol("PLAIN"), "a-secret-key"])),
        encode(Described(ULong(0x41), "a-secret-key")),
        encode(Described(ULong(0x99), ["a-secret-key"])),
        encode(["a-secret-key"]),
        encode("a-secret-key"),
        b"a-secret-key",
    ],
)
def test_no_error_of_a_login_shows_what_the_peer_said(frame: bytes) -> None:
    """It may be a key."""
    talk = Talk()
    closed = only(talk.give(SASL_HEADER + frame_of(0, frame, kind=SASL_FRAME)), Closed)
    assert closed.error is not None
    assert "secret" not in closed.error.description
    assert "secret" not in repr(SaslInit("PLAIN", b"a-secret-key"))


@pytest.mark.parametrize(
    "beginning", [b"GET / HT", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01\x00\xf0\x01\x00\x00"]
)
def test_another_protocol_is_told_the_right_header(beginning: bytes) -> None:
    """Then the connection is over."""
    talk = Talk()
    only(talk.give(beginning), Closed)
    assert talk.headers == [SASL_HEADER]
    assert talk.engine.is_closed


def test_the_peer_closes(talk: Talk) -> None:
    """It gets its answer, and its links are gone."""
    link = talk.attach(receives=True)
    events = talk.say(Close(ErrorCondition("amqp:internal-error", "oh")))
    assert events == [LinkDetached(link), Closed(None, ErrorCondition("amqp:internal-error", "oh"))]
    assert len(talk.heard(Close)) == 1
    assert talk.give(EMPTY_FRAME) == []


def test_we_close(talk: Talk) -> None:
    """It is over when the peer has answered; what comes until then counts no more."""
    talk.engine.close(AmqpError(NOT_FOUND, "gone"))
    talk.take()
    (close,) = talk.heard(Close)
    assert condition_of(close) == NOT_FOUND
    assert talk.say(Begin(None, 0, 1, 1), channel=7) == []
    only(talk.say(Close()), Closed)
    assert talk.heard(Close) == []


def test_a_frame_keeps_the_connection_alive(talk: Talk) -> None:
    """It is empty; one of the peer's is no event."""
    assert talk.give(EMPTY_FRAME) == []
    talk.engine.heartbeat()
    assert talk.engine.output.take() == EMPTY_FRAME


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x00\x01\x00\x01\x02\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x04\x02\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x0c\x05\x00\x00\x00abcd", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x02\x07\x00\x00", FRAMING_ERROR),
        (frame_of(0, b"", kind=SASL_FRAME), FRAMING_ERROR),
        (frame_of(0, b"\x00\x53\x10"), DECODE_ERROR),
        (frame_of(0, b"\xa1\x01x"), DECODE_ERROR),
        (frame_of(0, b"\x00\x53\x77\x45"), DECODE_ERROR),
        (frame_of(0, b"\x00\x53\x12\x45"), "amqp:invalid-field"),
        (frame_of(0, b"\x00\x53\x14\xc0\x03\x01\xa1\x00"), "amqp:invalid-field"),
        (frame_of(9, End().encoded()), NOT_ALLOWED),
        (frame_of(0, Begin().encoded()), NOT_ALLOWED),
    ],
)
def test_rubbish_closes_the_connection(talk: Talk, data: bytes, condition: str) -> None:
    """The error says why."""
    closed = only(talk.give(data), Closed)
    assert closed.error is not None
    assert closed.error.condition == condition
    (close,) = talk.heard(Close)
    assert condition_of(close) == condition
    assert talk.give(EMPTY_FRAME) == []


def test_a_connection_has_so_many_sessions() -> None:
    """One more closes it."""
    talk = Talk(Limits(sessions=2))
    assert talk.open().channel_max == 1
    talk.begin(0)
    talk.begin(1)
    closed = only(talk.say(Begin(), channel=2), Closed)
    assert closed.error is not None
    assert closed.error.condition == RESOURCE_LIMIT_EXCEEDED


def test_a_session_has_a_channel_up_to_the_highest() -> None:
    """The memory of channels has a bound."""
    talk = Talk(Limits(sessions=3))
    talk.open()
    closed = only(talk.say(Begin(), channel=3), Closed)
    assert closed.error is not None
    assert closed.error.condition == NOT_ALLOWED


# Links.


def test_a_link_is_attached_as_it_was_asked_for(talk: Talk) -> None:
    """Source and target come back, and all fields are written."""
    link = talk.attach(3, receives=True, snd_settle_mode=1, rcv_settle_mode=0, properties={"x": 1})
    link.accept(max_message_size=77)
    talk.take()
    (answer,) = talk.heard(Attach)
    assert (answer.name, answer.handle, answer.role, answer.snd_settle_mode) == ("link-3", 3, False, 1)
    assert (answer.initial_delivery_count, answer.max_message_size) == (0, 77)
    assert (answer.source, answer.target) == (link.attach.source, link.attach.target)
    written = decode(answer.encoded())[0].value
    assert [len(written), len(written[5].value), len(written[6].value)] == [14, 11, 7]


@pytest.mark.parametrize("receives", [True, False])
def test_a_refused_link_is_attached_to_nothing_and_detached(talk: Talk, receives: bool) -> None:
    """The peer's answer, and what it sent before it knew, are taken."""
    link = talk.attach(receives=receives)
    link.refuse(AmqpError(NOT_FOUND, "no such queue"))
    talk.take()
    (attach,), (detach,) = talk.heard(Attach), talk.heard(Detach)
    assert (attach.source if receives else attach.target) is None
    assert detach.closed
    assert condition_of(detach) == NOT_FOUND
    assert talk.flow(0, 5) == []
    assert talk.say(Detach(0, closed=True)) == []
    assert talk.heard(Detach) == []


def test_a_link_that_the_peer_detaches_is_gone(talk: Talk) -> None:
    """Its handle is free again."""
    link = talk.attach(receives=True)
    link.accept()
    assert talk.say(Detach(0, closed=True)) == [LinkDetached(link)]
    assert [one.closed for one in talk.heard(Detach)] == [True]
    talk.attach(receives=True)


def test_a_peer_may_give_up_before_it_has_its_answer(talk: Talk) -> None:
    """It learns which link is detached."""
    talk.attach(receives=True)
    (detached,) = talk.say(Detach(0, closed=True))
    assert isinstance(detached, LinkDetached)
    assert [one.name for one in talk.heard(Attach)] == ["link-0"]
    assert len(talk.heard(Detach)) == 1


def test_a_session_that_ends_has_no_links(talk: Talk) -> None:
    """The peer's words on it afterwards count no more, and it may begin another."""
    link = talk.attach(receives=True)
    assert talk.say(End()) == [LinkDetached(link)]
    assert len(talk.heard(End)) == 1
    assert talk.say(Detach(0, closed=True)) == []
    talk.begin()


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        (Attach("again", 0, True), HANDLE_IN_USE),
        (Detach(5), UNATTACHED_HANDLE),
        (Flow(handle=5), UNATTACHED_HANDLE),
        (Transfer(5, 0, b"t"), UNATTACHED_HANDLE),
        (Transfer(0, 0, b"t"), NOT_ALLOWED),
    ],
)
def test_a_session_ends_at_an_error(talk: Talk, said: Attach | Detach | Flow | Transfer, condition: str) -> None:
    """The connection stays."""
    link = talk.attach(receives=True)
    assert talk.say(said) == [LinkDetached(link)]
    (end,) = talk.heard(End)
    assert condition_of(end) == condition
    assert talk.say(End()) == []
    talk.begin(4)


def test_a_connection_is_opened_once(talk: Talk) -> None:
    """Another open closes it."""
    link = talk.attach(receives=True)
    detached, closed = talk.say(Open("again"))
    assert (detached, isinstance(closed, Closed)) == (LinkDetached(link), True)
    assert condition_of(talk.heard(Close)[0]) == "amqp:illegal-state"


def test_a_link_is_answered_before_it_is_detached(talk: Talk) -> None:
    """Also one whose peer sends before it has the answer, and which would not know what is detached."""
    (attached,) = talk.say(Attach("l", 3, False, target=Target("q"), initial_delivery_count=0))
    assert isinstance(attached, LinkAttached)
    assert talk.say(Transfer(3, 0, b"t"), b"x") == [LinkDetached(attached.link)]
    assert [type(frame.performative) for frame in talk.frames] == [Attach, Detach]
    assert (talk.heard(Attach)[0].target, condition_of(talk.heard(Detach)[0])) == (None, TRANSFER_LIMIT_EXCEEDED)
    # The link is gone, also for an owner that learns it late.
    attached.link.accept()
    attached.link.refuse(AmqpError(NOT_FOUND, "no such queue"))
    talk.take()
    assert talk.frames == []


def test_a_link_that_was_accepted_is_attached_once(talk: Talk) -> None:
    """An owner that refuses it afterwards detaches it."""
    link = talk.attach(receives=True)
    link.accept()
    link.refuse(AmqpError(NOT_FOUND, "no such queue"))
    talk.take()
    assert (len(talk.heard(Attach)), condition_of(talk.heard(Detach)[0])) == (1, NOT_FOUND)


def test_a_link_that_cannot_be_detached_stays(talk: Talk) -> None:
    """Its handle is its own, also if an error has text that cannot be encoded."""
    link = talk.attach(receives=True)
    link.accept()
    with pytest.raises(ValueError, match="surrogate pair"):
        link.detach(AmqpError(NOT_FOUND, "\ud800"))
    assert (link.is_attached, talk.engine.usage.links) == (True, 1)
    link.detach()
    talk.take()
    assert (link.is_attached, talk.engine.usage.links, len(talk.heard(Detach))) == (False, 0, 1)


def test_a_connection_has_so_many_channels() -> None:
    """AMQP has numbers for 65,536."""
    talk = Talk(Limits(sessions=100_000))
    assert talk.open().channel_max == 65_535


def test_a_connection_has_so_many_links() -> None:
    """One more is refused."""
    talk = Talk(Limits(links=1))
    talk.open()
    talk.begin()
    talk.attach(0, receives=True)
    assert talk.say(Attach("more", 1, True)) == []
    (detach,) = talk.heard(Detach)
    assert condition_of(detach) == RESOURCE_LIMIT_EXCEEDED


def test_a_link_has_a_handle_up_to_the_highest() -> None:
    """The memory of handles has a bound."""
    talk = Talk(Limits(links=3))
    talk.open()
    talk.begin()
    talk.attach(3, receives=True)
    talk.say(Attach("more", 4, True))
    assert condition_of(talk.heard(End)[0]) == NOT_ALLOWED


def test_a_peer_answers_that_links_were_detached() -> None:
    """Its handles are remembered until then, or the session is over; one that never answers loses its session."""
    talk = Talk(Limits(links=4))
    talk.open()
    for channel in range(3):
        talk.begin(channel)
    for channel, handle in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0)):
        talk.attach(handle, receives=True, channel=channel).detach()
    assert talk.engine.usage.unanswered == 5
    assert talk.engine.kept_bytes > 0
    talk.take()
    talk.heard(Detach)
    assert talk.say(Attach("more", 4, True), channel=1) == []
    assert condition_of(talk.heard(End)[0]) == RESOURCE_LIMIT_EXCEEDED
    assert talk.engine.usage.unanswered == 3
    talk.say(Detach(0, closed=True), channel=2)
    assert talk.engine.usage.unanswered == 2
    talk.attach(1, receives=True, channel=2)


def test_links_are_asked_for_in_so_many_bytes() -> None:
    """A request is kept as long as its link."""
    talk = Talk(Limits(attach_bytes=2_000))
    talk.open()
    talk.begin()
    first = talk.attach(0, receives=True, properties={"x": "x" * 1_500})
    talk.take()
    before = talk.engine.usage.attach_bytes
    assert 1_500 < before < 2_000
    assert talk.say(Attach("more", 1, True, properties={"x": "x" * 1_500})) == []
    assert condition_of(talk.heard(Detach)[0]) == RESOURCE_LIMIT_EXCEEDED
    assert talk.engine.usage.attach_bytes == before
    first.detach()
    assert talk.engine.usage.attach_bytes == 0


def test_frames_that_wait_for_the_peer_are_counted_until_it_takes_them() -> None:
    """Or until their session is over."""
    for ends in (False, True):
        talk = Talk()
        talk.open()
        talk.begin(window=0)
        link = talk.attach(0, receives=True)
        link.accept()
        link.send(b"t", b"x" * 1_000, settled=True)
        assert 1_000 < talk.engine.usage.waiting_bytes < 1_200
        talk.say(End()) if ends else talk.flow(0, 1)
        assert talk.engine.usage.waiting_bytes == 0


def test_small_pieces_of_a_message_are_joined(talk: Talk) -> None:
    """Each takes fifty bytes beside its own."""
    incoming(talk)
    for number in range(5_000):
        talk.say(Transfer(0, 0 if not number else None, b"t" if not number else None, more=True), b"xy")
    (session,) = talk.engine.sessions
    partial = session.links[0].partial
    assert partial is not None
    assert (len(partial.pieces), talk.engine.usage.partial_bytes) == (3, 10_000)
    assert delivered(talk.say(Transfer(0), b"z"))[1] == b"xy" * 5_000 + b"z"


# Messages that come.


def incoming(talk: Talk, credit: int = 10) -> None:
    """Attach a link on which the peer sends."""
    link = talk.attach(receives=False)
    link.accept()
    link.give_credit(credit)
    talk.take()
    talk.frames.clear()


def delivered(events: list[Event]) -> tuple[bytes, bytes, int]:
    """Return tag, payload and format of the message that came."""
    delivery = only(events, Delivered).delivery
    return delivery.tag, delivery.payload, delivery.message_format


def test_a_message_comes_in_one_frame_or_in_several(talk: Talk) -> None:
    """Later frames need no id and no tag."""
    incoming(talk)
    assert delivered(talk.say(Transfer(0, 0, b"\xff", 5), b"whole")) == (b"\xff", b"whole", 5)
    assert talk.say(Transfer(0, 1, b"b", more=True), b"in ") == []
    assert talk.say(Transfer(0, more=True), b"three ") == []
    assert delivered(talk.say(Transfer(0), b"pieces")) == (b"b", b"in three pieces", 0)


def test_an_aborted_message_is_forgotten(talk: Talk) -> None:
    """The next one is not mixed with it."""
    incoming(talk)
    talk.say(Transfer(0, 0, b"a", more=True), b"no")
    assert talk.say(Transfer(0, aborted=True)) == []
    assert delivered(talk.say(Transfer(0, 1, b"b"), b"yes"))[1] == b"yes"


@pytest.mark.parametrize(("number", "tag"), [(1, b"b"), (1, None), (None, b"b")])
def test_no_message_begins_within_another_one(talk: Talk, number: int | None, tag: bytes | None) -> None:
    """Both would become one, and the second would never be answered. The link is detached.

    The events have the transactions of both messages.
    """
    incoming(talk)
    talk.say(Transfer(0, 0, b"a", more=True, state=TransactionalState(b"one")), b"no")
    discarded, detached = talk.say(Transfer(0, number, tag, state=TransactionalState(b"two")), b"yes")
    assert isinstance(discarded, Discarded)
    assert isinstance(detached, LinkDetached)
    assert (discarded.state, detached.link.cut_off) == (TransactionalState(b"two"), TransactionalState(b"one"))
    (detach,) = talk.heard(Detach)
    assert detach.error.condition == NOT_ALLOWED


def test_a_message_that_is_too_large_is_not_kept() -> None:
    """An event reports it nevertheless, so that it can be refused."""
    talk = Talk(Limits(message_bytes=10))
    talk.open()
    talk.begin()
    incoming(talk)
    talk.say(Transfer(0, 0, b"a", more=True), b"x" * 8)
    came = only(talk.say(Transfer(0), b"x" * 8), Delivered)
    delivery = came.delivery
    assert (delivery.is_too_large, delivery.size, delivery.payload) == (True, 16, b"")
    came.link.acknowledge([delivery], Rejected())
    talk.take()
    assert [(one.first, one.last, one.settled) for one in talk.heard(Disposition)] == [(0, 0, True)]


def test_messages_that_have_begun_take_so_much_room() -> None:
    """One too many detaches its link. Others, and messages that have come as a whole, take none."""
    talk = Talk(Limits(partial_bytes=10))
    talk.open()
    talk.begin()
    for handle in range(3):
        link = talk.attach(handle, receives=False)
        link.accept()
        link.give_credit(5)
    assert talk.say(Transfer(0, 0, b"a", more=True), b"x" * 6) == []
    (detached,) = talk.say(Transfer(1, 1, b"a", more=True), b"x" * 6)
    assert isinstance(detached, LinkDetached)
    assert delivered(talk.say(Transfer(0), b"x"))[1] == b"x" * 7
    talk.say(Transfer(2, 2, b"a", more=True), b"x" * 9)
    talk.say(Transfer(2, aborted=True))
    assert talk.engine.usage.partial_bytes == 0


def test_no_message_comes_without_credit(talk: Talk) -> None:
    """The link is detached."""
    incoming(talk, credit=1)
    talk.say(Transfer(0, 0, b"a"), b"x")
    (detached,) = talk.say(Transfer(0, 1, b"b"), b"x")
    assert isinstance(detached, LinkDetached)
    (detach,) = talk.heard(Detach)
    assert condition_of(detach) == TRANSFER_LIMIT_EXCEEDED


def test_a_delivery_that_is_resumed_is_refused(talk: Talk) -> None:
    """It would be stored a second time: what came over a link that has ended is not known any more."""
    incoming(talk)
    state = TransactionalState(b"t")
    told, detached = talk.say(Transfer(0, 0, b"a", resume=True, state=state), b"x")
    assert told == Discarded(state)
    assert isinstance(detached, LinkDetached)
    (detach,) = talk.heard(Detach)
    assert condition_of(detach) == NOT_IMPLEMENTED


def test_what_ends_a_session_is_told_of_its_transaction(talk: Talk) -> None:
    """The transaction may go on in another session, and must not be committed without it."""
    state = TransactionalState(b"t")
    assert talk.say(Transfer(77, 0, b"a", state=state), b"x") == [Discarded(state)]
    (end,) = talk.heard(End)
    assert condition_of(end) == UNATTACHED_HANDLE


def test_messages_are_acknowledged_in_ranges(talk: Talk) -> None:
    """Those that came settled are not acknowledged, and none is twice."""
    incoming(talk)
    events = [only(talk.say(Transfer(0, number, b"t", settled=number == 3), b"x"), Delivered) for number in range(6)]
    link, came = events[0].link, [event.delivery for event in events]
    link.acknowledge(came, Accepted())
    link.acknowledge(came, Accepted())
    talk.take()
    assert [(one.role, one.first, one.last, one.settled, one.state) for one in talk.heard(Disposition)] == [
        (True, 0, 2, True, Accepted()),
        (True, 4, 5, True, Accepted()),
    ]
    assert link.unsettled == 0


def test_the_sessions_window_is_renewed() -> None:
    """A peer that sends more than it allows has its session ended."""
    talk = Talk(Limits(window=4))
    talk.open()
    talk.begin()
    incoming(talk)
    for number in range(2):
        talk.say(Transfer(0, number, b"t"), b"x")
    (flow,) = talk.heard(Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.handle) == (2, 4, None)


# Messages that go.


def test_messages_go_as_the_peers_window_allows(talk: Talk) -> None:
    """The others wait for it."""
    talk.begin(1, window=2)
    link = talk.attach(receives=True, channel=1)
    link.accept()
    talk.say(Flow(0, 2, 0, 100, 0, 0, 5), channel=1)
    assert link.credit == 5
    for number in range(3):
        link.send(b"%d" % number, b"x", settled=False)
    talk.take()
    assert [(one.delivery_id, one.delivery_tag) for one in talk.heard(Transfer)] == [(0, b"0"), (1, b"1")]
    assert link.session.window.waiting == 1
    talk.say(Flow(2, 2, 0, 100), channel=1)
    assert [one.delivery_tag for one in talk.heard(Transfer)] == [b"2"]
    assert link.credit == 2


def test_a_large_message_goes_in_several_frames() -> None:
    """None is larger than the peer takes."""
    talk = Talk()
    talk.open(max_frame_size=512)
    talk.begin()
    link = talk.attach(receives=True)
    link.accept()
    talk.flow(0, 1)
    body = bytes(range(256)) * 8
    link.send(b"t" * 16, body, settled=True)
    output = talk.engine.output.take()
    pieces: list[bytes] = []
    while output:
        size = int.from_bytes(output[:4], "big")
        assert size <= 512
        pieces.append(output[:size])
        output = output[size:]
    talk = Talk()
    talk.open()
    talk.begin()
    incoming(talk)
    # The engine reads its own frames.
    events = [event for piece in pieces for event in talk.give(piece)]
    assert delivered(events)[:2] == (b"t" * 16, body)


def test_credit_counts_from_what_the_peer_knows(talk: Talk) -> None:
    """Messages that were sent before the peer's flow was heard are taken off, and numbers go round."""
    link = talk.attach(receives=True)
    link.accept()
    talk.flow(0, 3)
    link.send(b"a", b"x", settled=True)
    link.send(b"b", b"x", settled=True)
    talk.flow(0, 3, delivery_count=1)
    assert link.credit == 2
    talk.flow(0, 1, delivery_count=0)
    assert link.credit == 0
    # As if it had sent all numbers but three.
    link.credit = 2**32 - 3
    link.give_up_credit()
    talk.flow(0, 0, delivery_count=0xFFFF_FFFF)
    link.send(b"c", b"x", settled=True)
    talk.flow(0, 5, delivery_count=0xFFFF_FFFF)
    assert link.credit == 4


def test_a_drained_link_gives_its_credit_up(talk: Talk) -> None:
    """The peer learns it by the count, as if all had been sent."""
    link = talk.attach(receives=True)
    link.accept()
    (flowed,) = talk.flow(0, 10, drain=True)
    assert isinstance(flowed, LinkFlowed)
    assert link.drain
    link.send(b"a", b"x", settled=True)
    link.give_up_credit()
    talk.take()
    (flow,) = talk.heard(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (10, 0, True)
    assert not link.drain


def test_a_link_may_send_more_than_its_credit(talk: Talk) -> None:
    """The peer lowered it while messages were on their way; the answer says that none is left."""
    link = talk.attach(receives=True)
    link.accept()
    talk.flow(0, 1)
    for _ in range(2):
        link.send(b"a", b"x", settled=True)
    talk.say(Flow(0, 100, 0, 100, handle=0, echo=True))
    assert [(one.delivery_count, one.link_credit) for one in talk.heard(Flow)] == [(2, 0)]


def test_an_echo_is_answered(talk: Talk) -> None:
    """For a link and for the session."""
    link = talk.attach(receives=True)
    link.accept()
    talk.flow(0, 4, echo=True)
    assert [(one.handle, one.link_credit) for one in talk.heard(Flow)] == [(0, 4)]
    talk.say(Flow(0, 100, 0, 100, echo=True))
    assert [one.handle for one in talk.heard(Flow)] == [None]


def test_the_peer_tells_the_state_of_ranges(talk: Talk) -> None:
    """Numbers that it does not hold are ignored, and a range may be as long as it likes."""
    link = talk.attach(receives=True)
    link.accept()
    talk.flow(0, 10)
    for number in range(4):
        link.send(b"%d" % number, b"x", settled=False, content=number)
    event = only(talk.say(Disposition(True, 1, 2, state=Accepted())), Disposed)
    assert ([one.content for one in event.deliveries], event.state, event.settled) == ([1, 2], Accepted(), False)
    link.settle(event.deliveries, Accepted())
    talk.take()
    assert [(one.role, one.first, one.last, one.settled) for one in talk.heard(Disposition)] == [(False, 1, 2, True)]
    assert talk.say(Disposition(True, 1, 2, settled=True)) == []
    event = only(talk.say(Disposition(True, 0, 0xFFFF_FFFE, state=Accepted(), settled=True)), Disposed)
    assert [one.content for one in event.deliveries] == [0, 3]
    link.forget(event.deliveries)
    assert link.unsettled == 0


def test_what_the_peer_settles_of_its_own_is_no_event(talk: Talk) -> None:
    """It was settled by our answer."""
    incoming(talk)
    talk.say(Transfer(0, 0, b"a"), b"x")
    assert talk.say(Disposition(False, 0, settled=True)) == []


def test_a_detached_link_holds_nothing(talk: Talk) -> None:
    """Messages that it sent and that were not settled are forgotten.

    If a transaction settles one, or sends a message over the link, an event has its state.
    """
    link = talk.attach(receives=True)
    link.accept()
    talk.flow(0, 10)
    link.send(b"a", b"x", settled=False)
    link.detach(AmqpError(NOT_FOUND, "gone"))
    assert talk.say(Disposition(True, 0, state=Accepted())) == []
    assert talk.say(Disposition(True, 0, state=TransactionalState(b"t"))) == [Discarded(TransactionalState(b"t"))]
    assert talk.say(Transfer(0, 0, b"a", state=TransactionalState(b"t"))) == [Discarded(TransactionalState(b"t"))]
    assert talk.say(Detach(0, closed=True)) == []


# Work that a few bytes ask for.


def browsing(talk: Talk, count: int, window: int = 1_000) -> list[Link]:
    """Attach links on which the peer receives."""
    talk.open()
    talk.say(Begin(None, 0, window, window))
    links: list[Link] = []
    for handle in range(count):
        (event,) = talk.say(Attach(f"l{handle}", handle, True, source=Source("q"), target=Target("here")))
        assert isinstance(event, LinkAttached)
        event.link.accept()
        links.append(event.link)
    return links


def test_links_that_wait_for_no_room_are_not_told_of_it() -> None:
    """A peer may have thousands, and open and close its window with a few bytes each."""
    talk = Talk()
    one, two, three, _ = browsing(talk, 4, window=0)
    one.session.window.await_room(two, 1)
    one.session.window.await_room(three, 5)
    assert talk.say(Flow(None, 0, 0, 0)) == []
    for window, told in ((4, [two]), (0, []), (9, [three]), (0, []), (9, [])):
        events = talk.say(Flow(None, window, 0, 0))
        assert [event.link for event in events if isinstance(event, LinkFlowed)] == told


def test_reserved_room_is_for_no_other() -> None:
    """If it was not used, a link that waits for room is reported as ready, once."""
    talk = Talk()
    one, two = browsing(talk, 2, window=5)
    window = one.session.window
    window.reserved = 3
    assert window.room == 2
    window.await_room(two, 3)
    assert window.take_ready() == []
    window.reserved = 0
    assert (window.take_ready(), window.take_ready()) == ([two], [])


def test_deliveries_of_a_link_go_with_it() -> None:
    """And those of a session; what was settled is counted no more."""
    talk = Talk()
    one, two = browsing(talk, 2)
    for link in (one, two, one):
        link.send(b"t", b"x", settled=False)
    assert talk.engine.usage.unsettled == 3
    talk.say(Detach(0, closed=True))
    assert (talk.engine.usage.unsettled, talk.engine.usage.links) == (1, 1)
    (event,) = talk.say(Disposition(True, 0, 9, False, Accepted()))
    assert isinstance(event, Disposed)
    assert (event.link, len(event.deliveries)) == (two, 1)
    talk.say(End())
    assert (talk.engine.usage.unsettled, talk.engine.usage.links) == (0, 0)


@pytest.mark.parametrize("end", ["detach", "end", "lose"])
def test_what_was_not_sent_as_a_whole_comes_back(end: str) -> None:
    """The contents of settled messages do, in their order; those of unsettled ones do not."""
    talk = Talk()
    (link,) = browsing(talk, 1, window=2)
    for number in range(4):
        link.send(b"t", b"x", settled=number != 2, content=number)
    assert talk.engine.output.take_contents() == [0, 1]
    if end == "lose":
        talk.engine.lose()
    else:
        talk.say(Detach(0, closed=True) if end == "detach" else End())
    assert (link.unsent, talk.engine.output.take_contents(), talk.engine.usage.waiting_bytes) == ([3], [], 0)


def test_what_waited_for_the_window_is_sent() -> None:
    """A message counts as sent once its last frame is."""
    talk = Talk()
    (link,) = browsing(talk, 1, window=1)
    size = 2 * talk.engine.output.payload_room(2)
    link.send(b"t", b"x" * size, settled=True, content="it")
    assert talk.engine.output.take_contents() == []
    talk.say(Flow(1, 9, 0, 0))
    assert talk.engine.output.take_contents() == ["it"]


def test_a_link_whose_peer_gave_up_is_answered_once(talk: Talk) -> None:
    """Another link may have its handle by then."""
    (event,) = talk.say(Attach("first", 5, True, source=Source("q"), target=Target("here")))
    talk.say(Detach(5, closed=True))
    talk.say(Attach("second", 5, True, source=Source("q"), target=Target("here")))
    talk.heard(Attach)
    assert isinstance(event, LinkAttached)
    event.link.refuse(AmqpError(NOT_ALLOWED, "no"))
    event.link.accept()
    talk.take()
    assert (talk.heard(Attach), talk.heard(Detach)[1:], event.link.is_attached) == ([], [], False)


def test_a_performative_has_so_many_elements(talk: Talk) -> None:
    """Each takes a microsecond, and sixty bytes."""
    attach = Attach("l", 0, True, source=Source("q"), target=Target("x"), properties={Symbol("a"): [None] * 4_000})
    (event,) = talk.say(attach)
    assert isinstance(event, LinkAttached)
    assert event.link.attach_bytes > 4_000 * 50
    attach.handle, attach.properties = 1, {Symbol("a"): [None] * 5_000}
    *_, event = talk.say(attach)
    assert isinstance(event, Closed)
    assert event.error is not None
    assert event.error.condition == DECODE_ERROR


def test_the_state_of_a_message_that_has_begun_is_counted(talk: Talk) -> None:
    """As long as it has not ended."""
    incoming(talk)
    before = talk.engine.usage.partial_bytes
    state = TransactionalState(b"t" * 9_000)
    talk.say(Transfer(0, 0, b"t", 0, False, more=True, state=state))
    assert talk.engine.usage.partial_bytes - before > 9_000
    talk.say(Transfer(0, more=False), b"x")
    assert talk.engine.usage.partial_bytes == before


def test_an_aborted_message_gives_its_credit_back(talk: Talk) -> None:
    """The owner knows nothing of it."""
    incoming(talk)
    for number in range(20):
        talk.say(Transfer(0, number, b"t", 0, False, more=True), b"x")
        talk.say(Transfer(0, aborted=True))
        (flow,) = talk.heard(Flow)
        assert (flow.delivery_count, flow.link_credit) == (number + 1, 10)
    assert delivered(talk.say(Transfer(0, 20, b"t", 0, False), b"whole")) == (b"t", b"whole", 0)


def test_a_tag_has_so_many_bytes(talk: Talk) -> None:
    """The link is detached."""
    incoming(talk)
    talk.say(Transfer(0, 0, b"t" * 33, 0, False), b"x")
    (detach,) = talk.heard(Detach)
    assert condition_of(detach) == ILLEGAL_STATE
