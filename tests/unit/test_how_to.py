"""The pages of docs/how-to: their code runs, and prints what they say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from kafkabus.testing import InMemoryNamespace

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to"
ELSEWHERE = {"containers.md", "doctor.md", "gateway.md", "operate.md", "spark.md"}
"""Pages whose code needs Docker, which tests/containers shows, is about a command, as test_doctor.py shows, needs a gateway, as
tests/integration/gateway shows, counts in its process from then on, as test_metrics.py shows, or needs Spark, as tests/spark
shows."""
PAGES = sorted(
    page
    for page in FOLDER.glob("*.md")
    if page.name not in ELSEWHERE and "```python" in page.read_text(encoding="utf-8")
)

_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_there_are_pages() -> None:
    """Without pages the other test would show nothing."""
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path) -> None:
    """Its blocks run one after the other, each followed by its output, if it prints any."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    with InMemoryNamespace("how-to") as namespace:
        variables: dict[str, object] = {"connection_string": namespace.connection_string}
        for (kind, text), (next_kind, next_text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
            if kind == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(text, str(page), "exec"), variables)  # noqa: S102 - the page's own code
                assert printed.getvalue() == (next_text if next_kind == "text" else "")
