"""Benchmarks' results are computed from given measurements; nothing is measured here."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count as numbers
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks import rabbit
from benchmarks.page import BEGIN, END, cells, with_results
from benchmarks.plots import draw
from benchmarks.results import NOT_INSTALLED, Budget, Curve, Result, compare, ratio_of, to_json
from benchmarks.rounds import Scale, interleave
from benchmarks.rows import WORKS

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.workbench import Workbench

KEPT = compare("kept", "messages/s", [60.0, 80.0, 70.0], [100.0, 100.0, 100.0], Budget(0.6))
MISSED = compare("missed", "ms", [4.0], [1.0], Budget(3, at_most=True))
MISSING = Result("missing", None, "messages/s", budget=Budget(5), note=NOT_INSTALLED)


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # The ratio of the medians would be 1: a disturbance that hits both sides of a round must cancel out.
    assert ratio_of([10.0, 200.0, 20.0], [20.0, 100.0, 10.0]) == 2.0


def test_rounds_without_a_partner_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        ratio_of([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="no rounds"):
        ratio_of([], [])


@pytest.mark.parametrize(
    ("budget", "ratio", "met"),
    [
        (Budget(0.6), 0.59, False),
        (Budget(0.6), 0.6, True),
        (Budget(3, at_most=True), 3.0, True),
        (Budget(3, at_most=True), 3.01, False),
    ],
)
def test_a_budget_is_kept_at_its_limit_and_on_its_side(budget: Budget, ratio: float, met: bool) -> None:
    assert Result("row", 1.0, "ms", 1.0, ratio, budget).met is met


def test_a_row_without_budget_or_reference_has_no_verdict() -> None:
    assert compare("row", "ms", [1.0], [2.0]).met is None
    assert MISSING.met is None


def test_the_json_is_a_list_of_objects_with_the_same_eight_keys() -> None:
    rows = json.loads(to_json([KEPT, MISSED, MISSING], "a day"))
    assert rows[0] == {
        "name": "kept",
        "value": 70.0,
        "unit": "messages/s",
        "reference": 100.0,
        "ratio": 0.7,
        "budget": 0.6,
        "met": True,
        "measured": "a day",
    }
    assert [list(row) for row in rows] == [list(rows[0])] * 3
    assert [rows[2][key] for key in ("value", "reference", "ratio", "met")] == [None] * 4


def test_the_page_keeps_what_stands_around_the_results() -> None:
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\n## What was tried\n"
    once = with_results(page, {"Date": "a day"}, [KEPT])
    assert once.startswith(f"# Title\n\n{BEGIN}\n")
    assert once.endswith(f"{END}\n\n## What was tried\n")
    assert "| kept | 70 messages/s | 100 messages/s | 0.70 | ≥ 0.6 | yes | a day |" in once.splitlines()
    assert "| Date | a day |" in once.splitlines()
    assert "old" not in once
    assert with_results(once, {"Date": "a day"}, [KEPT]) == once


def test_rows_that_were_not_measured_stay_as_they_were() -> None:
    page = with_results(f"{BEGIN}{END}", {"Date": "a day", "Load": "1"}, [KEPT, MISSED])
    slower = compare("kept", "messages/s", [50.0], [100.0], Budget(0.6))
    page = with_results(page, {"Date": "another"}, [MISSING, slower], keep_others=True)
    assert page.splitlines()[4:] == [
        "| kept | 50 messages/s | 100 messages/s | 0.50 | ≥ 0.6 | **no** | another |",
        "| missed | 4 ms | 1 ms | 4.00 | ≤ 3 | **no** | a day |",
        "| missing (not installed) | - | - | - | ≥ 5 | - | another |",
        "",
        "| The last run | |",
        "|---|---|",
        "| Date | another |",
        "",
        END,
    ]
    rows = json.loads(to_json([MISSING, slower], "another", to_json([KEPT, MISSED], "a day")))
    assert [(row["name"], row["value"], row["measured"]) for row in rows] == [
        ("kept", 50.0, "another"),
        ("missed", 4.0, "a day"),
        ("missing", None, "another"),
    ]


@pytest.mark.parametrize("page", ["", BEGIN, f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}", f"{BEGIN} {END} {END}"])
def test_a_page_without_one_pair_of_markers_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="in this order and once each"):
        with_results(page, {}, [])


def test_a_row_says_what_is_missing_and_what_is_missed() -> None:
    assert cells(MISSING) == ["missing (not installed)", "-", "-", "-", "≥ 5", "-"]
    assert cells(MISSED) == ["missed", "4 ms", "1 ms", "4.00", "≤ 3", "**no**"]


def test_figures_are_rounded_to_three_digits() -> None:
    assert cells(compare("row", "messages/s", [123_456.0], [0.98765]))[1:3] == [
        "123,000 messages/s",
        "0.988 messages/s",
    ]


def test_a_machine_without_rabbitmq_has_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rabbit, "_BEHIND_DEBIANS", tmp_path / "rabbitmq-server")
    # Nothing is started, so nothing needs a workbench.
    (row,) = WORKS["rabbitmq"](cast("Workbench", None), Scale())
    assert (row.note, row.ratio, row.met, row.budget) == (NOT_INSTALLED, None, None, Budget(5))


def test_sides_take_turns_and_the_first_turns_only_warm_up() -> None:
    order: list[str] = []
    ticks = numbers()

    def side(name: str) -> float:
        order.append(name)
        return float(next(ticks))

    measured = interleave({"a": lambda _: side("a"), "b": lambda _: side("b")}, 10, Scale(rounds=2))
    assert order == ["a", "b"] * 3
    assert measured == {"a": [2.0, 4.0], "b": [3.0, 5.0]}
    order.clear()
    interleave({"a": lambda _: side("a")}, 10, Scale(rounds=2), warm_up=3)
    assert order == ["a"] * 4


def test_a_slow_row_ends_after_the_round_that_used_its_time_up() -> None:
    assert interleave({"a": lambda _: 1.0}, 10, Scale(rounds=5, patience=0.0)) == {"a": [1.0]}


def test_a_small_scale_still_makes_whole_batches() -> None:
    assert Scale(part=0.001).count(20_000, multiple_of=100) == 200
    assert Scale(part=0.5).count(20_000, multiple_of=100) == 10_000


def test_each_curve_is_a_panel_and_a_page_without_one_has_no_picture(tmp_path: Path) -> None:
    draw(to_json([KEPT], "a day"), tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
    curve = Curve("CPU s/min", "entities", ((1.0, 0.5), (1_000.0, 2.0)))
    rows = to_json([KEPT, replace(KEPT, name="one", curve=curve), replace(KEPT, name="two", curve=curve)], "a day")
    for name in ("one.svg", "two.svg"):
        draw(rows, tmp_path / name)
    picture = (tmp_path / "one.svg").read_text()
    assert picture.count("<!-- CPU s/min -->") == 2
    assert "<!-- 1,000 -->" in picture
    # The same figures give the same file.
    assert (tmp_path / "two.svg").read_text() == picture
