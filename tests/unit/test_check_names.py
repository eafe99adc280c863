"""The check of names in the documentation finds those that the sources do not have."""

from __future__ import annotations

import pytest

from tools.check_names import Sources, pages, read_sources, stale_names

SOURCES = Sources(
    names=frozenset({"LedgerClient", "execute", "max_delivery_count", "KAFKABUS_SASL_PASSWORD", "cluster.json"}),
    paths=frozenset({"facade/kafkabus/_redis/probe.py", "tests/golden/format-1/layout.json", "Makefile"}),
    members={"LedgerClient": frozenset({"execute"})},
)


@pytest.mark.parametrize(
    "text",
    [
        "`LedgerClient.execute` and `max_delivery_count=10`",
        "`_redis/probe.py`, `probe.py`, `facade/kafkabus/_redis`, `_redis/` and `facade/*/_redis/*.py`",
        "`tests/golden/format-<N>/layout.json`",
        "`cluster.json`, a file that code writes",
        "`KAFKABUS_SASL_…`",
        "`orders`, `$deadletterqueue`, `orders/$deadletterqueue`, `Redis`",
        "`kafka-acls.sh --add`, a program of Kafka's, and `ClassCastException`",
        "words outside of quotes: LedgerMaker, make_ledger",
        "```python\nmake_ledger()\n```",
    ],
)
def test_known_names_pass(text: str) -> None:
    """Names of the sources, of others, and words that are no names of code are not reported."""
    assert list(stale_names(text, SOURCES)) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("`LedgerMaker`", "LedgerMaker"),
        ("`make_ledger()`", "make_ledger"),
        ("`LedgerClient.build`", "LedgerClient.build"),
        ("`_redis/look.py`", "_redis/look.py"),
        ("`probes.py`", "probes.py"),
        ("`facade/kafkabus/aio`", "facade/kafkabus/aio"),
        ("`_acompat/`", "_acompat/"),
        ("`KAFKABUS_TLS_…`", "KAFKABUS_TLS_"),
    ],
)
def test_stale_names_are_found(text: str, name: str) -> None:
    """Each is reported with its line."""
    (stale,) = stale_names(f"A line.\n\nA name: {text}.\n", SOURCES)
    assert (stale.line, stale.name) == (3, name)


def test_the_documentation_has_no_stale_names() -> None:
    """The sources have all names in its back quotes."""
    sources = read_sources()
    found = [
        f"{page.name}:{stale.line}: {stale.name}"
        for page in pages(sources.paths)
        for stale in stale_names(page.read_text("utf-8"), sources)
    ]
    assert found == []
