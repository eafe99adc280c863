"""Marks of every test that uses Spark."""

from __future__ import annotations

import pytest

UNCLOSED_SOCKETS = "ignore:unclosed <socket:ResourceWarning"
"""A filter of warnings: pyspark leaves the socket of each collect to the garbage collector."""
SPARK = [
    pytest.mark.spark,
    # The first session ever downloads the connector.
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(UNCLOSED_SOCKETS),
]
