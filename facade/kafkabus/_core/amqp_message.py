"""Messages as AMQP has them: any body, header, footer, annotations; ``kafkabus.amqp`` names them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

from kafkabus_mapping.field_access import FieldAccess


class AmqpMessageBodyType(str, Enum):
    """Kinds of AMQP bodies."""

    DATA = "data"
    SEQUENCE = "sequence"
    VALUE = "value"


class _Fields(FieldAccess):
    """Attributes that can also be used as a mapping; unset ones are None."""

    _NAMES: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names of the attributes."""
        return cls._NAMES

    def __repr__(self) -> str:
        present = {name: value for name, value in self.items() if value is not None}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in present.items())})"


class AmqpMessageHeader(_Fields):
    """An AMQP message's header.

    Attributes:
        delivery_count: How often the message was delivered before.
        time_to_live: The time to live, in milliseconds.
        durable: Carried.
        first_acquirer: Carried.
        priority: Carried.
    """

    _NAMES = ("delivery_count", "time_to_live", "durable", "first_acquirer", "priority")

    def __init__(
        self,
        *,
        delivery_count: int | None = None,
        time_to_live: int | None = None,
        durable: bool | None = None,
        first_acquirer: bool | None = None,
        priority: int | None = None,
    ) -> None:
        self.delivery_count = delivery_count
        self.time_to_live = time_to_live
        self.durable = durable
        self.first_acquirer = first_acquirer
        self.priority = priority


class AmqpMessageProperties(_Fields):
    """An AMQP message's properties.

    Attributes:
        message_id: The message's id.
        user_id: Carried.
        to: Carried.
        subject: Free text.
        reply_to: The address for replies.
        correlation_id: Free text.
        content_type: MIME type of the body.
        content_encoding: Carried.
        creation_time: Carried, ms since 1970.
        absolute_expiry_time: Carried, ms since 1970.
        group_id: The session id.
        group_sequence: Carried.
        reply_to_group_id: The session for replies.
    """

    _NAMES = (
        "message_id",
        "user_id",
        "to",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "content_encoding",
        "creation_time",
        "absolute_expiry_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
    )

    def __init__(
        self,
        *,
        message_id: str | bytes | UUID | int | None = None,
        user_id: str | bytes | None = None,
        to: str | bytes | None = None,
        subject: str | bytes | None = None,
        reply_to: str | bytes | None = None,
        correlation_id: str | bytes | UUID | int | None = None,
        content_type: str | bytes | None = None,
        content_encoding: str | bytes | None = None,
        creation_time: int | datetime | None = None,
        absolute_expiry_time: int | datetime | None = None,
        group_id: str | bytes | None = None,
        group_sequence: int | None = None,
        reply_to_group_id: str | bytes | None = None,
    ) -> None:
        self.message_id = message_id
        self.user_id = user_id
        self.to = to
        self.subject = subject
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.content_type = content_type
        self.content_encoding = content_encoding
        self.creation_time = creation_time
        self.absolute_expiry_time = absolute_expiry_time
        self.group_id = group_id
        self.group_sequence = group_sequence
        self.reply_to_group_id = reply_to_group_id


_UNSET: Any = object()


class AmqpAnnotatedMessage:
    """A message with everything that AMQP carries; senders take it as they take a ``ServiceBusMessage``.

    Args:
        data_body: Bytes or text, or a list of these, which is one body in several pieces.
        sequence_body: A list of values, or a list of such lists.
        value_body: Any value: None, texts, bytes, numbers, booleans, UUIDs, datetimes, and lists and mappings of these.
        header: Header, also as a mapping of its fields.
        footer: Carried.
        properties: Properties, also as a mapping of its fields.
        application_properties: The application's own.
        annotations: Carried; ``x-opt-partition-key`` is the partition key.
        delivery_annotations: Carried.

    Raises:
        ValueError: Not exactly one body is given.
    """

    def __init__(
        self,
        *,
        data_body: Any = _UNSET,
        sequence_body: Any = _UNSET,
        value_body: Any = _UNSET,
        header: AmqpMessageHeader | Mapping[str, Any] | None = None,
        footer: Mapping[Any, Any] | None = None,
        properties: AmqpMessageProperties | Mapping[str, Any] | None = None,
        application_properties: Mapping[Any, Any] | None = None,
        annotations: Mapping[Any, Any] | None = None,
        delivery_annotations: Mapping[Any, Any] | None = None,
    ) -> None:
        bodies = {
            AmqpMessageBodyType.DATA: data_body,
            AmqpMessageBodyType.SEQUENCE: sequence_body,
            AmqpMessageBodyType.VALUE: value_body,
        }
        given = [(kind, body) for kind, body in bodies.items() if body is not _UNSET]
        if len(given) != 1:
            raise ValueError(f"{len(given)} bodies: give exactly one of data_body, sequence_body and value_body")
        self._body_type, self._body = given[0]
        self._header: AmqpMessageHeader | None = None
        self._properties: AmqpMessageProperties | None = None
        self.header = header
        self.properties = properties
        self.application_properties = application_properties
        self.annotations = annotations
        self.delivery_annotations = delivery_annotations
        self.footer = footer

    @property
    def header(self) -> AmqpMessageHeader | None:
        """Its header; may be set to a mapping of its fields."""
        return self._header

    @header.setter
    def header(self, value: AmqpMessageHeader | Mapping[str, Any] | None) -> None:
        if value is None or isinstance(value, AmqpMessageHeader):
            self._header = value
        else:
            self._header = AmqpMessageHeader(**value)

    @property
    def properties(self) -> AmqpMessageProperties | None:
        """Its properties; may be set to a mapping of its fields."""
        return self._properties

    @properties.setter
    def properties(self, value: AmqpMessageProperties | Mapping[str, Any] | None) -> None:
        if value is None or isinstance(value, AmqpMessageProperties):
            self._properties = value
        else:
            self._properties = AmqpMessageProperties(**value)

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """The kind of the body."""
        return self._body_type

    @property
    def body(self) -> Any:
        """An iterator of bytes, a list of lists, or the value, by the kind of the body."""
        if self._body_type is AmqpMessageBodyType.DATA:
            return iter(self.pieces())
        if self._body_type is AmqpMessageBodyType.SEQUENCE:
            return self.sequences()
        return self._body

    def pieces(self) -> list[bytes]:
        """Return a data body's pieces.

        Raises:
            TypeError: A piece is neither text nor bytes.
        """
        given = self._body if isinstance(self._body, (list, tuple)) else [self._body]
        pieces: list[bytes] = []
        for piece in given:
            if not isinstance(piece, (str, bytes, bytearray)):
                raise TypeError(f"a piece of data_body is {type(piece).__name__}: use str or bytes")
            pieces.append(piece.encode() if isinstance(piece, str) else bytes(piece))
        return pieces

    def sequences(self) -> list[list[Any]]:
        """Return a sequence body's lists; a flat list counts as one.

        Raises:
            TypeError: The body is no list.
        """
        if not isinstance(self._body, (list, tuple)):
            raise TypeError(f"sequence_body is {type(self._body).__name__}: use a list")
        nested = bool(self._body) and all(isinstance(sequence, (list, tuple)) for sequence in self._body)
        return [list(sequence) for sequence in self._body] if nested else [list(self._body)]

    def __repr__(self) -> str:
        return f"AmqpAnnotatedMessage({self._body_type.value} body, properties={self.properties!r})"
