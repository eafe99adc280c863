"""No rule hangs or fails otherwise than it should; ``python -m tests.faults.fuzz_rules`` looks for longer."""

from __future__ import annotations

from tests.faults.fuzz_rules import fuzz


def test_what_is_no_rule_is_refused() -> None:
    """Accepted and refused rules both occur."""
    became = fuzz(7, count=3000)
    assert became.total() == 6000
    assert min(became[kind] for kind in ("refused", "not to be said", "said")) > 50, became
