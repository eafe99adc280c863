"""The linter of the ledger's Lua scripts runs on small folders."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tools import lint_lua

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "-- One script.\n--\n-- KEYS 1 counter\n-- ARGV none\n-- Reply number\n-- Effect: counts.\n"

needs_luacheck = pytest.mark.skipif(not shutil.which("luacheck"), reason="needs luacheck")


def lint(folder: Path, *fragments: str, **texts: str) -> list[str]:
    """Lint scripts given as text; return the findings, one line each."""
    for name, text in texts.items():
        (folder / f"{name}.lua").write_text(text)
    findings, _ = lint_lua.lint(folder, fragments)
    return [f"{path}:{line}: {message}" for path, line, message in findings]


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ("return redis.call('KEYS', 'a*')", "KEYS walks every key"),
        ('return redis.pcall("scan", 0)', "SCAN walks every key"),
        ("return redis.call('GET', 'a:' .. ARGV[1])", "GET: the key is built here"),
        ("return redis.call('GET',\n  KEYS[1] .. ':x')", "GET: the key is built here"),
        ("return redis.call('GET', string.format('%s', ARGV[1]))", "GET: the key is built here"),
        ("return redis.call('GET', 'counter')", "GET: the key is a literal"),
    ],
)
def test_a_key_that_is_not_declared_is_found(tmp_path: Path, code: str, finding: str) -> None:
    findings = lint(tmp_path, one=HEAD + code + "\n")
    assert [finding in line for line in findings] == [True]
    assert findings[0].startswith("one.lua:7: ")


@pytest.mark.parametrize(
    "code",
    [
        "return redis.call('GET', KEYS[1])",
        "return redis.call('SET', KEYS[1], 'a' .. ARGV[1])",
        "return redis.call('TIME')",
        "return redis.call('PUBLISH', 'bell:' .. ARGV[1], '')",
        "return 1 -- not redis.call('KEYS', '*')",
        "--[[ redis.call('KEYS', '*')\n]] return 1",
    ],
)
def test_a_script_that_keeps_the_rules_is_clean(tmp_path: Path, code: str) -> None:
    assert lint(tmp_path, one=HEAD + code + "\n") == []


def test_a_shebang_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.lua").write_text("#!lua\n" + HEAD + "return 1\n")
    found = list(lint_lua.redis_findings(tmp_path / "one.lua", is_fragment=False))
    assert "shebang" in found[0].message


def test_a_program_must_open_with_all_four_parts(tmp_path: Path) -> None:
    findings = lint(tmp_path, one="-- KEYS 1 counter\n-- Effect: counts.\nreturn 1\n")
    assert findings == ["one.lua:1: the opening comment does not give ARGV, Reply"]


def test_a_fragment_may_say_what_it_defines_instead(tmp_path: Path) -> None:
    texts = {"one": "-- Defines a.\n\nlocal a = 1\n", "two": HEAD + "return a\n"}
    assert lint(tmp_path, "one.lua", "two.lua", **texts) == []


def test_a_fragment_without_a_file_is_found(tmp_path: Path) -> None:
    assert lint(tmp_path, "gone.lua") == ["gone.lua:1: joined into the program, but there is no such file"]


@needs_luacheck
@pytest.mark.parametrize(
    ("code", "finding"),
    [
        ("return missing", "(W113) accessing undefined variable 'missing'"),
        ("made = 1", "(W111) setting non-standard global variable 'made'"),
        ("local unused = 1", "(W211) unused variable 'unused'"),
        ("local x = 1\nlocal x = 2\nreturn x", "variable 'x' was previously defined"),
        ("local x = 1\nfor x = x, 2 do\n  redis.log(x)\nend", "shadowing"),
        ("return os.time()", "(W113) accessing undefined variable 'os'"),
        ("return goto", "expected"),
    ],
)
def test_luacheck_looks_too(tmp_path: Path, code: str, finding: str) -> None:
    findings = lint(tmp_path, one=HEAD + code + "\n")
    assert any(finding in line for line in findings), findings


@needs_luacheck
def test_a_finding_names_the_fragment_and_its_line(tmp_path: Path) -> None:
    texts = {"one": "-- Defines a.\n\nlocal a = 1\n", "two": HEAD + "\nreturn a + b\n"}
    assert lint(tmp_path, "one.lua", "two.lua", **texts) == ["two.lua:8: (W113) accessing undefined variable 'b'"]


def test_ci_does_without_luacheck_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", "true")
    with pytest.raises(lint_lua.LuacheckError, match="not installed"):
        lint(tmp_path, one=HEAD + "return 1\n")


def test_a_laptop_may_do_without_luacheck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    assert lint(tmp_path, one=HEAD + "return missing\n") == []
    assert "luacheck is not installed" in capsys.readouterr().err
