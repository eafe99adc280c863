"""The Kafka and Redis that tests run against: one embedded runtime for the whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkabus.embedded import scratch_folder as make_scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

LOGS: pytest.StashKey[Path] = pytest.StashKey()
"""Of pytest's configuration: the folder with the logs of the session's servers, once they were started."""


def scratch_folder() -> Path:
    """A new folder for data that need not outlive the run, in memory where the machine allows."""
    return make_scratch_folder("kafkabus-tests-")
