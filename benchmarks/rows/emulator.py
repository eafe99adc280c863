"""The emulator's image and its container, if a Docker daemon runs and has the image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.results import NOT_INSTALLED, Budget, Result, target
from benchmarks.rounds import Scale
from benchmarks.workbench import Workbench
from kafkabus.testing.containers import IMAGE, KafkabusContainer

_SIZE_MB, _START_S, _IDLE_PERCENT = 600.0, 10.0, 5.0
"""The project's own targets."""
_STARTS = 3
_QUEUES = 20
_SETTLED_AFTER_S = 30.0
_WATCHED_FOR_S = 60.0
_SIZE = f"emulator's image: {_SIZE_MB:g} MB"
_START = f"emulator, until a new container serves: {_START_S:g} s"
_IDLE = f"emulator, {_QUEUES} idle partitioned queues, of a core: {_IDLE_PERCENT:g} %"
_UNITS = {_SIZE: "MB", _START: "s", _IDLE: "%"}


def emulator(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure the image's size, the time until a container serves, and what an idle one takes; the references are targets."""
    size = _size()
    if size is None:
        budget = Budget(1.0, at_most=True)
        yield from (Result(name, None, unit, budget=budget, note=NOT_INSTALLED) for name, unit in _UNITS.items())
        return
    # Its reaper of containers is a separate image, which not all machines can pull.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    entities = _file_of_queues(bench.scratch / "Config.json")
    yield target(_SIZE, _UNITS[_SIZE], size / 1e6, _SIZE_MB)
    yield target(_START, _UNITS[_START], median(_start(entities) for _ in range(_STARTS)), _START_S)
    yield target(_IDLE, _UNITS[_IDLE], _take_while_idle(entities, min(1.0, scale.part * 4)), _IDLE_PERCENT)


def _size() -> int | None:
    """Return the image's size in bytes; None if it is not here."""
    if shutil.which("docker") is None:
        return None
    asked = ["docker", "image", "inspect", "--format", "{{.Size}}", IMAGE]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return None if found.returncode else int(found.stdout)


def _file_of_queues(file: Path) -> Path:
    queues = [{"Name": f"q{number}", "Properties": {"EnablePartitioning": True}} for number in range(_QUEUES)]
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "any", "Queues": queues}]}}))
    file.chmod(0o644)
    # The container's user, who is another one, must find it.
    file.parent.chmod(0o755)
    return file


def _start(entities: Path) -> float:
    began = time.perf_counter()
    with KafkabusContainer(entities=entities):
        return time.perf_counter() - began


def _take_while_idle(entities: Path, part: float) -> float:
    """Return the processor time that a container takes while nothing happens, in percent of one core."""
    with KafkabusContainer(entities=entities) as container:
        time.sleep(_SETTLED_AFTER_S * part)
        began, before = time.monotonic(), _processor_time(container)
        time.sleep(_WATCHED_FOR_S * part)
        return (_processor_time(container) - before) / (time.monotonic() - began) * 100


def _processor_time(container: KafkabusContainer) -> float:
    """Return the processor time that a container's processes have taken, in seconds."""
    stats: Any = container.get_wrapped_container().stats(stream=False)
    return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9
