"""Messages to send, received messages, and batches; shared by the blocking and the asyncio client."""

from __future__ import annotations

import contextlib
import random
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, TypeGuard

from kafkabus._core.amqp_encoding import milliseconds_of, plain_value, sections_of, to_annotated_message
from kafkabus._core.amqp_message import AmqpAnnotatedMessage, AmqpMessageBodyType
from kafkabus._core.compatibility import warn_unsupported
from kafkabus._core.delivery import Delivery
from kafkabus._core.exceptions import MessageSizeExceededError, NamespaceFormatError
from kafkabus._core.raw_message import (
    OF_THE_BROKER,
    PEEKED_LOCKED_UNTIL,
    POSTPONED_UNTIL,
    Identifier,
    RawMessage,
    identifier_in,
    text_of,
)
from kafkabus._core.receipt import Receipt
from kafkabus._core.record import Record, StoredRecord, as_bytes, place_of
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp_values import check_properties, check_value, field_value
from kafkabus_mapping.codec import (
    MAX_IDENTIFIER,
    Envelope,
    Headers,
    decode_headers,
    encode_headers,
    from_milliseconds,
    join_sections,
    record_size,
    split_sections,
    to_milliseconds,
)
from kafkabus_mapping.entities import FOREVER
from kafkabus_mapping.error_text import ErrorText, Term
from kafkabus_mapping.formats import needs_latest
from kafkabus_mapping.headers import BODY_TYPE, DATA_SECTIONS
from kafkabus_mapping.numbers import LockToken, sequence_number
from kafkabus_mapping.properties import PropertyValue, decode_value, encode_value

MAX_BATCH_BY_HAND = 1024 * 1024
"""Default limit of a batch that no sender made, in bytes."""

SHOWN = 200
"""How much of a body ``repr`` shows, in characters."""

ApplicationProperties = dict[str | bytes, PropertyValue]


class ServiceBusMessageState(IntEnum):
    """The state of a message."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class Outgoing(NamedTuple):
    """A message as it will be produced, but for its partition.

    Attributes:
        envelope: Its properties, for the key rules.
        value: Its body.
        headers: Its encoded properties.
        size: Body, key, header names and values, in bytes.
    """

    envelope: Envelope
    value: bytes | None
    headers: Headers
    size: int


def in_first_format(outgoing: Outgoing, namespace: str) -> Outgoing:
    """Return a message as a namespace of the first format can store it: its data sections are joined.

    Args:
        outgoing: The message.
        namespace: The name of the namespace, for the error.

    Raises:
        NamespaceFormatError: A decimal is among the application properties.
    """
    check_first_format(outgoing.envelope.application_properties or {}, namespace)
    if outgoing.envelope.data_sections is None:
        return outgoing
    envelope = replace(outgoing.envelope, data_sections=None)
    return outgoing._replace(
        envelope=envelope, headers=[header for header in outgoing.headers if header[0] != DATA_SECTIONS]
    )


def check_first_format(properties: Mapping[Any, PropertyValue], namespace: str) -> None:
    """Check that a namespace of the first format can store application properties.

    Raises:
        NamespaceFormatError: A decimal is among them.
    """
    if any(isinstance(value, Decimal) for value in properties.values()):
        raise NamespaceFormatError(needs_latest("a decimal among the application properties", namespace))


class LegacyMessage:
    """A message as older versions of ``azure.servicebus`` showed it.

    Attributes:
        delivery_tag: The lock token's 16 bytes, the first three fields with their lowest byte first; None without a lock.
    """

    def __init__(self, raw: AmqpAnnotatedMessage, delivery_tag: bytes | None) -> None:
        self._raw = raw
        self.delivery_tag = delivery_tag

    def __getattr__(self, name: str) -> Any:
        """Return ``header``, ``properties``, ``annotations`` or another attribute of ``raw_amqp_message``."""
        return getattr(self._raw, name)


class LegacyBatchMessage:
    """A batch as older versions of ``azure.servicebus`` showed it.

    Attributes:
        batch_format: The message format of an AMQP transfer that carries it.
        max_message_length: The limit of the whole batch, in bytes.
        size_offset: 0.
    """

    batch_format = 0x80013700
    max_message_length = MAX_BATCH_BY_HAND
    size_offset = 0

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        self._messages = list(messages)

    @property
    def data(self) -> Iterator[bytes]:
        """Each message in AMQP 1.0's encoding."""
        made = (ServiceBusMessage._create(message.envelope, message.value) for message in self._messages)
        return (encode_sections(sections_of(message.raw_amqp_message)) for message in made)


