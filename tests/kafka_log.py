"""The logger of the tests' own Kafka clients: without one, librdkafka writes to the terminal, between the tests' dots."""

from __future__ import annotations

import logging

KAFKA_LOG = logging.getLogger("tests.kafka")
"""Pass it as ``logger`` to each client; pytest shows what it logged if the test fails."""
# Otherwise Python prints what is logged outside of tests.
KAFKA_LOG.addHandler(logging.NullHandler())
