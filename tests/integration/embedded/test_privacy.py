"""What other users of the machine learn of an embedded namespace: nothing that lets them in."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from kafkabus.embedded import EmbeddedRuntime


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRuntime]:
    """One runtime for the tests of this module; starting it takes some seconds."""
    with EmbeddedRuntime(tmp_path_factory.mktemp("privacy") / "data") as started:
        yield started


def test_no_process_has_a_connection_string_among_its_arguments(runtime: EmbeddedRuntime) -> None:
    """Every user of the machine sees those."""
    supervisor = psutil.Process(runtime.pid)
    arguments = [argument for one in [supervisor, *supervisor.children(recursive=True)] for argument in one.cmdline()]
    assert "kafkabus.upkeep" in arguments
    assert [argument for argument in arguments if "SharedAccessKey" in argument or "redis://" in argument] == []