class ServiceBusMessage:
    """A message to send.

    Args:
        body: Text (sent as UTF-8), bytes, or None for no body at all.
        application_properties: The application's own properties: text keys, simple values.
        session_id: Up to 128 characters; the partition key of a message in a session.
        message_id: Up to 128 characters, or a UUID, bytes, or a number; 32 random hexadecimal digits by default, or if it is
            empty.
        scheduled_enqueue_time_utc: When the message becomes receivable; at once by default. Naive times are UTC.
        time_to_live: How long it may be received, as a timedelta or in whole seconds; the entity's by default, or if it is 0.
        content_type: MIME type of the body, in ASCII.
        correlation_id: Free text, or a UUID, bytes, or a number.
        subject: Free text.
        partition_key: Up to 128 characters; equal keys share a partition and so keep their order.
        to: Not interpreted.
        reply_to: Not interpreted.
        reply_to_session_id: Up to 128 characters.
        **unsupported: Named in a warning.

    Raises:
        TypeError: The body or a property is of a type that no message carries.
        ValueError: An identifier is longer than 128 characters, session id and partition key differ, or the content type is
            not ASCII.
    """

    __slots__ = ("_lives_from", "_own_body", "_own_envelope", "_raw")

    _shown: ClassVar[tuple[str, ...]] = (
        *("application_properties", "session_id", "message_id", "content_type", "correlation_id", "to", "reply_to"),
        *("reply_to_session_id", "subject", "time_to_live", "partition_key", "scheduled_enqueue_time_utc"),
    )
    """Attributes that ``repr`` shows beside the body, in the order in which azure.servicebus shows them."""
    _lives_from: int
    _own_body: bytes | None
    _own_envelope: Envelope | None
    _raw: RawMessage | None

    def __init__(
        self,
        body: str | bytes | None,
        *,
        application_properties: Mapping[str | bytes, PropertyValue] | None = None,
        session_id: str | None = None,
        message_id: Identifier | None = None,
        scheduled_enqueue_time_utc: datetime | None = None,
        time_to_live: timedelta | int | None = None,
        content_type: str | None = None,
        correlation_id: Identifier | None = None,
        subject: str | None = None,
        partition_key: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        reply_to_session_id: str | None = None,
        **unsupported: object,
    ) -> None:
        if unsupported:
            warn_unsupported(unsupported)
        if body is None or type(body) is bytes:
            self._own_body = body
        elif isinstance(body, str):
            self._own_body = body.encode()
        elif isinstance(body, (bytes, bytearray)):
            self._own_body = bytes(body)
        else:
            raise TypeError(f"message body is {type(body).__name__}: use str, bytes or None (json.dumps it yourself)")
        self._raw = None
        self._own_envelope = Envelope(
            _message_id(message_id) if isinstance(message_id, str) else None,
            None if session_id is None else _identifier("session_id", session_id),
            None,
            correlation_id if isinstance(correlation_id, str) else None,
            None if subject is None else _text("subject", subject),
            None if content_type is None else _content_type(content_type),
            None if to is None else _text("to", to),
            None if reply_to is None else _text("reply_to", reply_to),
            None if reply_to_session_id is None else _identifier("reply_to_session_id", reply_to_session_id),
            None,
            None,
            application_properties,
        )
        if message_id is not None and not isinstance(message_id, str):
            self.message_id = message_id
        if correlation_id is not None and not isinstance(correlation_id, str):
            self.correlation_id = correlation_id
        if partition_key is not None:
            self.partition_key = partition_key
        if time_to_live is not None:
            self.time_to_live = time_to_live
        if scheduled_enqueue_time_utc is not None:
            self.scheduled_enqueue_time_utc = scheduled_enqueue_time_utc

    @classmethod
    def _create(cls, envelope: Envelope, body: bytes | None) -> ServiceBusMessage:
        message = ServiceBusMessage(body)
        message._own_envelope = replace(envelope)
        message._lives_from = round(time.time() * 1000)
        return message

    @property
    def _body(self) -> bytes | None:
        return self._own_body

    @property
    def _envelope(self) -> Envelope:
        envelope = self._own_envelope
        if envelope is None:
            envelope = self._own_envelope = self._decode_envelope()
        if self._raw is not None:
            self._raw.write_to(envelope)
        return envelope

    def _put(self, name: str, value: Any) -> None:
        """Set a field of the envelope, other than an identifier or the time to live."""
        setattr(self._envelope, name, value)
        if self._raw is not None:
            self._raw.put(name, value)

    def _identifier(self, name: str) -> Any:
        """Return an identifier as it was given."""
        envelope = self._envelope
        if self._raw is not None:
            return self._raw.identifier(name)
        return getattr(envelope, name) if envelope.amqp is None else identifier_in(envelope, name)

    def _identify(self, name: str, value: Identifier | None) -> None:
        """Set an identifier."""
        text = None if value is None else text_of(name, value)
        envelope = self._envelope
        setattr(envelope, name, text)
        if text != value or self._raw is not None or envelope.amqp is not None:
            self._as_raw().put(name, value)

    def _decode_envelope(self) -> Envelope:
        raise RuntimeError("a message that was not received has an envelope from the start")

    def __str__(self) -> str:
        kind, value = self._decoded_body()
        if self._body is None:
            return ""
        return str(value) if kind is not AmqpMessageBodyType.DATA else self._body.decode()

    def __repr__(self) -> str:
        shown = [f"body={_shown_body(self)}", *(f"{name}={getattr(self, name)}" for name in self._shown)]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def _body_marks(self) -> tuple[str | None, str | None]:
        """``sequence`` or ``value`` if the body is JSON, else None; and ``Envelope.data_sections``."""
        envelope = self._envelope
        return envelope.body_type, envelope.data_sections

    @property
    def body(self) -> Any:
        """The body: for ``DATA`` an iterator of its sections, for ``SEQUENCE`` a list of lists, for ``VALUE`` the value.

        Join the sections, unless you know their borders.

        A body that is marked as one of the latter two and cannot be decoded, as of a foreign producer, is given as bytes.
        """
        return self._decoded_body()[1]

    def _decoded_body(self) -> tuple[AmqpMessageBodyType, Any]:
        """Return the body, and its kind; bytes that are not what they are marked as are bytes."""
        content, (kind, data_sections) = self._body, self._body_marks
        if content is None:
            return AmqpMessageBodyType.VALUE, None
        if kind is not None:
            with contextlib.suppress(ValueError):
                value = plain_value(decode_value(content))
                if kind != "sequence":
                    return AmqpMessageBodyType.VALUE, value
                if isinstance(value, list) and all(isinstance(part, list) for part in value):
                    return AmqpMessageBodyType.SEQUENCE, value
        return AmqpMessageBodyType.DATA, iter(split_sections(content, data_sections))

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """``DATA``, ``SEQUENCE`` or ``VALUE``; ``VALUE`` also if there is no body."""
        return self._decoded_body()[0]

    @property
    def _raw_body(self) -> Any:
        """The body as an AMQP message has it: bytes, lists or a value."""
        kind, value = self._decoded_body()
        return list(value) if kind is AmqpMessageBodyType.DATA else value

    @property
    def raw_amqp_message(self) -> AmqpAnnotatedMessage:
        """The message as AMQP has it, a view of this message: values set there are sent and show here, and vice versa."""
        return self._as_raw()

    def _as_raw(self) -> RawMessage:
        if self._raw is None:
            self._raw = self._make_raw()
        return self._raw

    def _make_raw(self) -> RawMessage:
        return RawMessage(self, self._envelope, as_bytes=False, created_ms=self._created_ms)

    @property
    def _created_ms(self) -> int:
        """When it got its time to live, ms since 1970; 0 if it has none."""
        return 0 if self._envelope.time_to_live is None else self._lives_from

    @property
    def message(self) -> LegacyMessage:
        """The message as older versions of ``azure.servicebus`` showed it; use ``raw_amqp_message`` instead."""
        warnings.warn("message is deprecated; use raw_amqp_message and lock_token", DeprecationWarning, stacklevel=2)
        return LegacyMessage(self.raw_amqp_message, self._delivery_tag)

    @property
    def _delivery_tag(self) -> bytes | None:
        return None

    @property
    def message_id(self) -> Any:
        """A text of up to 128 characters, or the UUID, bytes or number that it was set to; 32 random digits unless set."""
        if self._envelope.message_id is None:
            self._identify("message_id", self._made_up_id())
        return self._identifier("message_id")

    @message_id.setter
    def message_id(self, value: Identifier | None) -> None:
        self._identify("message_id", None if _message_id(value) is None else value)

    def _made_up_id(self) -> str | None:
        return _random_id()

    @property
    def session_id(self) -> str | None:
        """Up to 128 characters; None outside sessions."""
        return self._envelope.session_id

    @session_id.setter
    def session_id(self, value: str | None) -> None:
        self._put("session_id", None if value is None else _identifier("session_id", value))

    @property
    def partition_key(self) -> str | None:
        """Up to 128 characters; messages with equal keys share a partition."""
        return self._envelope.partition_key

    @partition_key.setter
    def partition_key(self, value: str | None) -> None:
        checked = None if value is None else _identifier("partition_key", value)
        _check_keys(checked, self._envelope.session_id)
        self._put("partition_key", checked)

    @property
    def correlation_id(self) -> Any:
        """Free text, or the UUID, bytes or number that it was set to."""
        return self._identifier("correlation_id")

    @correlation_id.setter
    def correlation_id(self, value: Identifier | None) -> None:
        self._identify("correlation_id", value)

    @property
    def subject(self) -> str | None:
        """Free text, called label in older clients."""
        return self._envelope.subject

    @subject.setter
    def subject(self, value: str | None) -> None:
        self._put("subject", _text("subject", value))

    @property
    def content_type(self) -> str | None:
        """MIME type of the body, in ASCII."""
        return self._envelope.content_type

    @content_type.setter
    def content_type(self, value: str | None) -> None:
        self._put("content_type", _content_type(value))

    @property
    def to(self) -> str | None:
        """Not interpreted."""
        return self._envelope.to

    @to.setter
    def to(self, value: str | None) -> None:
        self._put("to", _text("to", value))

    @property
    def reply_to(self) -> str | None:
        """Not interpreted."""
        return self._envelope.reply_to

    @reply_to.setter
    def reply_to(self, value: str | None) -> None:
        self._put("reply_to", _text("reply_to", value))

    @property
    def reply_to_session_id(self) -> str | None:
        """Up to 128 characters."""
        return self._envelope.reply_to_session_id

    @reply_to_session_id.setter
    def reply_to_session_id(self, value: str | None) -> None:
        self._put("reply_to_session_id", None if value is None else _identifier("reply_to_session_id", value))

    @property
    def time_to_live(self) -> timedelta | None:
        """How long after it was enqueued the message may be received; None: the entity's default. Setting 0 sets None."""
        return self._envelope.time_to_live

    @time_to_live.setter
    def time_to_live(self, value: timedelta | int | None) -> None:
        duration = value if value is None or isinstance(value, timedelta) else timedelta(seconds=int(value))
        if duration is not None and duration < timedelta(0):
            raise ValueError(f"time_to_live {duration}: give a positive duration, or None for the entity's default")
        self._envelope.time_to_live = duration or None
        self._lives_from = round(time.time() * 1000)
        if self._raw is not None:
            self._raw.put_time_to_live(duration or None, self._lives_from)

    @property
    def scheduled_enqueue_time_utc(self) -> datetime | None:
        """When the message becomes receivable, in UTC; None: at once."""
        return self._envelope.scheduled_enqueue_time_utc

    @scheduled_enqueue_time_utc.setter
    def scheduled_enqueue_time_utc(self, value: datetime | None) -> None:
        if value is not None and not isinstance(value, datetime):
            raise TypeError(f"scheduled_enqueue_time_utc is {type(value).__name__}: use datetime")
        aware = value if value is None or value.tzinfo else value.replace(tzinfo=timezone.utc)
        self._put("scheduled_enqueue_time_utc", aware)

    @property
    def application_properties(self) -> ApplicationProperties | None:
        """The application's own properties, or None."""
        properties = self._envelope.application_properties
        if properties is not None and not isinstance(properties, dict):
            properties = self._envelope.application_properties = dict(properties)
        return properties

    @application_properties.setter
    def application_properties(self, value: Mapping[str | bytes, PropertyValue] | None) -> None:
        self._envelope.application_properties = value

    def _to_outgoing(self) -> Outgoing:
        """Return the message as it will be produced; a message without an id gets a random one.

        Raises:
            PropertyRuleError: An application property cannot be carried.
            ValueError: A text holds half of a surrogate pair, or AMQP cannot carry a number, a duration or a symbol.
        """
        return self._encode(self._envelope)

    def _encode(self, envelope: Envelope) -> Outgoing:
        if envelope.message_id is None:
            envelope.message_id = _random_id()
            if self._raw is not None:
                self._raw.put("message_id", envelope.message_id)
        if self._raw is not None:
            _check_raw(envelope)
            envelope.amqp = self._raw.encode_carried()
            self._raw.check()
        if envelope.application_properties:
            check_properties(envelope.application_properties)
        headers = encode_headers(envelope)
        key = envelope.session_id or envelope.partition_key
        return Outgoing(envelope, self._body, headers, record_size(self._body, key, headers))


