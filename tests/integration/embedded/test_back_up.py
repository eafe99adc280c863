"""The drill of docs/how-to/back-up.md: a cluster is lost, and its backup restored."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.embedded import down, status
from kafkabus_mapping.names import EntityPath
from tests.servers import scratch_folder

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "back-up.md"
PATIENCE = 60.0
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


class Shell:
    """A shell that runs the commands of a page, one after the other, as its reader does.

    Args:
        folder: The folder in which it starts.
    """

    _END = "-- the command has ended with"

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "PATH": path},
        )

    def run(self, command: str) -> str:
        """Return what a command prints; it must succeed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command} </dev/null\necho '{self._END}' $?\n")
        self._process.stdin.flush()
        printed = ""
        for line in self._process.stdout:
            if line.startswith(self._END):
                assert line == f"{self._END} 0\n", f"{command}: {printed}"
                return printed
            printed += line
        raise AssertionError(f"the shell ended in {command!r}")

    def close(self) -> None:
        """End the shell."""
        self._process.communicate(timeout=PATIENCE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder; a namespace that runs there at the end is stopped."""
    made = scratch_folder()
    yield made
    down(made / "cluster")
    shutil.rmtree(made, ignore_errors=True)


def wait_for_checkpoint(data: Path, queue: str) -> None:
    """Wait until it is written down that the first message of a queue was settled."""
    running = status(data)
    assert running is not None
    context = ClientContext(parse_settings(running.connection_string))
    try:
        prefixes = [ledger.keys.prefix for ledger in context.catalog.entity(EntityPath(queue)).ledgers]
        deadline = time.monotonic() + PATIENCE
        while all(one is None or one.watermark == 0 for one in context.stores.checkpoints.read_now(prefixes).values()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        context.close()


def follow(shell: Shell, block: str) -> None:
    """Run the commands of a block; those that have an output there must print it."""
    for command, expected in _COMMAND.findall(block):
        printed = shell.run(command)
        assert printed == expected or not expected


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_the_drill_works_as_it_is_written(folder: Path) -> None:
    """Messages that were settled stay settled, and the others are there.

    It starts a cluster twice, and runs a dozen commands. Other tests show that records outlive a start, and that
    checkpoints outlive Redis.
    """
    first, *others = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    shell = Shell(folder)
    follow(shell, first)
    wait_for_checkpoint(folder / "cluster", "orders")
    for block in others:
        follow(shell, block)
    shell.close()
