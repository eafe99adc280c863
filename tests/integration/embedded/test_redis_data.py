"""Data that one Redis or Valkey stored, and another one is to serve."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from kafkabus.embedded import EmbeddedRuntimeError
from kafkabus.embedded.redis_server import RedisProgram, refuse_newer_data
from tests.redis_server import Server, all_programs

OPTIONS = ("--appendonly", "yes", "--appendfsync", "always")
PAIRS = list(itertools.product(all_programs(), repeat=2))


@pytest.mark.parametrize(
    ("writer", "reader"), PAIRS, ids=["-then-".join(f"{program.version[0]}" for program in pair) for pair in PAIRS]
)
def test_data_is_refused_exactly_if_the_server_does_not_read_it(
    tmp_path: Path, writer: RedisProgram, reader: RedisProgram
) -> None:
    """Some servers silently begin empty, which would give all locks back."""
    folder = tmp_path / "redis"
    with Server(writer, folder, *OPTIONS) as server:
        server.ask("SET", "key", "value")
    if _reads(reader, folder, tmp_path / "copy"):
        refuse_newer_data(reader, folder)
    else:
        with pytest.raises(EmbeddedRuntimeError, match="in front, or, to have the ledger rebuilt from Kafka, remove"):
            refuse_newer_data(reader, folder)


def _reads(reader: RedisProgram, folder: Path, copy: Path) -> bool:
    """Return whether a server has the data of another one; some end at once, and some begin empty."""
    shutil.copytree(folder, copy)
    server = Server(reader, copy, *OPTIONS)
    try:
        server.start()
        return server.ask("GET", "key") == "value"
    except AssertionError:  # It ended instead.
        return False
    finally:
        server.__exit__()


@pytest.mark.parametrize(
    ("begins", "readers"),
    [
        (b"REDIS0010", [(7, 0), (7, 4), (8, 0), (8, 1), (9, 1)]),
        (b"REDIS0011", [(7, 0), (7, 4), (8, 0), (8, 1), (9, 1)]),
        (b"REDIS0012", [(7, 4), (8, 0), (8, 1)]),
        (b"VALKEY080", [(9, 1)]),
    ],
)
def test_files_of_redis_and_of_valkey_are_told_apart(
    tmp_path: Path, begins: bytes, readers: list[tuple[int, int]]
) -> None:
    """Their versions have the same numbers; a server may refuse what is let through, but never lose it."""
    stored = tmp_path / "appendonlydir"
    stored.mkdir()
    (stored / "appendonly.aof.1.base.rdb").write_bytes(begins)

    def reads(version: tuple[int, int]) -> bool:
        try:
            refuse_newer_data(RedisProgram(Path("redis-server"), version), tmp_path)
        except EmbeddedRuntimeError:
            return False
        return True

    versions = [(6, 2), (7, 0), (7, 4), (8, 0), (8, 1), (9, 1)]
    assert [version for version in versions if reads(version)] == readers