class ServiceBusReceivedMessage(ServiceBusMessage):
    """A message as it was received; receivers make these, applications do not.

    An application may change its properties and send it again. It can be pickled; the unpickled message can be settled and
    sent like the original.
    """

    __slots__ = (
        "_properties",
        "_receipt",
        "auto_renew_error",
    )

    _shown = (
        *ServiceBusMessage._shown,
        *("auto_renew_error", "dead_letter_error_description", "dead_letter_reason", "dead_letter_source"),
        *("delivery_count", "enqueued_sequence_number", "enqueued_time_utc", "expires_at_utc", "sequence_number"),
        *("lock_token", "locked_until_utc", "peeked_locked_until_utc", "postponed_until_utc", "state"),
    )

    def __init__(self, record: Record, delivery: Delivery) -> None:
        self._receipt = Receipt(record, delivery)
        self._own_envelope = None
        self._raw = None
        self._properties: ApplicationProperties | None = None
        self.auto_renew_error: Exception | None = None

    @classmethod
    def from_bytes(cls, message: bytes) -> ServiceBusReceivedMessage:
        """Return the message that AMQP 1.0 encodes in these bytes; tools and functions are given messages in this form.

        The message can be read, or sent again. No receiver has it, so it cannot be settled, and its lock cannot be renewed.
        Values that the bytes do not contain are None, such as sequence number, lock token and the time it was enqueued.

        Args:
            message: The bytes of all of its sections.

        Raises:
            TypeError: The argument is not bytes.
            ValueError: The argument is empty, or no AMQP 1.0 message.
        """
        return decoded_message(message)

    def __reduce__(self) -> tuple[object, ...]:
        if self._raw is not None:
            self._envelope.amqp = self._raw.encode_carried()
        receipt = self._receipt
        state = (self._own_envelope, self._properties, receipt.is_settled, receipt.lock_until)
        return _restore, (StoredRecord.copy(receipt.record), receipt.delivery, state)

    @property
    def _body(self) -> bytes | None:
        return self._receipt.body

    @property
    def _body_marks(self) -> tuple[str | None, str | None]:
        # Most applications look at the body first: that needs no decoding of the other headers.
        if self._own_envelope is not None:
            return self._own_envelope.body_type, self._own_envelope.data_sections
        kind = data_sections = None
        for name, value in self._receipt.record.headers() or ():
            if name == BODY_TYPE and value is not None:
                kind = value.decode(errors="replace")
            elif name == DATA_SECTIONS and value is not None:
                data_sections = value.decode(errors="replace")
        return kind, data_sections

    def _make_raw(self) -> RawMessage:
        annotations = {
            "x-opt-enqueued-time": to_milliseconds(self.enqueued_time_utc),
            "x-opt-sequence-number": self.sequence_number,
            "x-opt-enqueue-sequence-number": self.enqueued_sequence_number,
            "x-opt-locked-until": None if self.locked_until_utc is None else to_milliseconds(self.locked_until_utc),
            "x-opt-message-state": int(self.state),
            "x-opt-deadletter-source": self.dead_letter_source,
            POSTPONED_UNTIL: self._receipt.delivery.postponed_until,
            PEEKED_LOCKED_UNTIL: self._receipt.delivery.locked_until,
        }
        return RawMessage(
            self,
            self._envelope,
            as_bytes=True,
            created_ms=self._created_ms,
            header={"delivery_count": self.delivery_count},
            annotations={name: value for name, value in annotations.items() if value is not None},
            delivery_annotations={} if self.lock_token is None else {"x-opt-lock-token": self.lock_token},
        )

    @property
    def _created_ms(self) -> int:
        # The log does not keep the time when its sender made it.
        return self._receipt.record.timestamp()[1]

    @property
    def _delivery_tag(self) -> bytes | None:
        token = self.lock_token
        return None if token is None else token.bytes_le

    def _decode_envelope(self) -> Envelope:
        record = self._receipt.record
        topic, partition, offset = place_of(record)
        return decode_headers(record.headers(), key=as_bytes(record.key()), place=f"{topic}/{partition}/{offset}")

    def _replace_body(self, body: bytes) -> None:
        """Give the message another body, to be sent again with it."""
        place, (key, _, headers), stamp = StoredRecord.copy(self._receipt.record)
        self._receipt.record = StoredRecord(place, (key, body, headers), stamp)
        self._envelope.body_type = self._envelope.data_sections = None

    def _to_outgoing(self) -> Outgoing:
        # The notes of a transfer belong to the copy that it made, not to a message that is sent again.
        envelope = replace(
            self._envelope,
            dead_letter_reason=None,
            dead_letter_error_description=None,
            dead_letter_source=None,
            enqueued_sequence_number=None,
            transfer_source=None,
            hops=None,
        )
        if self._properties is not None:
            envelope.application_properties = _text_again(self._properties, envelope.application_properties or {})
        return self._encode(envelope)

    @property
    def application_properties(self) -> ApplicationProperties | None:
        """The application's properties: keys and text values are bytes, as in ``azure.servicebus``."""
        if self._properties is None:
            envelope = self._envelope
            self._properties = {
                key.encode() if isinstance(key, str) else key: _as_bytes(value)
                for key, value in (envelope.application_properties or {}).items()
            }
            if envelope.dead_letter_reason is not None:
                self._properties[b"DeadLetterReason"] = _as_bytes(envelope.dead_letter_reason)
            if envelope.dead_letter_error_description is not None:
                self._properties[b"DeadLetterErrorDescription"] = _as_bytes(envelope.dead_letter_error_description)
        return self._properties

    @application_properties.setter
    def application_properties(self, value: Mapping[str | bytes, PropertyValue] | None) -> None:
        self._properties = None if value is None else dict(value)
        self._envelope.application_properties = value

    @property
    def state(self) -> ServiceBusMessageState:
        """The state of the message when it was received or peeked."""
        if self._receipt.delivery.scheduled:
            return ServiceBusMessageState.SCHEDULED
        return ServiceBusMessageState.DEFERRED if self._receipt.delivery.deferred else ServiceBusMessageState.ACTIVE

    @property
    def postponed_until_utc(self) -> datetime | None:
        """When a peeked message can be received again that was abandoned with a delay; None if it is not postponed.

        Its state is ``ACTIVE``, as the service has no such messages.
        """
        until = self._receipt.delivery.postponed_until
        return None if until is None else from_milliseconds(until)

    @property
    def peeked_locked_until_utc(self) -> datetime | None:
        """Until when a receiver has a peeked message locked, on the ledger's clock; None if none has.

        Its ``locked_until_utc`` is None, as the lock is not the peeking receiver's.
        """
        until = self._receipt.delivery.locked_until
        return None if until is None else from_milliseconds(until)

    @property
    def delivery_count(self) -> int:
        """How often it was delivered before, unsuccessfully."""
        return self._receipt.delivery.count

    @property
    def sequence_number(self) -> int:
        """Its number in its entity: the partition in the upper 16 bits, increasing within it."""
        return sequence_number(self._receipt.delivery.partition, self._receipt.offset)

    @property
    def enqueued_sequence_number(self) -> int | None:
        """The number that it had in the entity where it was first enqueued."""
        number = self._envelope.enqueued_sequence_number
        return self.sequence_number if number is None else number

    @property
    def enqueued_time_utc(self) -> datetime:
        """When the broker stored it, in UTC."""
        return from_milliseconds(self._receipt.record.timestamp()[1])

    @property
    def expires_at_utc(self) -> datetime | None:
        """When it can no longer be received: the time it was enqueued plus its time to live; None if it never expires."""
        lives = self._receipt.delivery.time_to_live
        if self.time_to_live is not None:
            lives = min(lives, self.time_to_live)
        try:
            return self.enqueued_time_utc + lives
        except OverflowError:
            return None

    @property
    def lock_token(self) -> uuid.UUID | None:
        """The token of this delivery; None if nothing is locked, and after settlement.

        It is made of the lease id, the partition and the offset. To settle the message, the ledger checks the lease
        (``_ledger/lua/settle.lua``, ``select_held``).
        """
        receipt = self._receipt
        delivery = receipt.delivery
        if receipt.is_settled or not delivery.lease:
            return None
        return LockToken(int(delivery.lease, 16), delivery.partition, receipt.offset).to_uuid()

    @property
    def locked_until_utc(self) -> datetime | None:
        """When the lock expires, in UTC, on the ledger's clock.

        None if nothing is locked, after settlement, and in a session, whose lock is for all of its messages.
        """
        receipt = self._receipt
        if receipt.is_settled or not receipt.delivery.lease or receipt.delivery.session:
            return None
        return from_milliseconds(receipt.lock_until)

    @property
    def dead_letter_reason(self) -> str | None:
        """Why it was dead-lettered."""
        return self._envelope.dead_letter_reason

    @property
    def dead_letter_error_description(self) -> str | None:
        """Why it was dead-lettered, in more words."""
        return self._envelope.dead_letter_error_description

    @property
    def dead_letter_source(self) -> str | None:
        """The entity that it was dead-lettered from."""
        return self._envelope.dead_letter_source


