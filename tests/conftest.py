"""What every test of the project shares."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkabus.embedded import EmbeddedRuntime
from tests.servers import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ("tests.no_skips",)


@pytest.fixture(scope="session")
def runtime() -> Iterator[EmbeddedRuntime]:
    """A running namespace, started with the first test that needs one."""
    data = scratch_folder()
    try:
        with EmbeddedRuntime(data, namespace="tests") as running:
            yield running
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="session")
def connection_string(runtime: EmbeddedRuntime) -> str:
    """How clients reach the namespace."""
    return runtime.connection_string
