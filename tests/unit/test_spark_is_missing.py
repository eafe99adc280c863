"""The Spark package without a pyspark that it can use."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import importlib.util

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else found(name, package)
"""
OLDER = """
import pyspark

pyspark.__version__ = "3.5.4"
"""
IMPORT = """
try:
    import kafkabus_spark
except ImportError as error:
    print(type(error).__name__, error.name, error)
"""


NOT_INSTALLED = "kafkabus_spark needs pyspark, and it is not installed: pip install 'kafkabus[spark]'"
TOO_OLD = (
    "kafkabus_spark needs Spark 4.0 or later, whose functions its columns are made of, and pyspark 3.5.4 is installed: "
    "pip install 'kafkabus[spark]', or take a cluster with Spark 4"
)


@pytest.mark.parametrize(
    ("before", "said"),
    [(WITHOUT, f"ModuleNotFoundError pyspark {NOT_INSTALLED}"), (OLDER, f"ImportError pyspark {TOO_OLD}")],
)
def test_it_says_what_to_install(before: str, said: str) -> None:
    """The error comes at the import."""
    done = subprocess.run([sys.executable, "-c", before + IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == said
