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


@pytest.mark.parametrize("page", ["spark.md", "pipelines.md"])
def test_a_page_does_what_it_says(runtime: RunningNamespace, spark: SparkSession, page: str) -> None:
    """Its blocks run one after the other, each followed by its output, if it prints any. Each of its jobs takes a second."""
    with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
        queues = {one.name for one in administration.list_queues()}
        topics = {one.name for one in administration.list_topics()}
        try:
            for printed, said in outputs(PAGES / page, runtime.connection_string):
                assert printed == said
        finally:
            for queue in {one.name for one in administration.list_queues()} - queues:
                administration.delete_queue(queue)
            for topic in {one.name for one in administration.list_topics()} - topics:
                administration.delete_topic(topic)
