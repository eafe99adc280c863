"""A real Kafka and a real Redis on this machine, without installing either.

`EmbeddedRuntime` runs them as long as the program that starts it; `up` keeps them running until
`down`.
"""

from __future__ import annotations

try:
    from kafkabus.embedded.daemon import RunningNamespace, down, status, up
    from kafkabus.embedded.errors import EmbeddedRuntimeError
    from kafkabus.embedded.exposure import Exposure, Listener
    from kafkabus.embedded.folders import cache_folder, default_data_folder, scratch_folder
    from kafkabus.embedded.runtime import EmbeddedRuntime
except ModuleNotFoundError as missing:
    if missing.name not in {"platformdirs", "psutil"}:
        raise
    raise ModuleNotFoundError(
        f'The embedded runtime needs {missing.name}. Run: pip install "kafkabus[embedded]"',
        name=missing.name,
    ) from missing

__all__ = [
    "EmbeddedRuntime",
    "EmbeddedRuntimeError",
    "Exposure",
    "Listener",
    "RunningNamespace",
    "cache_folder",
    "default_data_folder",
    "down",
    "scratch_folder",
    "status",
    "up",
]
