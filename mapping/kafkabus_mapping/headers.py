"""Names of a record's headers: one short UTF-8 header for each system property that is set.

The names are the contract between the SDK, the Spark readers, and users who read the topics with Kafka's own tools. Every
name begins with ``sb-``; other headers belong to the application and are read back as application properties.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "sb-"

MESSAGE_ID: Final = "sb-message-id"
SESSION_ID: Final = "sb-session-id"
PARTITION_KEY: Final = "sb-partition-key"
CORRELATION_ID: Final = "sb-correlation-id"
SUBJECT: Final = "sb-subject"
CONTENT_TYPE: Final = "sb-content-type"
TO: Final = "sb-to"
REPLY_TO: Final = "sb-reply-to"
REPLY_TO_SESSION_ID: Final = "sb-reply-to-session-id"
TIME_TO_LIVE: Final = "sb-time-to-live"
"""Decimal milliseconds."""
SCHEDULED_ENQUEUE_TIME: Final = "sb-scheduled-enqueue-time"
"""Decimal milliseconds since 1970 UTC."""
APPLICATION_PROPERTIES: Final = "sb-application-properties"
"""A JSON object; see ``properties``."""
BODY_TYPE: Final = "sb-body-type"
"""``sequence`` or ``value`` with a JSON body; absent if the record's value is the body's bytes."""
DATA_SECTIONS: Final = "sb-data-sections"
"""Decimal lengths of the body's data sections but the last, in bytes, joined by commas; absent if there is only one."""
AMQP: Final = "sb-amqp"
"""A JSON object of the AMQP header, footer and annotations; absent if the sender set none."""
DEAD_LETTER_REASON: Final = "sb-dead-letter-reason"
DEAD_LETTER_DESCRIPTION: Final = "sb-dead-letter-error-description"
DEAD_LETTER_SOURCE: Final = "sb-dead-letter-source"
ENQUEUED_SEQUENCE_NUMBER: Final = "sb-enqueued-sequence-number"
"""Decimal sequence number of the message in the entity where it was first enqueued."""
TRANSFER_SOURCE: Final = "sb-transfer-source"
"""Identity of the record that a transfer copied: ``<ledger>@<sequence number>``."""
HOPS: Final = "sb-hops"
"""Decimal count of how often the message was forwarded."""

TRACEPARENT: Final = "sb-traceparent"
"""Trace context, as W3C writes it; read over by this version, which does not write it."""
TRACESTATE: Final = "sb-tracestate"
"""State of the tracing system, as W3C writes it; read over by this version, which does not write it."""

ADDRESSED_TO: Final = "sb-addressed-to"
"""Key of the only subscription that receives this record of a topic: its rules made several copies of one message."""

TEXT_FIELDS: Final[tuple[tuple[str, str], ...]] = (
    ("message_id", MESSAGE_ID),
    ("session_id", SESSION_ID),
    ("partition_key", PARTITION_KEY),
    ("correlation_id", CORRELATION_ID),
    ("subject", SUBJECT),
    ("content_type", CONTENT_TYPE),
    ("to", TO),
    ("reply_to", REPLY_TO),
    ("reply_to_session_id", REPLY_TO_SESSION_ID),
    ("body_type", BODY_TYPE),
    ("data_sections", DATA_SECTIONS),
    ("amqp", AMQP),
    ("dead_letter_reason", DEAD_LETTER_REASON),
    ("dead_letter_error_description", DEAD_LETTER_DESCRIPTION),
    ("dead_letter_source", DEAD_LETTER_SOURCE),
    ("transfer_source", TRANSFER_SOURCE),
)
"""Fields of an ``Envelope`` whose headers hold plain text, with the names of those headers."""