class ServiceBusMessageBatch:
    """Messages that are sent together, within a size limit.

    Args:
        max_size_in_bytes: Limit of the batch, body, keys and headers counted; default 1 MiB.
    """

    def __init__(self, max_size_in_bytes: int | None = None) -> None:
        self._limit = MAX_BATCH_BY_HAND if max_size_in_bytes is None else max_size_in_bytes
        self._size = 0
        self._messages: list[Outgoing] = []

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"ServiceBusMessageBatch({len(self)} messages, {self._size} of {self._limit} bytes)"

    @property
    def max_size_in_bytes(self) -> int:
        """The limit, in bytes."""
        return self._limit

    @property
    def size_in_bytes(self) -> int:
        """Size of the added messages, in bytes; 0 for an empty batch."""
        return self._size

    @property
    def message(self) -> LegacyBatchMessage:
        """The batch as older versions of ``azure.servicebus`` showed it; send the batch itself."""
        warnings.warn("message is deprecated; send the batch itself", DeprecationWarning, stacklevel=2)
        return LegacyBatchMessage(self._messages)

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, object]) -> None:
        """Add a message.

        Args:
            message: A message, or a mapping of ``ServiceBusMessage``'s arguments.

        Raises:
            MessageSizeExceededError: The message does not fit; the batch stays as it was.
            TypeError: The argument is no message.
        """
        outgoing = as_message(message)._to_outgoing()
        if self._size + outgoing.size > self._limit:
            if not self._messages:
                raise MessageSizeExceededError(
                    f"a message of {outgoing.size} bytes, properties included: {self._limit} are allowed; shorten it"
                )
            raise MessageSizeExceededError(
                f"a message of {outgoing.size} bytes does not fit into a batch with {self._size} of {self._limit} bytes: "
                "send the batch and begin another"
            )
        self._size += outgoing.size
        self._messages.append(outgoing)


