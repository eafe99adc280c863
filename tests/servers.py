"""The Kafka and Redis that tests run against: one embedded runtime for the whole run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def scratch_folder() -> Path:
    """A new folder for data that need not outlive the run, in memory where the machine allows.

    A topic of 16 partitions costs some hundred writes that are waited for; on a slow disk that is seconds.
    """
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="kafkabus-tests-", dir=parent))
