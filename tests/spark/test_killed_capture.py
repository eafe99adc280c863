"""A stream that is killed again and again writes each message once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import RunningNamespace
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from tests.queues import new_queue
from tests.spark.marks import SPARK

# It starts Spark eleven times for each format, which takes five minutes.
pytestmark = [*SPARK, pytest.mark.extended, pytest.mark.timeout(1200)]

KILLS = 10
MESSAGES = 4_000
PATIENCE = 240.0


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_a_killed_stream_writes_each_message_once(runtime: RunningNamespace, tmp_path: Path, table_format: str) -> None:
    """It is killed at a random time after it has come a step further, with all that it started."""
    connection = runtime.connection_string
    queue = new_queue(connection, enable_partitioning=True)
    with ServiceBusClient.from_connection_string(connection) as client, client.get_queue_sender(queue) as sender:
        for first in range(0, MESSAGES, 500):
            sender.send_messages(
                [ServiceBusMessage(b"x" * 100, message_id=f"{number}") for number in range(first, first + 500)]
            )
    command = [sys.executable, "-m", "tests.spark.capturing", queue, str(tmp_path), table_format]
    environment = {**os.environ, CONNECTION_STRING_VARIABLE: connection}
    rng = random.Random(33)
    offsets = tmp_path / "checkpoint" / "offsets"
    for _ in range(KILLS):
        before = len(list(offsets.glob("[0-9]*")))
        with (tmp_path / "spark.log").open("ab") as log:
            program = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + PATIENCE
        while len(list(offsets.glob("[0-9]*"))) == before:
            assert time.monotonic() < until, (tmp_path / "spark.log").read_text()[-2000:]
            assert program.poll() is None
            time.sleep(0.05)
        time.sleep(rng.random())
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    done = subprocess.run(
        [*command, "once"], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {"1": MESSAGES}