def batch_of(messages: Sequence[Outgoing]) -> ServiceBusMessageBatch:
    """Return a batch of messages that are encoded already; the sender checks their size."""
    batch = ServiceBusMessageBatch()
    batch._messages += messages
    batch._size = sum(message.size for message in messages)
    return batch


def _shown_body(message: ServiceBusMessage) -> str:
    """Return a body as ``repr`` shows it: as text, and only its beginning."""
    content = message._body
    if content is None:
        return "None"
    kind, value = message._decoded_body()
    text = content[: 4 * SHOWN].decode(errors="replace") if kind is AmqpMessageBodyType.DATA else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(content)} bytes)"


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether something has keys and items."""
    return isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "__getitem__"))


def as_message(message: object) -> ServiceBusMessage:
    """Return a message as it is, or one made of an AMQP message or of a mapping of ``ServiceBusMessage``'s arguments.

    Raises:
        TypeError: The argument is none of these.
    """
    if isinstance(message, ServiceBusMessage):
        return message
    if isinstance(message, AmqpAnnotatedMessage):
        return _from_amqp(message)
    if is_mapping(message):
        # Anything with keys and items is a mapping, as in azure.servicebus; it need not inherit from Mapping.
        arguments: dict[str, Any] = {key: message[key] for key in message.keys()}  # noqa: SIM118 - it may not be iterable
        if "body" not in arguments:
            raise TypeError("a message given as a mapping needs the key 'body' (it may be None)")
        return ServiceBusMessage(**arguments)
    raise TypeError(
        f"{message!r:.80} is {type(message).__name__}, no message: send ServiceBusMessage, a mapping of its arguments, "
        "a list of these, or a ServiceBusMessageBatch"
    )


def _from_amqp(message: AmqpAnnotatedMessage) -> ServiceBusMessage:
    """Return a message with all that an AMQP message carries.

    Raises:
        TypeError: A value is of a type that it cannot have.
        ValueError: A value breaks a rule, or AMQP cannot carry it.
    """
    made = _make_unchecked(message)
    if not isinstance(message, RawMessage):
        _check_raw(made._envelope)
        if message.body_type is not AmqpMessageBodyType.DATA:
            check_value("the body", message.body)
    return made


def _make_unchecked(message: AmqpAnnotatedMessage) -> ServiceBusMessage:
    """Return a message with all that an AMQP message carries, although it may be none that could be sent."""
    if isinstance(message, RawMessage):
        whole: ServiceBusMessage = message.message
        return whole
    made = ServiceBusMessage(None, application_properties=message.application_properties)
    if message.body_type is AmqpMessageBodyType.DATA:
        made._own_body, made._envelope.data_sections = join_sections(message.pieces())
    elif message.body is not None:
        made._own_body = encode_value(message.body).encode()
        made._envelope.body_type = message.body_type.value
    raw = made._as_raw()
    # Copies, so that later changes of the one message do not change the other.
    raw.header = dict(message.header or {})
    raw.properties = dict(message.properties or {})
    raw.footer = dict(message.footer or {})
    raw.annotations = dict(message.annotations or {})
    raw.delivery_annotations = dict(message.delivery_annotations or {})
    return made


def _check_raw(envelope: Envelope) -> None:
    """Check values that were set through the AMQP message as strictly as those that are set through the message itself.

    Raises:
        TypeError: A property is of a wrong type.
        ValueError: An identifier is too long, or session id and partition key differ.
    """
    for name in ("session_id", "reply_to_session_id", "partition_key", "message_id"):
        value = getattr(envelope, name)
        if value is not None:
            _identifier(name, value)
    for name in ("to", "subject", "reply_to"):
        _text(name, getattr(envelope, name))
    _content_type(envelope.content_type)
    _check_keys(envelope.partition_key, envelope.session_id)


def _check_keys(partition_key: str | None, session_id: str | None) -> None:
    if partition_key is not None and session_id is not None and partition_key != session_id:
        raise ValueError(
            ErrorText(
                Term("partition_key"),
                f" {partition_key!r} differs from ",
                Term("session_id"),
                f" {session_id!r}: set both alike, or leave ",
                Term("partition_key"),
                " unset",
            )
        )


class _DecodedMessage(ServiceBusReceivedMessage):
    """A message decoded from bytes, whose annotations say what the broker did with it."""

    __slots__ = ("_sections",)

    def __init__(self, sections: Sections, made: ServiceBusMessage) -> None:
        super().__init__(StoredRecord(("", 0, 0), (None, made._body, []), (0, 0)), _NO_DELIVERY)
        self._sections = sections
        self._own_envelope = made._envelope
        self._own_envelope.amqp = made._as_raw().encode_carried()
        self._own_envelope.dead_letter_source = self._annotation("x-opt-deadletter-source")
        said = sections.application_properties
        self._own_envelope.dead_letter_reason = said.get("DeadLetterReason")
        self._own_envelope.dead_letter_error_description = said.get("DeadLetterErrorDescription")

    def __reduce__(self) -> tuple[object, ...]:
        return decoded_message, (encode_sections(self._sections),)

    def _annotation(self, name: str) -> Any:
        return self._sections.message_annotations.get(name)

    def _moment(self, name: str) -> datetime | None:
        value = self._annotation(name)
        return value if isinstance(value, datetime) else None

    def _made_up_id(self) -> str | None:
        return None

    def _make_raw(self) -> RawMessage:
        found = self._sections
        annotations, delivery_annotations = (
            {name: milliseconds_of(value) for name, value in plain_value(part).items() if name in OF_THE_BROKER}
            for part in (found.message_annotations, found.delivery_annotations)
        )
        return RawMessage(
            self,
            self._envelope,
            as_bytes=True,
            created_ms=self._created_ms,
            header={"delivery_count": self._sections.header.get("delivery_count")},
            annotations=annotations,
            delivery_annotations=delivery_annotations,
        )

    @property
    def _created_ms(self) -> int:
        enqueued = self.enqueued_time_utc
        return 0 if enqueued is None else to_milliseconds(enqueued)

    @property
    def state(self) -> ServiceBusMessageState:
        """As its annotation says; active without one."""
        return ServiceBusMessageState(self._annotation("x-opt-message-state") or 0)

    @property
    def postponed_until_utc(self) -> datetime | None:
        """As its annotation says."""
        return self._moment(POSTPONED_UNTIL)

    @property
    def peeked_locked_until_utc(self) -> datetime | None:
        """As its annotation says."""
        return self._moment(PEEKED_LOCKED_UNTIL)

    @property
    def delivery_count(self) -> int:
        """As its header says."""
        return int(self._sections.header.get("delivery_count") or 0)

    @property
    def sequence_number(self) -> Any:
        """As its annotation says."""
        return plain_value(self._annotation("x-opt-sequence-number"))

    @property
    def enqueued_sequence_number(self) -> Any:
        """As its annotation says."""
        return plain_value(self._annotation("x-opt-enqueue-sequence-number"))

    @property
    def enqueued_time_utc(self) -> Any:
        """As its annotation says."""
        return self._moment("x-opt-enqueued-time")

    @property
    def locked_until_utc(self) -> datetime | None:
        """As its annotation says."""
        return self._moment("x-opt-locked-until")

    @property
    def expires_at_utc(self) -> datetime | None:
        """The time it was enqueued plus its time to live; None if it does not have both."""
        enqueued, lives = self.enqueued_time_utc, self.time_to_live
        try:
            return None if enqueued is None or lives is None else enqueued + lives
        except OverflowError:
            return None

    @property
    def lock_token(self) -> uuid.UUID | None:
        """As its delivery annotation says."""
        token = self._sections.delivery_annotations.get("x-opt-lock-token")
        return token if isinstance(token, uuid.UUID) else None


_NO_DELIVERY = Delivery("", 0, "", 0, 0, FOREVER)


def decoded_message(message: bytes) -> ServiceBusReceivedMessage:
    """Return a message; see ``ServiceBusReceivedMessage.from_bytes``."""
    if not isinstance(message, bytes):
        raise TypeError(f"message is {type(message).__name__}: give the bytes of an encoded AMQP 1.0 message")
    if not message:
        raise ValueError("message is empty: give the bytes of an encoded AMQP 1.0 message")
    try:
        sections = decode_sections(message)
        return _DecodedMessage(sections, _make_unchecked(to_annotated_message(sections)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"message is no AMQP 1.0 message that a ServiceBusMessage can be: {error}") from error


def _restore(
    record: StoredRecord,
    delivery: Delivery,
    state: tuple[Envelope | None, ApplicationProperties | None, bool, int],
) -> ServiceBusReceivedMessage:
    message = ServiceBusReceivedMessage(record, delivery)
    message._own_envelope, message._properties, message._receipt.is_settled, message._receipt.lock_until = state
    return message


def receipt_of(message: ServiceBusReceivedMessage) -> Receipt:
    """Return the receipt of a message, for the parts of a client that settle it."""
    return message._receipt


def envelope_of(message: ServiceBusMessage) -> Envelope:
    """Return the envelope of a message, with the changes that the application made."""
    return message._envelope


def replace_record(message: ServiceBusReceivedMessage, record: Record) -> None:
    """Have a message be of another record, from which its envelope is decoded when it is read next."""
    message._receipt.record = record
    message._own_envelope = None


def _random_id() -> str:
    # 128 random bits as uuid4().hex writes them, in an eighth of its time. An id has to be unique, not secret.
    return random.getrandbits(128).to_bytes(16, "big").hex()


def _identifier(name: str, value: object) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    if not isinstance(value, str):
        raise TypeError(f"{name} is {type(value).__name__}: use str")
    if len(value) > MAX_IDENTIFIER:
        raise ValueError(
            ErrorText(Term(name), f" has {len(value)} characters: the longest is {MAX_IDENTIFIER}; shorten or hash it")
        )
    return value


def _message_id(value: object) -> str | None:
    """Return a message id as text; None for an empty one, as in Azure's SDK: the message gets a random id instead.

    Two messages with an empty id would be duplicates of each other.
    """
    return None if value is None else _identifier("message_id", text_of("message_id", value)) or None


def _text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{name} is {type(value).__name__}: use str")


def _content_type(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"content_type is {type(value).__name__}: use str")
    return value if value.isascii() else str(field_value("content_type", value))


def _as_bytes(value: PropertyValue) -> PropertyValue:
    return value.encode() if isinstance(value, str) else value


def _text_again(
    properties: ApplicationProperties, original: Mapping[str | bytes, PropertyValue]
) -> dict[str | bytes, PropertyValue]:
    """Return the properties of a received message for sending: a value that came as text is sent as text, not as bytes."""
    texts = {_as_bytes(key): value for key, value in original.items()}
    return {
        key: texts[key] if key in texts and _as_bytes(texts[key]) == value else value
        for key, value in properties.items()
        if key not in {b"DeadLetterReason", b"DeadLetterErrorDescription"}
    }


MessageLike = ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]
"""One message, as a sender takes it: a message, or a mapping of its arguments."""


def outgoing_of(message: object, due: datetime | None = None) -> Sequence[Outgoing]:
    """Return the messages to send, checked and encoded; with a time, scheduled for then.

    Raises:
        TypeError: One of them is no message.
    """
    if isinstance(message, ServiceBusMessageBatch):
        return message._messages
    if isinstance(message, (ServiceBusMessage, AmqpAnnotatedMessage)) or is_mapping(message):
        outgoing = [_encode_item(message, due)]
    elif isinstance(message, Iterable) and not isinstance(message, (str, bytes)):
        outgoing = [_encode_item(item, due) for item in message]
    else:
        as_message(message)
        raise AssertionError("as_message takes only messages")
    return outgoing


def _encode_item(message: MessageLike, due: datetime | None) -> Outgoing:
    sendable = as_message(message)
    if due is None:
        return sendable._to_outgoing()
    before = sendable.scheduled_enqueue_time_utc
    sendable.scheduled_enqueue_time_utc = due
    try:
        outgoing = sendable._to_outgoing()
        return outgoing._replace(envelope=replace(outgoing.envelope))
    finally:
        sendable.scheduled_enqueue_time_utc = before
