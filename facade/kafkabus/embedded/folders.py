"""Where the embedded runtime keeps what it downloads and what its servers store."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "KAFKABUS_CACHE"
"""Environment variable that names another cache folder than the user's own."""


def cache_folder() -> Path:
    """Return the folder for what can be had again: Kafka's jars, a wrapped Java.

    Returns:
        The folder named by the environment variable ``KAFKABUS_CACHE``, else the user's cache
        folder. It need not exist yet.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("kafkabus"))


def default_data_folder() -> Path:
    """Return the data folder that the command line uses unless told otherwise.

    Returns:
        ``embedded`` in the user's data folder. It need not exist yet.
    """
    return Path(platformdirs.user_data_dir("kafkabus")) / "embedded"


def scratch_folder(prefix: str = "kafkabus-") -> Path:
    """Make a folder for data that need not outlive the run, in memory where the machine allows.

    A topic of 16 partitions costs some hundred writes that are waited for; on a slow disk that is seconds.

    Args:
        prefix: What its name begins with.

    Returns:
        The folder, which whoever asked for it removes.
    """
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
