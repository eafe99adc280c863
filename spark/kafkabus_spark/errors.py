"""Errors that are raised before a Spark job starts.

::

    SparkError
    ├── JavaNotFoundError
    ├── ConnectorMissingError
    ├── EntityNotFoundError (also a LookupError)
    ├── EntityDisabledError
    ├── EntityRecreatedError
    ├── MessageRuleError (also a ValueError)
    ├── UnsupportedFormatError
    └── NamespaceUnreachableError (also a ConnectionError)
"""

from __future__ import annotations


class SparkError(Exception):
    """The base class of this package's errors, except ValueError."""


class JavaNotFoundError(SparkError):
    """No suitable Java for Spark was found; the error says what was found instead."""


class ConnectorMissingError(SparkError):
    """The Spark session was started without the Kafka connector."""


class EntityNotFoundError(SparkError, LookupError):
    """The entity does not exist: Kafka has no topic for it."""


class EntityDisabledError(SparkError):
    """The entity takes no messages at present, by its status."""


class EntityRecreatedError(SparkError):
    """The checkpoint of a stream is of an earlier entity of this name; the stream would skip messages of the present one."""


class MessageRuleError(SparkError, ValueError):
    """Messages break a rule of Service Bus or of their entity; nothing was sent."""


class UnsupportedFormatError(SparkError):
    """The namespace is stored in a format that this version of kafkabus does not read or write."""


class NamespaceUnreachableError(SparkError, ConnectionError):
    """Kafka does not answer, or refuses the credentials."""
