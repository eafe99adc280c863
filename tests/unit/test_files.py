"""The open files that a service may have."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMITED = """
import resource, logging
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))
logging.basicConfig(level=logging.INFO)
from kafkabus.gateway.process import _connections
print(_connections(10_000), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("hard", "told", "warns"),
    [(20_000, "10000 20000 20000", False), (4_000, "2500 4000 4000", True), (900, "450 900 900", True)],
)
def test_a_gateway_takes_as_many_connections_as_it_may_have_files(hard: int, told: str, warns: bool) -> None:
    """It asks for all that the system allows. A process lowers its own limit; starting it takes half a second."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.format(hard=hard)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == told
    assert ("few_files" in done.stderr) == warns
