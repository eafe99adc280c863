"""Kafka's jars are fetched, from a repository of the test's own."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from kafkabus.embedded.class_archive import Archiving, ClassArchive
from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.java import Java
from kafkabus.embedded.kafka_jars import (
    JARS_VARIABLE,
    MIRROR_VARIABLE,
    ROOTS,
    Jar,
    download,
    pinned_jars,
    provide_jars,
)

CONTENT = {"one": b"x" * 50_000, "two": b"y" * 30_000}


class Waiting:
    """A supervisor's way of waiting; one that is stopped raises KeyboardInterrupt."""

    def __init__(self, stopped: bool = False) -> None:
        self.stopped = stopped

    def pause(self, seconds: float) -> None:
        """Wait a moment.

        Raises:
            KeyboardInterrupt: It is to stop.
        """
        if self.stopped:
            raise KeyboardInterrupt
        threading.Event().wait(min(seconds, 0.01))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that logs nothing."""

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a Maven repository, which is served at the address of a mirror with a password."""
    root = tmp_path / "repository"
    for name, content in CONTENT.items():
        folder = root / f"org/example/{name}/1.0"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.0.jar").write_bytes(content)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=root)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(MIRROR_VARIABLE, f"http://me:secret@127.0.0.1:{server.server_address[1]}/")
        yield root
        server.shutdown()


def jars() -> list[Jar]:
    """Return the jars that the repository has."""
    return [
        Jar(f"org.example:{name}:1.0", len(content), hashlib.sha256(content).hexdigest())
        for name, content in CONTENT.items()
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder for the downloaded jars."""
    made = tmp_path / "draft/lib"
    made.mkdir(parents=True)
    return made


@pytest.mark.usefixtures("repository")
def test_jars_come_from_a_mirror(folder: Path) -> None:
    """The progress is reported, and no other file is left."""
    told: list[str] = []
    download(jars(), folder, Waiting(), told.append)
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == {
        f"{name}-1.0.jar": CONTENT[name] for name in CONTENT
    }
    assert "downloading Kafka" in told[0]
    assert [one.name for one in folder.parent.iterdir()] == ["lib"]


def test_a_jar_that_is_another_is_refused(repository: Path, folder: Path) -> None:
    """It is refused after some attempts. The error names the jar, and no password."""
    (repository / "org/example/two/1.0/two-1.0.jar").write_bytes(b"z" * 30_000)
    with pytest.raises(
        EmbeddedRuntimeError, match=r"from the Maven repository at 127\.0\.0\.1: two-1\.0\.jar has the SHA-256"
    ) as told:
        download(jars(), folder, Waiting(), lambda _: None)
    assert "secret" not in str(told.value)


def test_a_jar_that_is_not_there_is_named(repository: Path, folder: Path) -> None:
    """The error names the variable that chooses another repository, too."""
    (repository / "org/example/one/1.0/one-1.0.jar").unlink()
    with pytest.raises(EmbeddedRuntimeError, match=rf"org\.example:one:1\.0 is not there.*{MIRROR_VARIABLE}") as told:
        download(jars(), folder, Waiting(), lambda _: None)
    assert "secret" not in str(told.value)


def test_a_repository_that_is_down_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes soon."""
    monkeypatch.setenv(MIRROR_VARIABLE, "http://me:secret@127.0.0.1:1/")
    with pytest.raises(EmbeddedRuntimeError, match="Connection refused") as told:
        download(jars(), folder, Waiting(), lambda _: None)
    assert "secret" not in str(told.value)


@pytest.mark.usefixtures("repository")
def test_a_download_ends_with_whoever_waits_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No error of the download hides the reason. The repository never answers."""
    ended = threading.Event()

    def wait(_: Quiet) -> None:
        ended.wait()

    monkeypatch.setattr(Quiet, "do_GET", wait)
    try:
        with pytest.raises(KeyboardInterrupt):
            download(jars(), folder, Waiting(stopped=True), lambda _: None)
    finally:
        ended.set()


def test_what_kafka_needs_is_pinned() -> None:
    """Kafka's own modules have one version, and a checksum each."""
    pinned = {jar.coordinates: jar for jar in pinned_jars()}
    assert set(ROOTS) <= pinned.keys()
    assert {one.rsplit(":", 1)[1] for one in pinned if one.startswith("org.apache.kafka:")} == {
        ROOTS[0].rsplit(":", 1)[1]
    }
    assert all(len(jar.sha256) == 64 for jar in pinned.values())


def test_jars_that_the_environment_names_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is downloaded. A folder without Kafka is refused."""
    told: list[str] = []
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    with pytest.raises(EmbeddedRuntimeError, match=rf"{JARS_VARIABLE} names .*{tmp_path.name}, which has no jar"):
        provide_jars(Waiting(), told.append)
    (tmp_path / "kafka_2.13-3.9.1.jar").touch()
    assert provide_jars(Waiting(), told.append) == tmp_path
    assert told == []


def test_jars_in_a_folder_of_others_get_no_archive(tmp_path: Path) -> None:
    """Brokers start without an archive of classes if it cannot be written beside the jars."""
    (tmp_path / "kafka").touch()
    (tmp_path / "classes.list").touch()
    archive = ClassArchive(Java(Path("java"), 21, "a build", bundled=False), tmp_path / "kafka" / "libs")
    Archiving(archive, tmp_path / "classes.list", tmp_path / "log").tend()
    assert {one.name for one in tmp_path.iterdir()} == {"kafka", "classes.list"}
