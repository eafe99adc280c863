"""Filters in Spark have the same results as filters in receivers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafkabus_mapping.codec import Envelope, decode_headers, encode_headers
from kafkabus_mapping.filters.evaluate import FilterEvaluationError, MessageSubject, compile_condition
from kafkabus_mapping.filters.nodes import SYSTEM_PROPERTIES, Value
from kafkabus_mapping.filters.parse import DEEPEST, LONGEST_TEXT, LOOKUP_DEPTH, parse_filter
from kafkabus_spark.columns import filterable, prepare_records
from kafkabus_spark.kafka import KAFKA_SCHEMA
from kafkabus_spark.predicate import ERROR, FALSE, TRUE, UNKNOWN, application_property, equals, predicate
from tests import filters as corpus
from tests import generated_filters as generated
from tests.effort import SEED, effort
from tests.spark.marks import SPARK

pytestmark = SPARK

CODES = {True: TRUE, False: FALSE, None: UNKNOWN, corpus.ERROR: ERROR}
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much)
FILTERS, MESSAGES = 20, 20
"""How many filters and messages there are in a job that compares both evaluators."""
LONG = b"\xff" * 60
"""Bytes whose base64 Spark 4.0 breaks into two lines."""


def frame_of(spark: SparkSession, subjects: Sequence[MessageSubject], time_to_live: timedelta | None) -> DataFrame:
    """Return a frame of messages as filters see them; their topics are their numbers."""
    rows = [
        (
            None,
            b"x" * subject.size,
            str(number),
            0,
            subject.sequence_number - 1,
            subject.enqueued_at,
            0,
            headers_of(subject),
        )
        for number, subject in enumerate(subjects)
    ]
    steps = prepare_records(spark.createDataFrame(rows, KAFKA_SCHEMA))
    return filterable(steps, sorted(set(SYSTEM_PROPERTIES.values())), time_to_live)


def headers_of(subject: MessageSubject) -> list[tuple[str, bytes | None]]:
    """Return a message's headers as Kafka holds them, and some of another system, which are properties too."""
    foreign = [("Foreign", b"\xff"), ("foreign", None), ("t", b"hidden"), ("Long", LONG), ("ce_type", b"aA%")]
    own = encode_headers(subject.envelope)
    return [*foreign, *own]


def said_by_spark(frame: DataFrame, texts: Sequence[str], parameters: dict[str, Value]) -> list[list[int]]:
    """Return the result of each filter for each message, by Spark."""
    codes = [F.expr(predicate(parse_filter(text), parameters)) for text in texts]
    rows = frame.select(F.col("topic").cast("int").alias("number"), F.array(*codes).alias("codes")).collect()
    return [list(row["codes"]) for row in sorted(rows, key=lambda row: int(row["number"]))]


def said_by_a_receiver(subject: MessageSubject, text: str) -> int:
    """Return the result of a filter for a message that was read from Kafka."""
    envelope = decode_headers(headers_of(subject), key=None, place="")
    read = MessageSubject(envelope, subject.sequence_number, subject.enqueued_at, subject.size, subject.time_to_live)
    try:
        return CODES[compile_condition(parse_filter(text), generated.PARAMETERS)(read)]
    except FilterEvaluationError:
        return ERROR


def test_the_corpus_holds_in_spark(spark: SparkSession) -> None:
    """The corpus has each production of the grammar and each rule about types. ``make test`` tries each fourth filter."""
    frame = frame_of(spark, [corpus.SUBJECT], corpus.SUBJECT.time_to_live)
    texts = list(corpus.HOLDS)[SEED % effort(4, 1) :: effort(4, 1)]
    (said,) = said_by_spark(frame, texts, corpus.PARAMETERS)
    wanted = [CODES[corpus.HOLDS[text]] for text in texts]
    assert dict(zip(texts, said, strict=True)) == dict(zip(texts, wanted, strict=True))


def compare(spark: SparkSession, number: int, examples: int) -> int:
    """Have Spark and receivers apply filters to made-up messages; return the number of compared pairs.

    Args:
        spark: A session.
        number: A seed, with which the same is done every time.
        examples: How many jobs there are to be.

    Raises:
        AssertionError: Their results differed.
    """
    pairs = 0

    @seed(number)
    @settings(max_examples=examples, deadline=None, suppress_health_check=SLOW, database=None)
    @given(
        st.lists(generated.subjects(), min_size=MESSAGES, max_size=MESSAGES),
        st.lists(generated.filters(), min_size=FILTERS, max_size=FILTERS),
        st.none() | st.just(timedelta(minutes=1)),
    )
    def agree(subjects: list[MessageSubject], texts: list[str], time_to_live: timedelta | None) -> None:
        nonlocal pairs
        for subject in subjects:
            subject.time_to_live = time_to_live
        rows = said_by_spark(frame_of(spark, subjects, time_to_live), texts, generated.PARAMETERS)
        for subject, said in zip(subjects, rows, strict=True):
            wanted = [said_by_a_receiver(subject, text) for text in texts]
            assert dict(zip(texts, said, strict=True)) == dict(zip(texts, wanted, strict=True)), subject
            pairs += len(texts)

    agree()
    return pairs


def test_both_evaluators_agree(spark: SparkSession) -> None:
    """They agree on 800 pairs of a message and a filter, in ``make test-all`` on 10,000."""
    examples = effort(2, 25)
    assert compare(spark, SEED, examples) >= examples * FILTERS * MESSAGES


def test_a_text_may_be_as_long_in_spark(spark: SparkSession) -> None:
    """The test compares a text that is put together."""
    subject = MessageSubject(Envelope(application_properties={"half": "x" * (LONGEST_TEXT // 2)}))
    texts = ["half + half = ''", "half + half + 'x' = ''"]
    assert [said_by_a_receiver(subject, text) for text in texts] == [FALSE, ERROR]
    assert said_by_spark(frame_of(spark, [subject], None), texts, {}) == [[FALSE, ERROR]]


def test_long_bytes_are_equal_in_spark(spark: SparkSession) -> None:
    """A correlation filter compares bytes: those of an application property, and those of another system's header."""
    frame = frame_of(spark, [MessageSubject(Envelope(application_properties={"own": LONG}))], None)
    (said,) = frame.select(
        *(F.expr(equals(application_property(name), LONG)) for name in ("'own'", "'long'"))
    ).collect()
    assert tuple(said) == (True, True)


@pytest.mark.extended
def test_a_filter_may_be_as_deep_in_spark(spark: SparkSession) -> None:
    """It may be as deep as the parser allows."""
    frame = frame_of(spark, [corpus.SUBJECT], None)
    texts = ["NOT " * (DEEPEST - 2) + "1 = 1", "price" + "+1" * (DEEPEST - 4) + f" = {12 + DEEPEST - 4}"]
    lookups = DEEPEST // LOOKUP_DEPTH - 1
    texts.append("p(" * lookups + "missing" + ")" * lookups + " IS NULL")
    assert said_by_spark(frame, texts, {}) == [[TRUE, TRUE, TRUE]]
    long = f"color LIKE '{'%_' * 300}'"
    assert said_by_spark(frame, [long, " OR ".join(["a=1"] * 140)], {}) == [[FALSE, UNKNOWN]]
