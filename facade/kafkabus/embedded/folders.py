"""Folders for the embedded runtime's downloads and its servers' data."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import platformdirs

from kafkabus.embedded.errors import EmbeddedRuntimeError

CACHE_VARIABLE = "KAFKABUS_CACHE"
"""The environment variable that names a cache folder in place of the user's own."""


DATA_VARIABLE = "KAFKABUS_DATA"
"""The environment variable that names a data folder in place of the user's own."""


def cache_folder() -> Path:
    """Return the folder for files that can be recreated: Kafka's jars, a wrapped Java.

    Returns:
        The folder named by the environment variable ``KAFKABUS_CACHE``, else the user's cache
        folder. It need not exist yet.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("kafkabus"))


def default_data_folder() -> Path:
    """Return the data folder that the command line uses by default.

    Returns:
        The folder named by the environment variable ``KAFKABUS_DATA``, else ``embedded`` in the user's data folder. It need
        not exist yet.
    """
    chosen = os.environ.get(DATA_VARIABLE)
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_data_dir("kafkabus")) / "embedded"


def make_private(folder: Path) -> None:
    """Create a folder that other users cannot read, or make an existing folder so.

    Args:
        folder: The folder; its parents are created with the usual permissions.

    Raises:
        EmbeddedRuntimeError: The folder belongs to another user, or is one that all users share.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & stat.S_ISVTX:
        raise EmbeddedRuntimeError(
            f"{folder} is a folder that users share, and would become private. Use a folder in it: {folder / 'kafkabus'}"
        )
    try:
        folder.chmod(0o700)
    except PermissionError as error:
        raise EmbeddedRuntimeError(
            f"{folder} belongs to another user, who could read and change the data in it. Use another data folder."
        ) from error


def open_private(path: str, flags: int) -> int:
    """Open a file that other users cannot read; for use as the ``opener`` of ``open``."""
    return os.open(path, flags, 0o600)


def write_private(file: Path, text: str) -> None:
    """Replace a file atomically by one that other users cannot read.

    Args:
        file: The file.
        text: The new content.
    """
    draft = file.with_name(f"{file.name}.new")
    # A file left by a killed process might be readable.
    draft.unlink(missing_ok=True)
    with open(draft, "w", opener=open_private) as opened:
        opened.write(text)
    draft.replace(file)


def scratch_folder(prefix: str = "kafkabus-") -> Path:
    """Create a folder for data that need not outlive the run, in memory if the machine allows it.

    A topic of 16 partitions needs some hundred synchronous writes, which take seconds on a slow disk.

    Args:
        prefix: The beginning of the folder's name.

    Returns:
        The folder, which the caller removes.
    """
    memory = Path("/dev/shm")  # noqa: S108 - a folder with a new name is made in it
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
