"""A pytest plugin that hands tests out to pytest-xdist's workers, of which ``make test`` has more than there are cores.

Most tests wait: for a clock, a silence, a server. Tests that start their own servers, or Spark, keep cores busy; some
workers take those first, and help with the others when they are done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

BUSY = (
    "tests/containers/",
    "tests/clients/",
    "tests/spark/",
    "tests/faults/",
    "tests/integration/test_cli.py",
    "tests/integration/test_serve.py",
    "tests/integration/facade/test_scheduled.py",
    "tests/integration/facade/test_sessions.py",
    "tests/integration/facade/test_rebuild.py",
    "tests/integration/facade/test_leaks.py",
    "tests/integration/embedded/",
    "tests/integration/facade/test_duplicates.py",
    "tests/integration/facade/test_forwarded.py",
    "tests/integration/facade/test_kafka_rights.py",
    "tests/integration/clusters/",
    "tests/integration/gateway/test_command.py",
    "tests/integration/test_doctor.py",
)
"""Tests that start their own servers, or Spark: folders and files, the longest first."""
BUSY_WORKERS = 3
"""How many workers run such tests."""
ORDER = (*BUSY, "tests/contract/", "tests/integration/")
"""The order of the tests: waiting tests beside busy ones, and short tests last, so that all workers end together."""
TOGETHER = "tests/spark/"
"""Tests that run on one worker: Spark takes longer to start than most of its tests do."""
CLUSTERS = "tests/integration/clusters/"
"""Tests of existing servers, which run on one worker: most of them share a separate Kafka."""
CONTAINERS = "tests/containers/"
"""Tests in containers, which run on one worker: the images are built once, and one container serves most of them."""
ONE_BY_ONE = (
    "tests/contract/",
    "tests/integration/ledger/test_broken_scripts.py",
    "tests/integration/ledger/test_model.py",
)
"""Files whose tests share nothing that is made once for a file, so that each test may run on any worker."""


class Scheduling(LoadScopeScheduling):
    """Give busy files to the first workers, and the tests of the others to any free worker."""

    def _split_scope(self, nodeid: str) -> str:
        for folder in (TOGETHER, CLUSTERS):
            if nodeid.startswith(folder):
                return folder
        if nodeid.startswith(CONTAINERS) or "[container" in nodeid:
            return CONTAINERS
        return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0]

    def schedule(self) -> None:
        """Begin, or go on."""
        self.config.option.loadscopereorder = False
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        # A worker that replaces a crashed one may have to do that one's work.
        wanted = next_unit(self.workqueue, number if number < self.numnodes else 0)
        if wanted is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)


def next_unit(waiting: Iterable[str], worker: int) -> str | None:
    """Return the next tests for a worker, None if there are none for it.

    Args:
        waiting: The files and tests that have no worker yet, in their order.
        worker: The worker's number, from 0.
    """
    units = [unit for unit in waiting if worker < BUSY_WORKERS or not unit.startswith(BUSY)]
    return min(units, key=_turn, default=None)


def _turn(unit: str) -> int:
    return next((turn for turn, beginning in enumerate(ORDER) if unit.startswith(beginning)), len(ORDER))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Use this scheduling for every run with several workers."""
    return Scheduling(config, log)
