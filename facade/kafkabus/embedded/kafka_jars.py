"""Kafka's jars, downloaded from Maven Central once per user, unless the environment names a folder that has others.

The file ``kafka_jars.json``, which ``tools/pin_kafka.py`` writes, lists the jars with their sizes and SHA-256 sums.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.folders import cache_folder
from kafkabus.embedded.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

KAFKA_VERSION = "4.3.0"
"""The version of Kafka that the embedded runtime runs."""
ROOTS = (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
"""The packages that the jars belong to. Kafka's modules include no logging backend, so the brokers' logs would be empty."""
MIRROR_VARIABLE = "KAFKABUS_MAVEN_REPOSITORY"
"""The environment variable with the address of a Maven repository to use in place of Maven Central."""
JARS_VARIABLE = "KAFKABUS_KAFKA_JARS"
"""The environment variable with a folder of jars of another Kafka, to run in place of the downloaded ones."""
PINNED = Path(__file__).with_name("kafka_jars.json")
"""The list of the jars."""

_MANIFEST = "manifest.json"
_RETRY_S = 0.2
_ATTEMPTS = 3
_AT_ONCE = 4
_DOWNLOAD_LIMIT_S = 900.0
_TOLD_EVERY = 10
_MB = 1_000_000


class Jar(NamedTuple):
    """A file that Kafka needs.

    Attributes:
        coordinates: Group, artifact and version, with colons between.
        size: The size in bytes.
        sha256: The SHA-256 sum, in hexadecimal digits.
    """

    coordinates: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of the jar's file."""
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


class Workbench(Protocol):
    """Waits for this module, so that the caller can be interrupted."""

    def pause(self, seconds: float) -> None:
        """Wait, at most for a number of seconds."""
        ...


def installed_jars() -> Path | None:
    """Return the folder of Kafka's jars if it is complete.

    Returns:
        The folder that the environment names, else the one with the downloaded jars; None if these are missing or damaged.

    Raises:
        EmbeddedRuntimeError: The environment names a folder without Kafka.
    """
    given = os.environ.get(JARS_VARIABLE)
    if given:
        return _check_folder(given)
    home = _home()
    try:
        sizes: dict[str, int] = json.loads((home / _MANIFEST).read_text())
        complete = all((home / "lib" / name).stat().st_size == sizes[name] for name in sizes)
    except (OSError, ValueError):
        return None
    return home / "lib" if complete else None


