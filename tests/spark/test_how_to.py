"""The page docs/how-to/spark.md: its code runs, and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from pyspark.sql import SparkSession

from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from tests.spark.marks import SPARK

pytestmark = SPARK

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "spark.md"
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_does_what_it_says(runtime: RunningNamespace, spark: SparkSession) -> None:
    """Its blocks run one after the other, each followed by its output, if it prints any. Each of its jobs takes a second."""
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    variables: dict[str, object] = {"connection_string": runtime.connection_string}
    try:
        for (kind, text), (next_kind, next_text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
            if kind == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(text, str(PAGE), "exec"), variables)  # noqa: S102 - the page's own code
                assert printed.getvalue() == (next_text if next_kind == "text" else "")
    finally:
        with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
            for queue in ("orders", "payments"):
                administration.delete_queue(queue)
            administration.delete_topic("alerts")
