"""The pipelines as commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import kafkabus_spark
from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus.embedded.java import spark_java_home
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from kafkabus_spark.pipelines import __main__ as pipelines
from tests.contract.receiving import take
from tests.queues import new_queue
from tests.spark.marks import SPARK

pytestmark = SPARK


@pytest.fixture(scope="module")
def queue(runtime: RunningNamespace) -> str:
    """The name of a queue of 8 messages, two of them dead letters."""
    name = new_queue(runtime.connection_string, enable_partitioning=True)
    with ServiceBusClient.from_connection_string(runtime.connection_string) as client:
        client.get_queue_sender(name).send_messages(
            [ServiceBusMessage(f'{{"dest": "{number % 2}"}}', message_id=f"{number}") for number in range(8)]
        )
        with client.get_queue_receiver(name) as receiver:
            for message in take(receiver, 8)[:2]:
                receiver.dead_letter_message(message, reason="Late")
    return name


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, runtime: RunningNamespace, spark: SparkSession) -> Callable[..., str]:
    """A function that runs a command in the tests' session, as it does in that of ``spark-submit``; returns what it prints."""
    assert spark.version
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv(CONNECTION_STRING_VARIABLE, runtime.connection_string)

    def run(*arguments: object) -> str:
        result = CliRunner().invoke(pipelines.app, [str(one) for one in arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_a_table_is_captured_and_compacted(run: Callable[..., str], queue: str, tmp_path: Path) -> None:
    """The commands say what came of it."""
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    said = run("capture", queue, table, "--checkpoint", checkpoint, "--batch", 4)
    assert said == f"{table} has 8 messages of {queue}.\n"
    assert re.fullmatch(
        r"\d+ files became 1\.\n", run("compact", table, "--checkpoint", checkpoint, "--before", "9999-01-01")
    )


def test_reports_are_printed_and_drawn(run: Callable[..., str], queue: str, tmp_path: Path) -> None:
    """Each has its table and its picture."""
    destination = "get_json_object(cast(body AS string), '$.dest')"
    for number, (what, *options) in enumerate(
        (
            ("partitions", "--every", "1 day"),
            ("sessions", "--every", "1 day", "--session", destination),
            ("dead-letters",),
            ("reconcile",),
        )
    ):
        picture = tmp_path / f"{number}.png"
        said = run(what, queue, *options, "--picture", picture)
        assert said.startswith("+-")
        assert said.endswith(f"Picture: {picture}\n")
        assert picture.read_bytes().startswith(b"\x89PNG")
        if what == "dead-letters":
            assert re.search(r"\|\s*Late\|", said)
        if what == "reconcile":
            assert "messages 8, " in said


def test_messages_are_sent_again(
    run: Callable[..., str], runtime: RunningNamespace, queue: str, tmp_path: Path
) -> None:
    """The commands say how many were sent."""
    target = new_queue(runtime.connection_string)
    said = run("resubmit", queue, "--checkpoint", tmp_path, "--target", target)
    assert said == f"2 dead letters were sent to {target}.\n"
    assert run("resubmit", queue, "--checkpoint", tmp_path, "--target", target).startswith("0 dead letters")
    assert run("replay", queue, target, "--until", "9999-01-01") == f"8 messages were sent to {target}.\n"


def test_a_mistake_is_one_line() -> None:
    """A queue that does not exist is named, without a trace."""

    def run() -> None:
        raise kafkabus_spark.EntityNotFoundError("there is no queue or topic 'order'")

    with pytest.raises(SystemExit, match=r"^kafkabus: there is no queue or topic 'order'$"):
        pipelines.main(run)


def test_a_picture_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before Spark starts."""

    def find(name: str) -> None:
        assert name == "matplotlib"

    monkeypatch.setattr(pipelines, "find_spec", find)
    result = CliRunner().invoke(pipelines.app, ["reconcile", "x", "--connection", "y", "--picture", "z.png"])
    assert result.exit_code == 2
    assert "pip install 'kafkabus[pictures]'" in " ".join(result.output.replace("│", " ").split())


@pytest.mark.extended  # It starts Spark by its own script, which takes 20 seconds.
def test_a_pipeline_runs_by_spark_submit(runtime: RunningNamespace, queue: str, spark: SparkSession) -> None:
    """With the connector as a package, the way that the page says."""
    assert spark.version  # The connector is there from now on.
    done = subprocess.run(
        [
            f"{Path(pyspark.__file__).parent}/bin/spark-submit",
            *("--packages", kafkabus_spark.connector_package(), pipelines.__file__, "reconcile", queue),
        ],
        env={
            **os.environ,
            **({"JAVA_HOME": str(home)} if (home := spark_java_home()) else {}),
            "PYSPARK_PYTHON": sys.executable,
            CONNECTION_STRING_VARIABLE: runtime.connection_string,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "messages 8, " in done.stdout, done.stderr[-2000:]
