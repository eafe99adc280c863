"""One Spark session for all of Spark's tests."""

from __future__ import annotations

import fcntl
import gc
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import kafkabus_spark
from kafkabus.embedded.java import spark_java_home
from tests.queues import delete_new_queues


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session that can read Kafka."""
    folder = tmp_path_factory.mktemp("spark")
    with (tmp_path_factory.getbasetemp().parent / "spark.lock").open("w") as lock:
        # The first session ever downloads the connector, and Ivy's cache does not bear two that do.
        fcntl.flock(lock, fcntl.LOCK_EX)
        session = kafkabus_spark.session(
            "tests",
            master="local[2]",
            java_home=spark_java_home(),
            java_log=folder / "java.log",
            config={"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")},
        )
    try:
        yield session
    finally:
        kafkabus_spark.stop(session)


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
