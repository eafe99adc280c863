"""The Spark package without pyspark."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import importlib.util

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else found(name, package)
try:
    import kafkabus_spark
except ModuleNotFoundError as error:
    print(error.name, error)
"""


def test_it_says_what_to_install() -> None:
    """The error comes at the import."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "pyspark kafkabus_spark needs pyspark, and it is not installed: pip install 'kafkabus[spark]'"
    )
