"""What goes wrong before a Spark job starts.

::

    SparkReadError
    ├── JavaNotFoundError
    ├── ConnectorMissingError
    ├── EntityNotFoundError (also a LookupError)
    └── NamespaceUnreachableError (also a ConnectionError)
"""

from __future__ import annotations


class SparkReadError(Exception):
    """Root of what this package raises beside ValueError."""


class JavaNotFoundError(SparkReadError):
    """There is no Java that suits Spark; the message says what was found."""


class ConnectorMissingError(SparkReadError):
    """The Spark session was started without the Kafka connector."""


class EntityNotFoundError(SparkReadError, LookupError):
    """There is no such entity: Kafka has no topic for it."""


class NamespaceUnreachableError(SparkReadError, ConnectionError):
    """Kafka does not answer, or refuses the credentials."""
