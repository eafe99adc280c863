"""Where the embedded runtime keeps what it downloads and what its servers store."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import platformdirs

from kafkabus.embedded.errors import EmbeddedRuntimeError

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


def make_private(folder: Path) -> None:
    """Make a folder that other users may not look into, or keep them from one that is there.

    Args:
        folder: The folder; the folders above it are made as usual.

    Raises:
        EmbeddedRuntimeError: It is another user's, or one that all users have in common.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & stat.S_ISVTX:
        raise EmbeddedRuntimeError(
            f"{folder} is a folder that users have in common, and would be theirs no more. Use one in it: {folder / 'kafkabus'}"
        )
    try:
        folder.chmod(0o700)
    except PermissionError as error:
        raise EmbeddedRuntimeError(
            f"{folder} belongs to another user, who could read and change the data in it. Use another data folder."
        ) from error


def open_private(path: str, flags: int) -> int:
    """Open a file that other users may not read, as the ``opener`` of ``open``."""
    return os.open(path, flags, 0o600)


def write_private(file: Path, text: str) -> None:
    """Replace a file in one step by one that other users may not read.

    Args:
        file: The file.
        text: What it is to hold.
    """
    draft = file.with_name(f"{file.name}.new")
    # One that a killed process left might be readable.
    draft.unlink(missing_ok=True)
    with open(draft, "w", opener=open_private) as opened:
        opened.write(text)
    draft.replace(file)


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
