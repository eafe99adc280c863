"""However a program or its supervisor ends, nothing of the runtime stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from kafkabus.embedded import EmbeddedRuntime, status
from tests.integration.embedded import starter
from tests.integration.embedded.serving import (
    descendants,
    kill,
    redis_call,
    wait_until,
    wait_until_gone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.faults


class Program:
    """A program that runs a runtime."""

    def __init__(self, data: str, temporary: Path | None = None) -> None:
        place = {"TMPDIR": str(temporary)} if temporary is not None else {}
        self.process = subprocess.Popen(
            [sys.executable, starter.__file__, data, "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # A new process group, as a shell gives to each program that is started in a terminal.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **place},
        )

    @property
    def output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def line(self) -> str:
        return self.output.readline().strip()

    def await_start(self) -> tuple[set[int], Path]:
        """Return the pids of the runtime's processes and the data folder."""
        while not (line := self.line()).startswith("{"):
            assert line, "the program ended"
        told = json.loads(line)
        return set(told["pids"].values()), Path(told["data"])

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def program() -> Iterator[Program]:
    """A program that is starting its runtime, on a temporary folder."""
    started = Program("")
    yield started
    started.end()


def test_a_killed_program_takes_its_servers_along(program: Program) -> None:
    """SIGKILL to the program ends supervisor, brokers, Redis and upkeep, and removes temporary data."""
    pids, data = program.await_start()
    assert len(pids) == 4

    kill(program.process.pid)

    wait_until_gone(pids)
    wait_until(lambda: not data.exists(), f"{data} is removed")


def test_a_program_that_forked_takes_its_servers_along() -> None:
    """A forked copy that outlives the program does not keep the runtime alive."""
    code = (
        "import os, sys, kafkabus.embedded as e\n"
        "r = e.EmbeddedRuntime().start()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "print(r.pid, *r.processes.values(), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        pids = {int(word) for word in process.stdout.readline().split()}
        assert len(pids) == 4
        wait_until_gone(pids)


def test_a_killed_supervisor_takes_its_servers_along(tmp_path: Path) -> None:
    """SIGKILL to the supervisor ends brokers and Redis; the data can be used again at once."""
    runtime = EmbeddedRuntime(tmp_path).start()
    redis_call(runtime.redis_url, "SET", "kept", "one")
    connection_string = runtime.connection_string
    pids = set(runtime.processes.values())

    kill(runtime.pid)

    wait_until_gone(pids)
    assert dict(runtime.processes) == {}
    assert status(tmp_path) is None
    runtime.stop()
    with EmbeddedRuntime(tmp_path) as again:
        assert again.connection_string == connection_string
        assert redis_call(again.redis_url, "STRLEN", "kept") == b":3"


def test_ctrl_c_in_a_terminal_ends_everything(program: Program) -> None:
    """SIGINT to the whole process group, as a terminal sends it, stops the servers in order."""
    pids, data = program.await_start()

    os.killpg(program.process.pid, signal.SIGINT)

    assert program.process.wait(60) != 0
    wait_until_gone(pids)
    assert not data.exists()


@pytest.mark.parametrize("delay_ms", [0, 5, 20, 60, 150, 400, 900, 2000])
def test_an_interrupted_start_leaves_nothing(delay_ms: int, tmp_path: Path) -> None:
    """Ctrl-C at any moment of the start: no process, and no temporary data."""
    program = Program("", tmp_path)
    seen: set[int] = set()
    try:
        assert program.line() == "begun"
        with pytest.raises(subprocess.TimeoutExpired):
            program.process.wait(delay_ms / 1000)
        os.killpg(program.process.pid, signal.SIGINT)
        seen = descendants(program.process.pid)
        program.process.wait(60)
    finally:
        program.end()
    wait_until_gone(seen)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_from_within_leaves_nothing(tmp_path: Path) -> None:
    """An exception from the progress callback ends the start like any other."""
    seen: set[int] = set()
    # The runtime that other tests share may run already.
    others = descendants(os.getpid())

    def interrupt(_text: str) -> None:
        wait_until(lambda: len(descendants(os.getpid()) - others) >= 2, "a server is there")
        seen.update(descendants(os.getpid()) - others)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EmbeddedRuntime(tmp_path, on_progress=interrupt).start()

    assert len(seen) >= 2
    wait_until_gone(seen)
    assert status(tmp_path) is None
