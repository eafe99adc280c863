"""The measures of the code are taken from a checkout; here, from a small one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import measure_code
from tools.measure_code import Names, is_participle, violations

LONG = "\n".join(f"        number = {number}" for number in range(51))
MODULE = f"""
class Crowded:
    def __init__(self) -> None:
        {"; ".join(f"self.field_{number} = {number}" for number in range(21))}

    def told(self, one: int) -> int:
        return one

    def read_long_text(self) -> None:
{LONG}
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one module that exceeds each limit but that of circles."""
    for folder, package in measure_code.PACKAGES.items():
        (tmp_path / folder / package).mkdir(parents=True)
    module = tmp_path / "facade" / "kafkabus" / "crowded.py"
    module.write_text(MODULE)
    (tmp_path / "spark" / "kafkabus_spark" / "other.py").write_text("class Crowded:\n    pass\n")

    def circle(root: Path) -> dict[str, set[str]]:
        del root
        return {"kafkabus.a": {"kafkabus.b"}, "kafkabus.b": {"kafkabus.a"}}

    monkeypatch.setattr(measure_code, "imports_of", circle)
    return tmp_path


def test_each_limit_is_checked(checkout: Path) -> None:
    """A line names the place and the limit."""
    found = violations(checkout)
    assert [line.partition(":")[0] for line in found if line.startswith("a circle")] == ["a circle of imports"]
    told = "\n".join(found)
    assert "Crowded has 21 attributes" in told
    assert "read_long_text has 51 lines" in told
    assert "class Crowded exists more than once" in told
    assert "variables that a pronoun names" in told
    assert "functions that a participle names" in told


def test_attributes_are_counted_with_those_of_base_classes(checkout: Path) -> None:
    """A class does not get small by a mixin."""
    (checkout / "facade" / "kafkabus" / "child.py").write_text("class Child(Crowded):\n    pass\n")
    assert set(Names(checkout).many_attributes) == {"Crowded", "Child"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("told", True), ("_let_go", True), ("read_text", False), ("on_delivery", False), ("__init__", False)],
)
def test_participles_are_known(name: str, expected: bool) -> None:
    """Names of one or two words without a noun."""
    assert is_participle(name) == expected
