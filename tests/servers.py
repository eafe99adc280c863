"""The Kafka and Redis that tests run against: one embedded runtime for the whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkabus.embedded import scratch_folder as make_scratch_folder

if TYPE_CHECKING:
    from pathlib import Path


def scratch_folder() -> Path:
    """A new folder for data that need not outlive the run, in memory where the machine allows."""
    return make_scratch_folder("kafkabus-tests-")
