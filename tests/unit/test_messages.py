"""Messages as objects: the values that they take and refuse, and pickling."""

from __future__ import annotations

import pickle
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from azure import servicebus as azure

from kafkabus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage, exceptions
from kafkabus._core.delivery import Delivery
from kafkabus._core.record import StoredRecord
from kafkabus.exceptions import MessageSizeExceededError
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.numbers import LockToken


def received(**headers: str) -> ServiceBusReceivedMessage:
    """Return a message as a receiver makes it."""
    stored = [(f"sb-{name.replace('_', '-')}", value.encode()) for name, value in headers.items()]
    record = StoredRecord(("t", 3, 7), (b"key", b"body", [*stored]), (2, 1_000))
    return ServiceBusReceivedMessage(record, Delivery("q", 3, "00000000000000ab", 61_000, 2, FOREVER))


def test_a_message_has_an_id_of_its_own() -> None:
    """It is made once, when it is first read or sent. A UUID object is accepted, too."""
    message = ServiceBusMessage("x")
    assert message.message_id == message.message_id
    assert len({ServiceBusMessage("x").message_id for _ in range(1000)}) == 1000
    assert ServiceBusMessage("x", message_id=uuid.UUID(int=1)).message_id == uuid.UUID(int=1)


@pytest.mark.parametrize("name", ["session_id", "message_id", "partition_key", "reply_to_session_id"])
def test_identifiers_have_at_most_128_characters(name: str) -> None:
    """The limit holds at construction and afterwards."""

    def made(value: object) -> ServiceBusMessage:
        arguments: dict[str, Any] = {name: value}
        return ServiceBusMessage("x", **arguments)

    assert getattr(made("a" * 128), name) == "a" * 128
    with pytest.raises(ValueError, match=f"{name} has 129 characters"):
        made("a" * 129)
    with pytest.raises(ValueError, match="129"):
        setattr(ServiceBusMessage("x"), name, "a" * 129)
    with pytest.raises(TypeError, match=f"{name} is float"):
        made(0.5)


@pytest.mark.parametrize("body", [[b"x"], {"a": 1}, 5, object()])
def test_a_body_is_text_bytes_or_nothing(body: object) -> None:
    """The application encodes other types."""
    with pytest.raises(TypeError, match="message body is"):
        ServiceBusMessage(body)  # type: ignore[arg-type]  # that is the test


def test_time_to_live_is_a_duration_or_seconds() -> None:
    """No time to live is infinite or negative."""
    assert ServiceBusMessage("x", time_to_live=5).time_to_live == timedelta(seconds=5)
    assert ServiceBusMessage("x", time_to_live=timedelta(milliseconds=1)).time_to_live == timedelta(milliseconds=1)
    with pytest.raises(ValueError, match="time_to_live"):
        ServiceBusMessage("x", time_to_live=-1)


def test_naive_times_are_utc() -> None:
    """azure.servicebus does the same."""
    message = ServiceBusMessage("x", scheduled_enqueue_time_utc=datetime(2030, 1, 1))  # noqa: DTZ001 - naive on purpose
    assert message.scheduled_enqueue_time_utc == datetime(2030, 1, 1, tzinfo=timezone.utc)


def test_a_received_message_knows_its_delivery() -> None:
    """It has token, lock, count, number and times, each from the record and the claim."""
    message = received(message_id="m")
    assert message.lock_token == LockToken(0xAB, 3, 7).to_uuid()
    assert message.locked_until_utc == datetime(1970, 1, 1, 0, 1, 1, tzinfo=timezone.utc)
    assert (message.delivery_count, message.sequence_number) == (2, (3 << 48) | 8)
    assert message.enqueued_time_utc == datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert message.expires_at_utc is None
    assert received(time_to_live="5000").expires_at_utc == datetime(1970, 1, 1, 0, 0, 6, tzinfo=timezone.utc)


def test_a_received_message_survives_pickling() -> None:
    """It keeps its changes, its token and its state, so that it can be settled and sent again elsewhere."""
    message = received(message_id="m", subject="1st", application_properties='{"a":"b"}')
    message.subject = "2nd"
    assert message.application_properties == {b"a": b"b"}
    copy = pickle.loads(pickle.dumps(message))  # noqa: S301 - our own
    assert (str(copy), copy.subject, copy.lock_token) == ("body", "2nd", message.lock_token)
    assert copy._to_outgoing() == message._to_outgoing()


def test_a_batch_counts_what_limits_count() -> None:
    """Body, key and headers count. A message that does not fit changes nothing."""
    batch = ServiceBusMessageBatch(200)
    assert (batch.max_size_in_bytes, batch.size_in_bytes, len(batch)) == (200, 0, 0)
    batch.add_message(ServiceBusMessage("12345", message_id="m", partition_key="k"))
    size = 5 + 1 + len("sb-message-idmsb-partition-keyk")
    assert (batch.size_in_bytes, len(batch)) == (size, 1)
    with pytest.raises(MessageSizeExceededError, match=f"with {size} of 200 bytes"):
        batch.add_message({"body": "x" * 200})
    assert (batch.size_in_bytes, len(batch)) == (size, 1)
    assert ServiceBusMessageBatch().max_size_in_bytes == 1024 * 1024


def test_every_error_survives_pickling_and_hangs_under_one_root() -> None:
    """Only MessageAlreadySettled is a ValueError alone, as in azure.servicebus."""
    for name, kind in vars(exceptions).items():
        if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == exceptions.__name__:
            error = kind("what happened")
            copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
            assert (type(copy), str(copy)) == (kind, "what happened")
            assert issubclass(kind, exceptions.ServiceBusError) != (name == "MessageAlreadySettled")


def test_logs_read_like_those_of_azure_servicebus() -> None:
    """They have the same fields in the same order, but only the beginning of a long body."""
    settings: dict[str, Any] = {
        "application_properties": {"a": 1},
        "session_id": "s",
        "message_id": "m",
        "content_type": "text/plain",
        "correlation_id": "c",
        "to": "t",
        "reply_to": "r",
        "reply_to_session_id": "rs",
        "subject": "about",
        "time_to_live": timedelta(seconds=4),
        "partition_key": "s",
        "scheduled_enqueue_time_utc": datetime(2030, 1, 1, tzinfo=timezone.utc),
    }
    assert repr(ServiceBusMessage("body", **settings)) == repr(azure.ServiceBusMessage("body", **settings))
    assert repr(ServiceBusMessage(b"\xff")).startswith(
        "ServiceBusMessage(body=\ufffd, application_properties=None, session_id=None"
    )
    assert "body=" + 200 * "x" + "… (1000 bytes), " in repr(ServiceBusMessage(1000 * "x"))


def test_a_received_message_shows_how_it_stands() -> None:
    """Number, deliveries, lock and state follow the fields of a sent message."""
    shown = repr(received(session_id="s"))
    order = ["body=body", "session_id=s", "auto_renew_error=None", "dead_letter_reason=None"]
    order += ["delivery_count=2", "sequence_number=844424930131976", "lock_token=", "locked_until_utc=", "state="]
    places = [shown.find(one) for one in order]
    assert -1 not in places
    assert places == sorted(places)
