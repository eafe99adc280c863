"""Reading an entity with Spark, against Spark's bare Kafka source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave, rate
from benchmarks.workbench import Workbench
from kafkabus.embedded.java import spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MESSAGES = 300_000
_FEW = ("body", "message_id", "session_id", "sequence_number", "enqueued_time_utc")


def spark_decode(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure reading all columns of a queue from beginning to end; creating the DataFrame is not timed.

    The reference reads all columns of Spark's Kafka source over the same topic, its headers included. For information:
    five columns of the queue; and all columns against a source with kafkabus's fetch options, so that the difference is the
    cost of decoding.
    """
    # Imported here because Spark takes seconds to import, and the other rows do not need it.
    from kafkabus_spark import read, session, stop
    from kafkabus_spark.reader import FETCHING

    count = scale.count(_MESSAGES)
    with bench.queue(count) as queue:
        spark = session("benchmarks", java_home=spark_java_home(), config={"spark.log.level": "ERROR"})
        try:
            bare = (
                spark.read.format("kafka")
                .option("kafka.bootstrap.servers", str(bench.reference_options["bootstrap.servers"]))
                .option("subscribe", bench.topic(queue))
                .option("kafka.isolation.level", "read_committed")
                .option("includeHeaders", "true")
            )
            fetching = {f"kafka.{name}": value for name, value in FETCHING.items()}
            source, alike = bare.load(), bare.options(**fetching).load()
            entity = read(spark, bench.connection_string, queue)
            measured = interleave(
                {
                    "source": lambda held: _read_all(source, held),
                    "kafkabus": lambda held: _read_all(entity, held),
                    "few": lambda held: _read_all(entity.select(*_FEW), held),
                    "alike": lambda held: _read_all(alike, held),
                },
                count,
                scale,
            )
        finally:
            stop(spark)
    ours, few, bare_source = measured["kafkabus"], measured["few"], measured["source"]
    name = "Spark, all columns of a queue"
    yield compare(f"{name}: Kafka source with headers", MESSAGES_PER_SECOND, ours, bare_source, Budget(0.85))
    yield compare(f"{name}: Kafka source that fetches alike", MESSAGES_PER_SECOND, ours, measured["alike"])
    yield compare(f"Spark, {len(_FEW)} columns: Kafka source with headers", MESSAGES_PER_SECOND, few, bare_source)


def _read_all(frame: DataFrame, count: int) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rate(count, began)
