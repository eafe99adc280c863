"""Marks of every test that uses Spark."""

from __future__ import annotations

import pytest

SPARK = [
    pytest.mark.spark,
    # The first session ever downloads the connector.
    pytest.mark.timeout(600),
    # pyspark leaves the socket of each collect to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
