"""Kafka's jars, resolved from Maven Central once per user."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kafkabus.embedded.errors import EmbeddedRuntimeError, log_tail
from kafkabus.embedded.folders import cache_folder
from kafkabus.embedded.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkabus.embedded.java import Java

KAFKA_VERSION = "4.3.0"
"""The version of Kafka that the embedded runtime runs."""

IVY_SETTINGS_VARIABLE = "KAFKABUS_IVY_SETTINGS"
"""Environment variable that names an Ivy settings file, for those who reach Maven Central only
through a mirror of their own."""

_MANIFEST = "manifest.json"
_RETRY_S = 0.2
_DOWNLOAD_LIMIT_S = 900.0
# Kafka's modules name no logging backend; without one the brokers' logs would stay empty.
_MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="kafkabus" module="embedded"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"
                conf="default->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4"
                conf="default->default"/>
  </dependencies>
</ivy-module>
"""


class Workbench(Protocol):
    """How this module waits: so that whoever calls it may be interrupted."""

    def run(self, command: Sequence[str], folder: Path, log: Path, limit: float) -> int:
        """Run a program to its end.

        Args:
            command: Program and arguments.
            folder: The folder to run it in.
            log: The file that takes its output.
            limit: The time it is given, in seconds.

        Returns:
            Its exit status; not zero when the time was up.
        """
        ...

    def pause(self, seconds: float) -> None:
        """Wait that many seconds, or less."""
        ...


def installed_jars() -> Path | None:
    """Return the folder of Kafka's jars if it is complete.

    Returns:
        The folder with the jars, or None where they are missing or damaged.
    """
    home = _home()
    try:
        sizes: dict[str, int] = json.loads((home / _MANIFEST).read_text())
        complete = all((home / "lib" / name).stat().st_size == sizes[name] for name in sizes)
    except (OSError, ValueError):
        return None
    return home / "lib" if complete else None


def provide_jars(java: Java, bench: Workbench, on_progress: Callable[[str], None]) -> Path:
    """Return the folder of Kafka's jars, after a download where they are not there.

    Only one process of a user downloads at a time; the others wait for it.

    Args:
        java: What to run Ivy with.
        bench: How to run Ivy and to wait.
        on_progress: Told when a download starts, and when it waits for another's.

    Returns:
        The folder with the jars.

    Raises:
        EmbeddedRuntimeError: They cannot be downloaded.
    """
    jars = installed_jars()
    if jars is not None:
        return jars
    home = _home()
    lock = FileLock(home.with_name(f"{home.name}.lock"))
    if not lock.acquire():
        on_progress(f"waiting for another process that downloads Kafka {KAFKA_VERSION} ...")
        while not lock.acquire():
            bench.pause(_RETRY_S)
    try:
        return installed_jars() or _download(java, bench, on_progress)
    finally:
        lock.release()


def _home() -> Path:
    return cache_folder() / f"kafka-{KAFKA_VERSION}"


def _download(java: Java, bench: Workbench, on_progress: Callable[[str], None]) -> Path:
    ivy = _ivy_jar()
    home = _home()
    draft = home.with_name(f"{home.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    on_progress(f"downloading Kafka {KAFKA_VERSION} (44 MB, once) ...")
    (draft / "ivy.xml").write_text(_MODULE)
    log = home.with_name(f"{home.name}.download.log")
    status = bench.run(_ivy_command(java, ivy), draft, log, _DOWNLOAD_LIMIT_S)
    if status != 0 or not (draft / "lib" / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file():
        raise EmbeddedRuntimeError(
            f"Kafka {KAFKA_VERSION} could not be downloaded from Maven Central (Ivy ended with "
            f"status {status}). Check the network and try again; behind a mirror, name an Ivy "
            f"settings file in {IVY_SETTINGS_VARIABLE}. {log_tail(log)}"
        )
    shutil.rmtree(draft / "ivy-cache", ignore_errors=True)
    _put_in_place(draft, home)
    log.unlink(missing_ok=True)
    on_progress(f"downloaded Kafka {KAFKA_VERSION}")
    return home / "lib"


def _ivy_command(java: Java, ivy: Path) -> list[str]:
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    return [
        str(java.program),
        *java.download_options(),
        "-jar",
        str(ivy),
        *(["-settings", settings] if settings else []),
        *("-ivy", "ivy.xml", "-cache", "ivy-cache", "-confs", "default"),
        *("-retrieve", "lib/[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _put_in_place(draft: Path, home: Path) -> None:
    """Make the finished download visible in one step, its manifest first."""
    sizes = {jar.name: jar.stat().st_size for jar in sorted((draft / "lib").iterdir())}
    (draft / _MANIFEST).write_text(json.dumps(sizes, indent=1))
    shutil.rmtree(home, ignore_errors=True)
    draft.rename(home)


def _ivy_jar() -> Path:
    """Find the Ivy that Spark brings along."""
    folders: list[Path] = []
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is not None and pyspark.origin is not None:
        folders.append(Path(pyspark.origin).parent / "jars")
    if os.environ.get("SPARK_HOME"):
        folders.append(Path(os.environ["SPARK_HOME"]) / "jars")
    for folder in folders:
        for jar in sorted(folder.glob("ivy-*.jar")):
            return jar
    raise EmbeddedRuntimeError(
        f"Kafka {KAFKA_VERSION} has not been downloaded yet, and the Ivy to do it with was not "
        "found: pyspark brings it, and is not installed. "
        'Run: pip install "kafkabus[embedded]"'
    )
