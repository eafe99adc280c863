"""A Spark session on this machine that can read Kafka."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafkabus_spark.errors import JavaNotFoundError

SUITED_JAVA: Final = frozenset({17, 21})
"""The Java versions that Spark 4 runs on."""

_TRUST_STORE: Final = Path("/etc/ssl/certs/java/cacerts")
_STOP_PATIENCE_S: Final = 15.0
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_RESOLVED_ELSEWHERE: Final = (
    "spark.jars.ivy",
    "spark.jars.ivySettings",
    "spark.jars.repositories",
    "spark.jars.excludes",
)
"""Settings with which Ivy finds other files for the same packages."""
_FORGETTING: Final = {
    "spark.kafka.consumer.fetchedData.cache.timeout": "10s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "10s",
}
"""How long Spark keeps records that it fetched and did not need; by default 5 minutes, and 50 jobs may fill a gigabyte."""
_STDERR: Final = 2
"""The file descriptor of standard error, which Java inherits even if ``sys.stderr`` was replaced."""


def connector_package() -> str:
    """Return the Maven coordinates of the Kafka connector that belongs to the installed pyspark."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def session(
    app_name: str = "kafkabus",
    *,
    master: str = "local[*]",
    java_home: Path | str | None = None,
    shuffle_partitions: int = 4,
    java_log: Path | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a local session with the Kafka connector; the first call on a machine downloads it (60 MB) to the Ivy cache.

    Times are shown in UTC, Spark's web page is off, everything listens on the loopback address only, and Java takes up to 2 GB
    of memory (``spark.driver.memory``). If a session is running already, it is returned unchanged.

    Args:
        app_name: The name of the application.
        master: The Spark master; default this machine, with all cores.
        java_home: Folder of a Java 17 or 21; default the environment's ``JAVA_HOME``, else the ``java`` on the ``PATH``.
        shuffle_partitions: The number of tasks of an aggregation; Spark's own default, 200, is for clusters.
        java_log: File for Java's output, Ivy's report of the download included; default this program's standard error.
        config: Further settings, which override these.

    Raises:
        JavaNotFoundError: There is no Java 17 or 21.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    home = None if java_home is None else Path(java_home)
    _check_java(home)
    settings = {
        "spark.jars.packages": connector_package(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        **_FORGETTING,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {_trust_option(home)}",
        **(config or {}),
    }
    packages = _Packages(settings)
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in packages.settings().items():
        builder = builder.config(name, value)
    with _java_home(home), _errors_into(java_log):
        spark = builder.getOrCreate()
    packages.keep(spark)
    return spark


class _Packages:
    """The files of the packages of a session: Ivy finds them once, with a report of 30 lines and in two seconds.

    Args:
        settings: The session's settings.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._known = not any(name in settings for name in _RESOLVED_ELSEWHERE)
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._index = folder / "kafkabus" / f"spark-{pyspark.__version__}-packages.json"

    def settings(self) -> dict[str, str]:
        """Return the settings, with the packages' files in place of the packages if they are known and there."""
        settings = dict(self._settings)
        files = self._read().get(settings.get("spark.jars.packages", ""), []) if self._known else []
        if files and all(Path(file).is_file() for file in files):
            del settings["spark.jars.packages"]
            jars = [*filter(None, [settings.get("spark.jars")]), *files]
            settings["spark.jars"] = ",".join(jars)
        return settings

    def keep(self, spark: SparkSession) -> None:
        """Remember the files that Ivy found."""
        packages = spark.conf.get("spark.jars.packages", None)
        # Of jars of the user's own nothing is remembered: Spark names them among those that Ivy found.
        known = self._known and "spark.jars" not in self._settings
        if not known or not packages or packages != self._settings.get("spark.jars.packages"):
            return
        jars = (spark.conf.get("spark.jars", None) or "").split(",")
        files = [jar.removeprefix("file://") for jar in jars]
        # It is a matter of seconds at the next start, and no reason to fail.
        with suppress(OSError):
            self._index.parent.mkdir(parents=True, exist_ok=True)
            new = self._index.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps({**self._read(), packages: files}), encoding="utf-8")
            new.replace(self._index)

    def _read(self) -> dict[str, list[str]]:
        try:
            known: dict[str, list[str]] = json.loads(self._index.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known


def stop(spark: SparkSession) -> None:
    """Stop a session and its Java process, which Spark itself would leave running until Python ends.

    Another session can be started afterwards.
    """
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if process is None:
        return
    # Java ends when its standard input is closed.
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _check_java(home: Path | None) -> None:
    environment = os.environ.get("JAVA_HOME")
    if home is not None or environment:
        program = shutil.which("java", path=str((home or Path(environment or "")) / "bin"))
        place = f"JAVA_HOME {home or environment}"
    else:
        program, place = shutil.which("java"), "the PATH"
    found = _java_version(program) if program else None
    if found not in SUITED_JAVA:
        what = "has none" if found is None else f"has version {found}"
        raise JavaNotFoundError(
            f"Spark needs Java 17 or 21, and {place} {what}. Install one, or give java_home= the folder of one "
            "(kafkabus.embedded.java.spark_java_home() finds one that came with kafkabus[embedded])"
        )


def _java_version(program: str) -> int | None:
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)  # noqa: S603  # Java's own
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else None


def _trust_option(home: Path | None) -> str:
    """Return the option that makes a bundled Java trust the machine's certificates, such as those of a company's proxy."""
    if home is None or not _TRUST_STORE.is_file():
        return ""
    own = home / "lib" / "security" / "cacerts"
    if own.exists() and own.resolve() == _TRUST_STORE.resolve():
        return ""
    return f"-Djavax.net.ssl.trustStore={_TRUST_STORE}"


@contextmanager
def _errors_into(log: Path | None) -> Generator[None]:
    """Redirect standard error to a file; a process that is started in the block keeps the redirection."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), _STDERR)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, _STDERR)
        os.close(kept)


@contextmanager
def _java_home(home: Path | None) -> Generator[None]:
    """Set ``JAVA_HOME`` while Java starts; the variable is restored, because the environment belongs to the application."""
    if home is None:
        yield
        return
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before
