"""``raw_amqp_message``: a message as AMQP has it, a view of the message itself: values that are set there are sent."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from kafkabus._core.amqp_message import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from kafkabus_mapping.amqp.types import DecimalBits
from kafkabus_mapping.amqp_values import check_annotations, field_value
from kafkabus_mapping.codec import Envelope, from_milliseconds, to_milliseconds
from kafkabus_mapping.properties import decode_value, encode_value

PARTITION_KEY: Final = "x-opt-partition-key"
"""Annotation that is the partition key."""
SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
"""Annotation that is the scheduled time: a datetime, or milliseconds since 1970."""
POSTPONED_UNTIL: Final = "x-opt-kafkabus-postponed-until"
PEEKED_LOCKED_UNTIL: Final = "x-opt-kafkabus-locked-until"
"""The annotation of a peeked message that is postponed: the time before which it is not received again."""
OF_THE_BROKER: Final = frozenset(
    {
        POSTPONED_UNTIL,
        PEEKED_LOCKED_UNTIL,
        *("x-opt-enqueued-time", "x-opt-sequence-number", "x-opt-enqueue-sequence-number", "x-opt-locked-until"),
        *("x-opt-message-state", "x-opt-partition-id", "x-opt-deadletter-source", "x-opt-lock-token"),
    }
)
"""Annotations that say what the broker did with a message: they are not sent again."""
TEXTS: Final = {
    "to": "to",
    "subject": "subject",
    "reply_to": "reply_to",
    "content_type": "content_type",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
}
"""Fields of an envelope that are texts, with the AMQP properties that they are."""
IDENTIFIERS: Final = ("message_id", "correlation_id")
"""Fields of an envelope, and AMQP properties, that may be UUIDs, bytes and numbers."""
CARRIED_HEADER: Final = ("durable", "first_acquirer", "priority")
"""Fields of an AMQP header that are carried and mean nothing here."""
CARRIED_PROPERTIES: Final = ("user_id", "content_encoding", "creation_time", "absolute_expiry_time", "group_sequence")
"""Fields of AMQP properties that are carried and mean nothing here."""
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_MILLISECOND = timedelta(milliseconds=1)
_LARGEST = (1 << 64) - 1

Identifier = str | uuid.UUID | bytes | int
"""Types of a message id or a correlation id."""


class RawMessage(AmqpAnnotatedMessage):
    """A message as AMQP has it.

    Args:
        message: The message, which has the same body and application properties.
        envelope: The envelope of the message.
        as_bytes: Whether texts are bytes, as those of received messages are in ``azure.servicebus``.
        header: Fields of the header that the message does not carry itself.
        created_ms: When it got its time to live, ms since 1970.
        annotations: Annotations that say what the broker did with the message.
        delivery_annotations: Annotations that say what the broker did in this delivery.
    """

    def __init__(
        self,
        message: Any,
        envelope: Envelope,
        *,
        as_bytes: bool,
        created_ms: int,
        header: Mapping[str, Any] = NOTHING,
        annotations: Mapping[str, Any] = NOTHING,
        delivery_annotations: Mapping[str, Any] = NOTHING,
    ) -> None:
        carried = decode_carried(envelope)
        self._message = message
        self._as_bytes = as_bytes
        self._body_type, self._body = message.body_type, message._raw_body
        self._computed: dict[str, int] = {}
        self._header = AmqpMessageHeader(**{**header, **_select_known(carried, "header", CARRIED_HEADER)})
        self._properties = AmqpMessageProperties(**_select_known(carried, "properties", CARRIED_PROPERTIES))
        self.footer = _part(carried, "footer")
        self.annotations = {**self._show_names(annotations), **_drop_broker_annotations(_part(carried, "annotations"))}
        self.delivery_annotations = {
            **self._show_names(delivery_annotations),
            **_drop_broker_annotations(_part(carried, "delivery_annotations")),
        }
        self._binary: dict[str, bytes] = {}
        for name in (*TEXTS, "partition_key"):
            value = getattr(envelope, name)
            if value is not None:
                self.put(name, value)
        for name in IDENTIFIERS:
            self.put(name, identifier_in(envelope, name))
        if envelope.scheduled_enqueue_time_utc is not None:
            self.put("scheduled_enqueue_time_utc", envelope.scheduled_enqueue_time_utc)
        if envelope.time_to_live is not None:
            self.put_time_to_live(envelope.time_to_live, created_ms)

    @property
    def message(self) -> Any:
        """The message that this shows as AMQP has it."""
        return self._message

    @property
    def application_properties(self) -> Any:
        """The message's application properties."""
        return self._message.application_properties

    @application_properties.setter
    def application_properties(self, value: Any) -> None:
        self._message.application_properties = value

    def put(self, name: str, value: Any) -> None:
        """Note that a field of the envelope was set.

        Args:
            name: The field, other than ``time_to_live``.
            value: The new value; an identifier as it was given.
        """
        if name == "partition_key":
            self._annotate(PARTITION_KEY, self._show(value))
        elif name == "scheduled_enqueue_time_utc":
            shown = to_milliseconds(value) if self._as_bytes and value is not None else value
            self._annotate(SCHEDULED, shown)
        else:
            if isinstance(value, bytes):
                self._binary[name] = value
            else:
                self._binary.pop(name, None)
            setattr(self._fields(), TEXTS.get(name, name), self._show(value))

    def put_time_to_live(self, lives: timedelta | None, created_ms: int) -> None:
        """Note that the time to live was set.

        Args:
            lives: The time to live; None: the entity's default.
            created_ms: When it was set, ms since 1970.
        """
        if self._header is None:
            self._header = AmqpMessageHeader()
        fields = self._fields()
        if lives is None:
            self._header.time_to_live = fields.absolute_expiry_time = None
            return
        self._header.time_to_live = lives // _MILLISECOND
        computed = {"creation_time": created_ms, "absolute_expiry_time": created_ms + self._header.time_to_live}
        for name, value in computed.items():
            if getattr(fields, name) in (None, self._computed.get(name)):
                setattr(fields, name, value)
        self._computed = computed

    def write_to(self, envelope: Envelope) -> None:
        """Write the values that were set here to an envelope."""
        properties, header = self._properties, self._header
        for name, field in TEXTS.items():
            setattr(envelope, name, plain(getattr(properties, field, None)))
        for name in IDENTIFIERS:
            value = self.identifier(name)
            setattr(envelope, name, None if value is None else text_of(name, value))
        lives = None if header is None else header.time_to_live
        if lives != (None if envelope.time_to_live is None else envelope.time_to_live // _MILLISECOND):
            envelope.time_to_live = _duration(lives) if lives else None
        envelope.partition_key = plain(self._annotation(PARTITION_KEY))
        envelope.scheduled_enqueue_time_utc = _scheduled_time(self._annotation(SCHEDULED))

    def identifier(self, name: str) -> Any:
        """Return a message id or correlation id, as it was given."""
        value = getattr(self._properties, name, None)
        if value is None or (isinstance(value, bytes) and value == self._binary.get(name)):
            return value
        return plain(value)

    def encode_carried(self) -> str | None:
        """Return the text of the header that carries all values without a separate header; None if there are none.

        Raises:
            PropertyRuleError: A value is of a type that no message carries.
        """
        properties: dict[str, Any] = {name: getattr(self._properties, name, None) for name in CARRIED_PROPERTIES}
        for name, computed in self._computed.items():
            if properties[name] == computed:
                del properties[name]
        for name in IDENTIFIERS:
            value = self.identifier(name)
            if not isinstance(value, str):
                properties[name] = value
        parts: dict[str, dict[Any, Any]] = {
            "header": {name: getattr(self._header, name, None) for name in CARRIED_HEADER},
            "properties": properties,
            "footer": dict(self.footer or {}),
            "annotations": _drop_broker_annotations(self.annotations),
            "delivery_annotations": _drop_broker_annotations(self.delivery_annotations),
        }
        for name in ("header", "properties"):
            parts[name] = {key: value for key, value in parts[name].items() if value is not None}
        present = {name: part for name, part in parts.items() if part}
        return encode_value(present) if present else None

    def check(self) -> None:
        """Check that AMQP can carry the values that were set here and have no attribute of the message.

        Raises:
            TypeError: A field cannot have a value of that type, or AMQP has none for a value.
            ValueError: A value is out of its field's bounds, or a key or text that AMQP carries in ASCII is not ASCII.
        """
        for holder, names in ((self._header, CARRIED_HEADER), (self._properties, CARRIED_PROPERTIES)):
            for name in names:
                value = getattr(holder, name, None)
                if value is not None:
                    field_value(name, value)
        for part in ("annotations", "delivery_annotations", "footer"):
            check_annotations(part, _drop_broker_annotations(getattr(self, part)))

    def _fields(self) -> AmqpMessageProperties:
        if self._properties is None:
            self._properties = AmqpMessageProperties()
        return self._properties

    def _show(self, value: Any) -> Any:
        return value.encode() if self._as_bytes and isinstance(value, str) else value

    def _show_names(self, annotations: Mapping[str, Any]) -> dict[Any, Any]:
        return {self._show(name): self._show(value) for name, value in annotations.items()}

    def _annotation(self, name: str) -> Any:
        annotations = self.annotations or {}
        return annotations.get(name, annotations.get(name.encode()))

    def _annotate(self, name: str, value: Any) -> None:
        annotations = {key: kept for key, kept in (self.annotations or {}).items() if plain(key) != name}
        if value is not None:
            annotations[self._show(name)] = value
        if isinstance(self.annotations, dict):
            # An application that holds the annotations sees the change.
            self.annotations.clear()
            self.annotations.update(annotations)
        else:
            self.annotations = annotations


def decode_carried(envelope: Envelope) -> dict[str, Any]:
    """Return the AMQP values that an envelope carries beside its own fields; none if a foreign producer wrote nonsense."""
    if envelope.amqp is not None:
        with contextlib.suppress(ValueError):
            found = decode_value(envelope.amqp)
            return found if isinstance(found, dict) else {}
    return {}


def identifier_in(envelope: Envelope, name: str) -> Any:
    """Return a message id or correlation id in the type that it was given in; its text if it was changed elsewhere since."""
    text = getattr(envelope, name)
    if text is None or envelope.amqp is None:
        return text
    value = _part(decode_carried(envelope), "properties").get(name)
    with contextlib.suppress(TypeError, ValueError):
        return text if value is None or text_of(name, value) != text else value
    return text


def text_of(name: str, value: object) -> str:
    """Return an identifier as text, by which duplicates are found and filters are evaluated.

    Args:
        name: Its name, for errors.
        value: A text, a UUID, bytes (as text if they are UTF-8, else as hexadecimal digits), or a number of 64 bits.

    Raises:
        TypeError: The value is none of these.
        ValueError: A number is negative, or has more bits.
    """
    if isinstance(value, (str, uuid.UUID)):
        return str(value)
    if isinstance(value, bytes) and not isinstance(value, DecimalBits):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= _LARGEST:
            raise ValueError(f"{name} is {value}: a number has at most 64 bits, and no sign")
        return str(value)
    raise TypeError(f"{name} is {type(value).__name__}: use str, UUID, bytes or int")


def _duration(milliseconds: object) -> timedelta:
    if not isinstance(milliseconds, int) or isinstance(milliseconds, bool):
        raise TypeError(f"time_to_live is {type(milliseconds).__name__}: use a whole number of milliseconds")
    if milliseconds < 0:
        raise ValueError(
            f"time_to_live is {milliseconds} ms: give a positive duration, or None for the entity's default"
        )
    try:
        return timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise ValueError(f"time_to_live is {milliseconds:#x} ms: the longest is {timedelta.max}") from error


def _scheduled_time(moment: Any) -> datetime | None:
    if moment is None or isinstance(moment, datetime):
        return moment
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise TypeError(f"{SCHEDULED} is {type(moment).__name__}: use datetime, or milliseconds since 1970")
    try:
        return from_milliseconds(moment)
    except OverflowError as error:
        raise ValueError(f"{SCHEDULED} is {moment:#x} ms since 1970: it is not in the years 1 to 9999") from error


def plain(value: Any) -> Any:
    """Return text that came as bytes, as AMQP's does, as text; return bytes that are not UTF-8 as they are."""
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
    return value


def _part(carried: Mapping[str, Any], name: str) -> dict[Any, Any]:
    part = carried.get(name)
    return dict(part) if isinstance(part, dict) else {}


def _select_known(carried: Mapping[str, Any], part: str, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in _part(carried, part).items() if name in names}


def _drop_broker_annotations(annotations: Mapping[Any, Any] | None) -> dict[Any, Any]:
    own = {*OF_THE_BROKER, PARTITION_KEY, SCHEDULED}
    return {name: value for name, value in (annotations or {}).items() if plain(name) not in own}
