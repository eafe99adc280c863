"""Errors that are raised before a Spark job starts.

::

    SparkReadError
    ├── JavaNotFoundError
    ├── ConnectorMissingError
    ├── EntityNotFoundError (also a LookupError)
    ├── NamespaceFormatError
    └── NamespaceUnreachableError (also a ConnectionError)
"""

from __future__ import annotations


class SparkReadError(Exception):
    """The base class of this package's errors, except ValueError."""


class JavaNotFoundError(SparkReadError):
    """No suitable Java for Spark was found; the error says what was found instead."""


class ConnectorMissingError(SparkReadError):
    """The Spark session was started without the Kafka connector."""


class EntityNotFoundError(SparkReadError, LookupError):
    """The entity does not exist: Kafka has no topic for it."""


class NamespaceFormatError(SparkReadError):
    """The namespace is stored in a format that this version of kafkabus does not read."""


class NamespaceUnreachableError(SparkReadError, ConnectionError):
    """Kafka does not answer, or refuses the credentials."""
