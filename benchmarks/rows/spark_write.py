"""Sending messages with Spark, against Spark's bare Kafka sink."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.results import MESSAGES_PER_SECOND, Budget, Result, compare
from benchmarks.rounds import JAVA_WARM_UP, Scale, interleave, rate
from benchmarks.workbench import BODY, PARTITIONS, Workbench
from kafkabus.embedded.java import spark_java_home

_MESSAGES = 400_000


def spark_write(bench: Workbench, scale: Scale) -> Iterator[Result]:
    """Measure sending a frame that Spark holds in memory, from the call to its return.

    The reference is Spark's Kafka sink as it is, for a frame in memory that has the keys, values, headers and partitions
    already, made as kafkabus makes them. For information: the sink with the options of the producer that kafkabus sets, so that
    the difference is the cost of checking and encoding. The messages are of 1 KB, and have an id, a partition key, a subject
    and two application properties.
    """
    # Imported here because Spark takes seconds to import, and the other rows do not need it.
    from pyspark.sql import functions as F

    from kafkabus_mapping.formats import LATEST
    from kafkabus_spark import session, stop, write
    from kafkabus_spark.encoding import SINK, EntityRules, encode_messages
    from kafkabus_spark.writer import PRODUCING

    count = scale.count(_MESSAGES)
    with bench.queue() as queue:
        spark = session("benchmarks", java_home=spark_java_home(), config={"spark.log.level": "ERROR"})
        try:
            messages = (
                spark.range(count)
                .select(
                    F.lit(BODY).alias("body"),
                    F.concat(F.lit("message-"), "id").alias("message_id"),
                    F.concat(F.lit("key-"), F.col("id") % 1000).alias("partition_key"),
                    F.lit("ordered").alias("subject"),
                    F.create_map(F.lit("shop"), F.lit("web"), F.lit("number"), F.col("id").cast("string")).alias(
                        "application_properties"
                    ),
                )
                .persist()
            )
            made = encode_messages(messages, EntityRules(queue, PARTITIONS, False, False, 256 * 1024, LATEST))
            records = made.select(*(F.col(own).alias(name) for name, own in SINK.items())).persist()
            for frame in (messages, records):
                frame.count()  # Spark holds it from now on.
            options = {
                "kafka.bootstrap.servers": str(bench.reference_options["bootstrap.servers"]),
                "topic": bench.topic(queue),
                "includeHeaders": "true",
            }
            producing = options | {f"kafka.{name}": value for name, value in PRODUCING.items()}

            def through_the_sink(held: int, options: dict[str, str]) -> float:
                began = time.perf_counter()
                records.write.format("kafka").options(**options).save()
                return rate(held, began)

            def through_kafkabus(held: int) -> float:
                began = time.perf_counter()
                write(messages, bench.connection_string, queue)
                return rate(held, began)

            measured = interleave(
                {
                    "sink": lambda held: through_the_sink(held, options),
                    "alike": lambda held: through_the_sink(held, producing),
                    "kafkabus": through_kafkabus,
                },
                count,
                scale,
                warm_up=JAVA_WARM_UP,
            )
        finally:
            stop(spark)
    ours, name = measured["kafkabus"], "Spark, sending a frame: Kafka sink"
    yield compare(f"{name} with records made beforehand", MESSAGES_PER_SECOND, ours, measured["sink"], Budget(0.8))
    yield compare(f"{name} that produces alike", MESSAGES_PER_SECOND, ours, measured["alike"])
