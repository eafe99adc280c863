"""Warnings that come again and again are logged once a minute."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kafkabus._runtime.repetitions import RepetitionFilter

NOWHERE = "Endpoint=sb://nowhere.localhost/;KafkaBootstrapServers=127.0.0.1:1;Redis=redis://127.0.0.1:1/0"


class Log:
    """A logger with the filter, and a clock that the test moves."""

    def __init__(self, name: str) -> None:
        self.now = 0.0
        self._stream = io.StringIO()
        self._handler = logging.StreamHandler(self._stream)
        self._handler.addFilter(RepetitionFilter(60.0, lambda: self.now))
        self.logger = logging.getLogger(name)
        self.logger.propagate = False
        self.logger.addHandler(self._handler)
        self.logger.setLevel(logging.DEBUG)

    def close(self) -> None:
        """Leave the logger as it was."""
        self.logger.removeHandler(self._handler)

    @property
    def lines(self) -> list[str]:
        """Return all logged lines."""
        return self._stream.getvalue().splitlines()


@pytest.fixture
def log() -> Iterator[Log]:
    """A log for one test."""
    one = Log("tests.repetitions")
    yield one
    one.close()


def test_a_warning_is_said_once_a_minute_with_how_often_it_came(log: Log) -> None:
    """The arguments of the warning do not matter; the first one is logged at once."""
    for second in range(0, 121, 2):
        log.now = float(second)
        log.logger.warning("no answer entity=%s error=%s", f"q{second}", OSError("refused"))
    assert log.lines == [
        "no answer entity=q0 error=refused",
        "no answer entity=q60 error=refused (and 29 more like it in the last 60 s)",
        "no answer entity=q120 error=refused (and 29 more like it in the last 60 s)",
    ]


def test_a_warning_that_comes_seldom_is_said_as_it_is(log: Log) -> None:
    """It has no count, and its text may hold a percent sign."""
    for log.now in (0.0, 60.0):
        log.logger.warning("100 %")
    assert log.lines == ["100 %", "100 %"]
    for log.now in (61.0, 121.0):
        log.logger.warning("100 %")
    assert log.lines[2:] == ["100 % (and 1 more like it in the last 61 s)"]


def test_other_levels_templates_loggers_and_errors_are_other_news(log: Log) -> None:
    """Each of them is logged once."""
    for _ in range(3):
        log.logger.warning("failed: %s", OSError("a"))
        log.logger.warning("failed: %s", ValueError("b"))
        log.logger.error("failed: %s", OSError("c"))
        log.logger.warning("failed again: %s", OSError("d"))
        log.logger.getChild("child").warning("failed: %s", OSError("e"))
    assert [line[-1] for line in log.lines] == ["a", "b", "c", "d", "e"]


def test_a_traceback_is_printed_once(log: Log) -> None:
    """Tracebacks were most of a log that grew by megabytes while a server was away."""
    for error in (OSError("refused"), OSError("refused"), ValueError("refused")):
        log.logger.error("round failed", exc_info=error)
    assert [line for line in log.lines if line.startswith("OSError")] == ["OSError: refused"]
    assert len([line for line in log.lines if line == "round failed"]) == 2


def test_information_and_losses_are_not_counted(log: Log) -> None:
    """Each of them is logged."""
    for offset in range(3):
        log.logger.info("started")
        log.logger.error("lost offset=%d", offset)
    assert log.lines == ["started", "lost offset=0", "started", "lost offset=1", "started", "lost offset=2"]


def test_messages_of_kafkas_client_are_told_apart_by_their_kind(log: Log) -> None:
    """The client logs all of them with one template, and with numbers that change in the text."""
    for number in range(3):
        for kind in ("FAIL", "TIMEOUT"):
            log.logger.error("%s [%s] %s", kind, "rdkafka#producer-2", f"refused (after {number} ms)")
    assert [line.split()[0] for line in log.lines] == ["FAIL", "TIMEOUT"]


@pytest.mark.parametrize(
    "program",
    [
        "sys.argv = ['']; os.environ['KAFKABUS_CONNECTION_STRING'] = NOWHERE; run('kafkabus.upkeep')",
        "sys.argv = ['', '-c', NOWHERE, 'serve']; run('kafkabus.cli')",
    ],
)
def test_services_do_not_repeat_themselves(program: str) -> None:
    """Neither the embedded runtime's upkeep nor the command line's logs a warning again and again."""
    script = f"""
import logging, os, runpy, sys
import kafkabus.upkeep

NOWHERE = {NOWHERE!r}

async def serve(settings, endpoint=None):
    for _ in range(3):
        logging.getLogger("kafkabus.upkeep").warning("no answer from %s", settings.namespace)

def run(module):
    runpy.run_module(module, run_name="__main__", alter_sys=True)

kafkabus.upkeep.serve = kafkabus.upkeep.process.serve = serve
{program}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("no answer from nowhere")) == (0, 1), done.stderr
