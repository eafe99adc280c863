"""Folders of downloaded servers, in the user's cache folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from kafkabus.embedded import cache_folder


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache. If it is missing, a function fills a draft of it, which then takes its place.

    Args:
        name: The folder's name.
        fill: The function, which gets the draft.
    """
    home = cache_folder() / "matrix" / name
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=home.parent))
    try:
        fill(draft)
        draft.chmod(0o755)
        draft.rename(home)
    except OSError:
        # Another run may have been faster.
        if not home.exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return home
