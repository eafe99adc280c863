"""The page docs/how-to/spark.md: its code runs, and prints what it says."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from tests.pages import outputs
from tests.spark.marks import SPARK

pytestmark = SPARK

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "spark.md"


def test_the_page_does_what_it_says(runtime: RunningNamespace, spark: SparkSession) -> None:
    """Its blocks run one after the other, each followed by its output, if it prints any. Each of its jobs takes a second."""
    try:
        for printed, said in outputs(PAGE, runtime.connection_string):
            assert printed == said
    finally:
        with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
            for queue in ("orders", "payments"):
                administration.delete_queue(queue)
            administration.delete_topic("alerts")
