"""The pages about Spark in docs/how-to: their code runs, and prints what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from tests.pages import outputs
from tests.spark.marks import SPARK

pytestmark = SPARK

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"


@pytest.mark.parametrize(
    ("page", "queues", "topics"),
    [
        ("spark.md", ("orders", "payments"), ("alerts",)),
        pytest.param("pipelines.md", ("orders", "trial"), (), marks=pytest.mark.extended),
    ],
)
def test_a_page_does_what_it_says(
    runtime: RunningNamespace, spark: SparkSession, page: str, queues: tuple[str, ...], topics: tuple[str, ...]
) -> None:
    """Its blocks run one after the other, each followed by its output, if it prints any. Each of its jobs takes a second."""
    try:
        for printed, said in outputs(PAGES / page, runtime.connection_string):
            assert printed == said
    finally:
        # Other tests have entities in the namespace at the same time.
        with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
            for queue in queues:
                administration.delete_queue(queue)
            for topic in topics:
                administration.delete_topic(topic)
