"""The check of English finds sentences that break a rule, and words that are too frequent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_english import RATES, exceeded_rates, findings, print_rates, rates_of

PLAIN = "The ledger stores the offset of each message. " * 20


def page(folder: Path, text: str, name: str = "page.md") -> Path:
    """Write a file with a text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "What is stored stays.",
        "A lock that somebody holds stays.",
        "None where it is empty.",
        "records: They.",
        "Likewise, it is stored.",
    ],
)
def test_a_broken_rule_is_found(text: str, tmp_path: Path) -> None:
    """The sentence is reported with its line."""
    (found,) = findings(page(tmp_path, f"A line.\n\nA sentence. {text}\n"))
    assert found[0] == 3


@pytest.mark.parametrize("text", ["What is stored?", "`What is stored.`", "The ledger is where messages wait."])
def test_questions_and_code_pass(text: str, tmp_path: Path) -> None:
    """They may open with any word."""
    assert list(findings(page(tmp_path, f"A sentence. {text}\n"))) == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tell, told", "The sender tells the ledger."),
        ("stand, stands", "A dead letter stands there."),
        ("of its own, of ours", "It has a topic of its own."),
        ("anew", "The index is made anew."),
        ("as far as", "It is shown as far as it is known."),
        ("meanwhile", "Meanwhile the others wait."),
    ],
)
def test_a_frequent_word_is_found(name: str, sentence: str, tmp_path: Path) -> None:
    """Its rate in the Markdown exceeds the limit."""
    (complaint,) = exceeded_rates([page(tmp_path, PLAIN + sentence)])
    assert f"'{name}'" in complaint


def test_a_rate_counts_per_ten_thousand_words() -> None:
    """One word in a thousand is ten in ten thousand."""
    assert rates_of("word " * 999 + "anew")["anew"] == pytest.approx(10)
    assert rates_of("") == dict.fromkeys(RATES, 0)


def test_code_and_the_history_do_not_count(tmp_path: Path) -> None:
    """Names in back quotes, blocks of code and CHANGELOG.md keep their words."""
    paths = [page(tmp_path, PLAIN + "`anew`\n\n```\nanew\n```\n"), page(tmp_path, "anew", "CHANGELOG.md")]
    assert list(exceeded_rates(paths)) == []


def test_rates_of_code_are_limited_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A docstring can exceed a limit."""
    path = page(tmp_path, '"""The index is made anew."""\n', "module.py")
    (complaint,) = exceeded_rates([path])
    assert "'anew'" in complaint
    print_rates([path])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "anew" in line)
    assert line.split()[:3] == ["Python", "anew", "2000.00"]
