"""A session starts with little output, and without a search for packages that were found before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kafkabus_spark import SparkError, delta_settings
from kafkabus_spark.session import _Packages, connector_package

PACKAGES = "spark.jars.packages"
PROGRAM = """
import kafkabus_spark
from kafkabus.embedded.java import spark_java_home

spark = kafkabus_spark.session(java_home=spark_java_home())
print(spark.range(10).count())
kafkabus_spark.stop(spark)
"""
MOST_LINES = 5


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says where packages are; the connector is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar = tmp_path / "connector.jar"
    jar.touch()
    path = tmp_path / "kafkabus" / f"spark-{pyspark.__version__}-packages.json"
    path.parent.mkdir()
    path.write_text(json.dumps({connector_package(): [str(jar)]}))
    return path


def test_packages_that_were_found_are_named_as_files(index: Path) -> None:
    """Other jars of the user stay."""
    jar = str(index.parents[1] / "connector.jar")
    assert _Packages({PACKAGES: connector_package()}).settings() == {"spark.jars": jar}
    with_own = {PACKAGES: connector_package(), "spark.jars": "own.jar"}
    assert _Packages(with_own).settings() == {"spark.jars": f"own.jar,{jar}"}


@pytest.mark.parametrize("why", ["gone", "broken", "others", "elsewhere"])
def test_ivy_looks_for_packages_that_are_not_known(index: Path, why: str) -> None:
    """Among them are packages of which a file was deleted, and those that the settings have Ivy look for elsewhere."""
    settings = {PACKAGES: connector_package()}
    if why == "gone":
        (index.parents[1] / "connector.jar").unlink()
    elif why == "broken":
        index.write_text("{")
    elif why == "others":
        settings[PACKAGES] += ",org.example:other:1"
    else:
        settings["spark.jars.ivy"] = "/elsewhere"
    assert _Packages(settings).settings() == settings


def test_delta_is_of_the_version_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a Spark whose Delta is not known, an error says what to do."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.3")
    connector, delta = delta_settings()[PACKAGES].split(",")
    assert (connector, delta) == (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
        "io.delta:delta-spark_2.13:4.1.0",
    )
    monkeypatch.setattr(pyspark, "__version__", "4.9.0")
    with pytest.raises(SparkError, match=r"Delta's version for Spark 4\.9 is not known.*give session\(config=\)"):
        delta_settings()


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.extended  # It starts Java twice, which takes 15 seconds.
def test_a_session_is_quiet(tmp_path: Path) -> None:
    """Ivy reports once; then five lines are the most."""
    for first in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        )
        assert done.stdout == "10\n"
        if not first:
            assert len(done.stderr.splitlines()) <= MOST_LINES, done.stderr
