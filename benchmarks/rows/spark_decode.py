"""Reading an entity with Spark, against Spark's bare Kafka source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import Scale, interleave, rate
from benchmarks.workbench import Workbench
from kafkabus.embedded.java import spark_java_home
from kafkabus_spark import read, session, stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MESSAGES = 200_000


def spark_decode(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """All columns of a queue, read from beginning to end and thrown away.

    The reference reads all columns of Spark's Kafka source over the same topic, its headers included. For information:
    without headers, which that source leaves out unless it is asked for them.
    """
    count = scale.count(_MESSAGES)
    with bench.queue(count) as queue:
        spark = session("benchmarks", java_home=spark_java_home())
        try:
            bare = (
                spark.read.format("kafka")
                .option("kafka.bootstrap.servers", str(bench.reference_options["bootstrap.servers"]))
                .option("subscribe", bench.topic(queue))
                .option("kafka.isolation.level", "read_committed")
            )
            measured = interleave(
                {
                    "source": lambda held: _read_all(bare.option("includeHeaders", "true").load(), held),
                    "kafkabus": lambda held: _read_all(read(spark, bench.connection_string, queue), held),
                    "no headers": lambda held: _read_all(bare.option("includeHeaders", "false").load(), held),
                },
                count,
                scale,
            )
        finally:
            stop(spark)
    ours = measured["kafkabus"]
    name = "Spark, all columns of a queue"
    yield compare(f"{name}: Kafka source with headers", MESSAGES_PER_SECOND, ours, measured["source"], Budget(0.85))
    yield compare(f"{name}: Kafka source without headers", MESSAGES_PER_SECOND, ours, measured["no headers"])


def _read_all(frame: DataFrame, count: int) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rate(count, began)
