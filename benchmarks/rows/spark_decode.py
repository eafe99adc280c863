"""Reading an entity with Spark, against Spark's bare Kafka source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import JAVA_WARM_UP, Scale, interleave, rate
from benchmarks.workbench import Workbench
from kafkabus.embedded.java import spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MESSAGES = 300_000
_FEW = ("body", "message_id", "session_id", "sequence_number", "enqueued_time_utc")


def spark_decode(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure reading all columns of a queue from beginning to end; creating the DataFrame is not timed.

    The references read all columns of Spark's Kafka source over the same topic, its headers included: as it is, and with the
    fetch options that kafkabus sets. For information: Spark's newer reader with these options, which kafkabus reads by, so that
    the difference is the cost of decoding.
    """
    # Imported here because Spark takes seconds to import, and the other rows do not need it.
    from kafkabus_spark import read, session, stop
    from kafkabus_spark.kafka import FETCHING, load_records

    count = scale.count(_MESSAGES)
    with bench.queue(count) as queue:
        spark = session("benchmarks", java_home=spark_java_home(), config={"spark.log.level": "ERROR"})
        try:
            options = {
                "kafka.bootstrap.servers": str(bench.reference_options["bootstrap.servers"]),
                "subscribe": bench.topic(queue),
                "kafka.isolation.level": "read_committed",
                "includeHeaders": "true",
            }
            fetching = options | {f"kafka.{name}": value for name, value in FETCHING.items()}
            source, alike = (spark.read.format("kafka").options(**one).load() for one in (options, fetching))
            newer = load_records(spark, fetching)
            entity = read(spark, bench.connection_string, queue)
            measured = interleave(
                {
                    "source": lambda held: _read_all(source, held),
                    "kafkabus": lambda held: _read_all(entity, held),
                    "few": lambda held: _read_all(entity.select(*_FEW), held),
                    "alike": lambda held: _read_all(alike, held),
                    "newer": lambda held: _read_all(newer, held),
                },
                count,
                scale,
                warm_up=JAVA_WARM_UP,
            )
        finally:
            stop(spark)
    bare, alike_read, newer_read = (measured[name] for name in ("source", "alike", "newer"))
    for name, ours, least in (
        ("Spark, all columns of a queue", measured["kafkabus"], 0.7),
        (f"Spark, {len(_FEW)} columns", measured["few"], 0.9),
    ):
        yield compare(f"{name}: Kafka source with headers", MESSAGES_PER_SECOND, ours, bare, Budget(0.85))
        yield compare(f"{name}: Kafka source that fetches alike", MESSAGES_PER_SECOND, ours, alike_read, Budget(least))
        yield compare(f"{name}: newer reader that fetches alike", MESSAGES_PER_SECOND, ours, newer_read)


def _read_all(frame: DataFrame, count: int) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rate(count, began)
