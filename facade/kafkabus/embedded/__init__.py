"""A real Kafka and a real Redis on this machine, without installing either.

`EmbeddedRuntime` runs them for as long as the program that asks for them; `up` has them run on
until `down`.
"""

from __future__ import annotations

import importlib.util

for _library in ("platformdirs", "psutil"):
    if importlib.util.find_spec(_library) is None:
        raise ModuleNotFoundError(
            f'The embedded runtime needs {_library}. Run: pip install "kafkabus[embedded]"',
            name=_library,
        )

from kafkabus.embedded.daemon import RunningNamespace, down, status, up
from kafkabus.embedded.errors import EmbeddedRuntimeError
from kafkabus.embedded.folders import cache_folder, default_data_folder
from kafkabus.embedded.runtime import EmbeddedRuntime

__all__ = [
    "EmbeddedRuntime",
    "EmbeddedRuntimeError",
    "RunningNamespace",
    "cache_folder",
    "default_data_folder",
    "down",
    "status",
    "up",
]
