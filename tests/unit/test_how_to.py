"""The pages of docs/how-to: their code runs, and prints what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkabus.testing import InMemoryNamespace
from tests.pages import outputs

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to"
ELSEWHERE = {"containers.md", "doctor.md", "gateway.md", "operate.md", "pipelines.md", "spark.md"}
"""Pages whose code needs Docker, which tests/containers shows, is about a command, as test_doctor.py shows, needs a gateway, as
tests/integration/gateway shows, counts in its process from then on, as test_metrics.py shows, or need Spark, as tests/spark
shows."""
PAGES = sorted(
    page
    for page in FOLDER.glob("*.md")
    if page.name not in ELSEWHERE and "```python" in page.read_text(encoding="utf-8")
)


def test_there_are_pages() -> None:
    """Without pages the other test would show nothing."""
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path) -> None:
    """Its blocks run one after the other, each followed by its output, if it prints any."""
    with InMemoryNamespace("how-to") as namespace:
        for printed, said in outputs(page, namespace.connection_string):
            assert printed == said
