"""Fixtures of Spark's tests: one session, and upkeep at their command."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.conf import RuntimeConfig

import kafkabus_spark
from kafkabus._async.context import ClientContext
from kafkabus._core.settings import parse_settings
from kafkabus.embedded.java import spark_java_home
from kafkabus.upkeep.entity_maintainer import EntityMaintainer
from kafkabus_mapping.names import EntityPath
from tests.queues import delete_new_queues
from tests.upkeep import hasten

AS_USERS_HAVE_IT = ("test_decode", "test_filters", "test_read", "test_write")
"""Files for which Spark plans and compiles queries as it does for users."""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings for the others: to compile and plan queries of a few rows takes a third of the time that they take."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that can read Kafka, and has Delta tables."""
    folder = tmp_path_factory.mktemp("spark")
    with suppress(PermissionError):
        # No other worker of a run has as much to do one after the other, and workers yield to others.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with (tmp_path_factory.getbasetemp().parent / "spark.lock").open("w") as lock:
        # The first session ever downloads the connector, and Ivy's cache does not bear two that do.
        fcntl.flock(lock, fcntl.LOCK_EX)
        session = kafkabus_spark.session(
            "tests",
            master="local[2]",
            java_home=spark_java_home(),
            java_log=folder / "java.log",
            config={
                **kafkabus_spark.delta_settings(),
                **INTERPRETED,
                "spark.local.dir": str(folder),
                # Several sessions run at a time.
                "spark.driver.memory": "1g",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
            },
        )
    try:
        yield session
    finally:
        kafkabus_spark.stop(session)


@pytest.fixture(scope="module", autouse=True)
def compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have Spark plan and compile queries in the files that are about them."""
    if request.path.stem not in AS_USERS_HAVE_IT:
        yield
        return
    settings: RuntimeConfig = request.getfixturevalue("spark").conf
    for name in INTERPRETED:
        settings.unset(name)
    yield
    for name, value in INTERPRETED.items():
        settings.set(name, value)


@pytest.fixture(scope="module", autouse=True)
def queues_left() -> Iterator[None]:
    """Leave no queue to upkeep that ``new_queue`` made."""
    yield
    delete_new_queues()


@pytest.fixture(autouse=True)
def collected_garbage() -> Iterator[None]:
    """Collect the sockets that pyspark left while their warning is still ignored, not in a later test."""
    yield
    gc.collect()


@pytest.fixture
def tend(monkeypatch: pytest.MonkeyPatch, untended: str) -> Callable[[EntityPath], None]:
    """A function that looks after an entity for long enough that checkpoints are written and records are deleted."""
    hasten(monkeypatch)

    async def look_after(path: EntityPath) -> None:
        context = ClientContext(parse_settings(untended))
        one = EntityMaintainer(context, path)
        for _ in range(3):
            await one.maintain()
        await context.close()

    return lambda path: asyncio.run(look_after(path))