def provide_jars(bench: Workbench, on_progress: Callable[[str], None]) -> Path:
    """Return the folder of Kafka's jars; download them if they are missing.

    Only one process of a user downloads at a time; the others wait for it.

    Args:
        bench: The workbench, which waits.
        on_progress: A function that is called with the progress of the download, and when it waits for another process.

    Returns:
        The folder with the jars.

    Raises:
        EmbeddedRuntimeError: The jars cannot be downloaded, or the environment names a folder without Kafka.
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
        return installed_jars() or _provide(home, bench, on_progress)
    finally:
        lock.release()


def pinned_jars() -> list[Jar]:
    """Return the jars to download."""
    return [Jar(*pin) for pin in json.loads(PINNED.read_text())]


def _check_folder(given: str) -> Path:
    """Return a folder that the environment names."""
    folder = Path(given).absolute()
    if not any(folder.glob("kafka_*.jar")):
        raise EmbeddedRuntimeError(
            f"{JARS_VARIABLE} names {folder}, which has no jar of a Kafka (kafka_*.jar). Name the folder libs of an installed "
            f"Kafka, or unset the variable to have Kafka {KAFKA_VERSION} downloaded."
        )
    return folder


def _home() -> Path:
    return cache_folder() / f"kafka-{KAFKA_VERSION}"


def _provide(home: Path, bench: Workbench, on_progress: Callable[[str], None]) -> Path:
    draft = home.with_name(f"{home.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "lib").mkdir(parents=True)
    download(pinned_jars(), draft / "lib", bench, on_progress)
    _put_in_place(draft, home)
    on_progress(f"downloaded Kafka {KAFKA_VERSION}")
    return home / "lib"


def download(jars: Sequence[Jar], folder: Path, bench: Workbench, on_progress: Callable[[str], None]) -> None:
    """Download jars, several at a time, and check them.

    Args:
        jars: The jars to download.
        folder: The folder to write them to.
        bench: The workbench, which waits.
        on_progress: A function that is called with the progress of the download.

    Raises:
        EmbeddedRuntimeError: A jar cannot be downloaded, or its size or sum is wrong.
    """
    total = sum(jar.size for jar in jars)
    downloads = _Downloads(jars, folder)
    on_progress(f"downloading Kafka {KAFKA_VERSION} ({total / _MB:.0f} MB, once) ...")
    told, until = 0, time.monotonic() + _DOWNLOAD_LIMIT_S
    try:
        while not downloads.is_done():
            bench.pause(_RETRY_S)
            percent = min(100 * downloads.received // total, 99)
            if percent >= told + _TOLD_EVERY:
                told = percent
                on_progress(f"downloading Kafka {KAFKA_VERSION}: {percent} % of {total / _MB:.0f} MB")
            if time.monotonic() > until:
                downloads.fail(f"it took more than {_DOWNLOAD_LIMIT_S / 60:.0f} minutes")
    finally:
        downloads.stop()
    if downloads.failure is not None:
        raise EmbeddedRuntimeError(
            f"Kafka {KAFKA_VERSION} could not be downloaded from {_source()}: {downloads.failure}. Check the network and try "
            f"again; behind a mirror, set {MIRROR_VARIABLE} to its address."
        )


class _Downloads:
    """Downloads in threads that end with the process.

    Args:
        jars: The jars to download.
        folder: The folder to write them to.

    Attributes:
        received: The number of bytes received.
        failure: The reason for which a download failed; None if none did.
    """

    def __init__(self, jars: Sequence[Jar], folder: Path) -> None:
        from jgo.maven import MavenContext, PythonResolver

        self.received = 0
        self.failure: str | None = None
        self._folder = folder
        self._waiting: queue.SimpleQueue[Jar] = queue.SimpleQueue()
        for jar in sorted(jars, key=lambda jar: -jar.size):
            self._waiting.put(jar)
        self._guard = threading.Lock()
        self._mine = threading.local()
        self._stopped = threading.Event()
        mirror = os.environ.get(MIRROR_VARIABLE)
        self._repository = folder.with_name("repository")
        self._maven: Any = MavenContext(
            resolver=PythonResolver(progress_callback=self._count_progress),
            repo_cache=self._repository,
            local_repos=[],
            remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        )
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(_AT_ONCE)]
        for thread in self._threads:
            thread.start()

    def is_done(self) -> bool:
        """Return whether all downloads are finished, or one failed."""
        return self.failure is not None or not any(thread.is_alive() for thread in self._threads)

    def fail(self, why: str) -> None:
        """Note the reason of a failure, unless there was an earlier one."""
        with self._guard:
            self.failure = self.failure or why

    def stop(self) -> None:
        """Begin no further downloads."""
        self._stopped.set()
        shutil.rmtree(self._repository, ignore_errors=True)

    def _work(self) -> None:
        while not (self._stopped.is_set() or self.failure):
            try:
                jar = self._waiting.get_nowait()
            except queue.Empty:
                return
            for attempt in range(1, _ATTEMPTS + 1):
                why = self._fetch(jar)
                if why is None or self._stopped.is_set():
                    break
                if attempt == _ATTEMPTS:
                    self.fail(why)

    def _fetch(self, jar: Jar) -> str | None:
        """Download a jar; return the reason if it failed, else None."""
        artifact = self._maven.create_dependency(jar.coordinates).artifact
        self._mine.received = 0
        try:
            path = artifact.resolve()
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if found != jar.sha256:
                raise ValueError(f"{jar.name} has the SHA-256 sum {found}, and should have {jar.sha256}")
            path.rename(self._folder / jar.name)
        except Exception as error:  # noqa: BLE001 - whatever a library raises, it is why this failed
            artifact.cached_path.unlink(missing_ok=True)
            with self._guard:
                self.received -= self._mine.received
            # The library's error for a missing file shows the repository's address, which may contain a password.
            return f"{jar.coordinates} is not there" if type(error) is RuntimeError else str(error)
        return None

    @contextmanager
    def _count_progress(self, _name: str, _size: int) -> Generator[Callable[[int], None]]:
        yield self._count

    def _count(self, number: int) -> None:
        if self._stopped.is_set():
            raise InterruptedError("the download was stopped")
        self._mine.received += number
        with self._guard:
            self.received += number


def _source() -> str:
    """Return the name of the repository for messages, without a password."""
    mirror = os.environ.get(MIRROR_VARIABLE)
    return f"the Maven repository at {urlsplit(mirror).hostname}" if mirror else "Maven Central"


def _put_in_place(draft: Path, home: Path) -> None:
    """Make the finished download visible atomically, its manifest first."""
    sizes = {jar.name: jar.stat().st_size for jar in sorted((draft / "lib").iterdir())}
    (draft / _MANIFEST).write_text(json.dumps(sizes, indent=1))
    shutil.rmtree(home, ignore_errors=True)
    draft.rename(home)
