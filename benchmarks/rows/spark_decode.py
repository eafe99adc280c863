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
    """All columns of a queue, read from beginning to end and thrown away; making the DataFrame is not timed.

    The reference reads all columns of Spark's Kafka source over the same topic, its headers included. For information:
    five columns of the queue, and the source without headers, which it leaves out unless it is asked for them.
    """
    # Spark takes seconds to import, which the other rows need not wait for.
    from kafkabus_spark import read, session, stop

    count = scale.count(_MESSAGES)
    with bench.queue(count) as queue:
        spark = session("benchmarks", java_home=spark_java_home(), config={"spark.log.level": "ERROR"})
        try:
            bare = (
                spark.read.format("kafka")
                .option("kafka.bootstrap.servers", str(bench.reference_options["bootstrap.servers"]))
                .option("subscribe", bench.topic(queue))
                .option("kafka.isolation.level", "read_committed")
            )
            source, headless = (bare.option("includeHeaders", wanted).load() for wanted in ("true", "false"))
            entity = read(spark, bench.connection_string, queue)
            measured = interleave(
                {
                    "source": lambda held: _read_all(source, held),
                    "kafkabus": lambda held: _read_all(entity, held),
                    "few": lambda held: _read_all(entity.select(*_FEW), held),
                    "headless": lambda held: _read_all(headless, held),
                },
                count,
                scale,
            )
        finally:
            stop(spark)
    ours, few, bare_source = measured["kafkabus"], measured["few"], measured["source"]
    name = "Spark, all columns of a queue"
    yield compare(f"{name}: Kafka source with headers", MESSAGES_PER_SECOND, ours, bare_source, Budget(0.85))
    yield compare(f"{name}: Kafka source without headers", MESSAGES_PER_SECOND, ours, measured["headless"])
    yield compare(f"Spark, {len(_FEW)} columns: Kafka source with headers", MESSAGES_PER_SECOND, few, bare_source)


def _read_all(frame: DataFrame, count: int) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rate(count, began)
