"""What every test of the project shares."""

from __future__ import annotations

import shutil
import signal
import uuid
from typing import TYPE_CHECKING

import pytest

from kafkabus.embedded import EmbeddedRuntime
from kafkabus.embedded.state import LOG_FOLDER
from tests.servers import LOGS, scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ("tests.no_skips", "tests.named_tests", "tests.server_logs")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell's background job has it: what tests start would inherit that, and could not be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def runtime(request: pytest.FixtureRequest) -> Iterator[EmbeddedRuntime]:
    """A running namespace, started with the first test that needs one."""
    data = scratch_folder()
    try:
        with EmbeddedRuntime(data, namespace="tests") as running:
            request.config.stash[LOGS] = data / LOG_FOLDER
            yield running
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="session")
def connection_string(runtime: EmbeddedRuntime) -> str:
    """How clients reach the namespace."""
    return runtime.connection_string


@pytest.fixture
def untended(connection_string: str) -> str:
    """How clients reach a namespace of the test's own, which is empty and which nobody looks after."""
    assert "sb://tests." in connection_string
    return connection_string.replace("sb://tests.", f"sb://n-{uuid.uuid4().hex[:8]}.", 1)
