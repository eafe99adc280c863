"""The generator of the blocking twins, run on a small project; ``make generated`` runs it on this one."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import indent

import pytest

from tools import generate_blocking

SOURCE = Path("facade/kafkabus/_async/redis/ledger_client.py")
TWIN = Path("facade/kafkabus/_sync/redis/ledger_client.py")
TEST_TWIN = Path("tests/contract/test_courier.py")

COURIER = '''
"""The asyncio ledger_client, safe between asyncio tasks.

Example:
    async with ledger_client:
        await ledger_client.aclose()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import redis.asyncio as redis
from redis.asyncio.client import Pipeline

from kafkabus._async.compat import Lock

Handler = Callable[[int], Awaitable[dict[str, int]]]
Maker = Callable[[], Coroutine[Any, Any, Awaitable[None]]]


class LedgerClient:
    async def __aenter__(self) -> LedgerClient:
        self.lock = Lock()
        return self

    async def letters(self, client: redis.Redis, line: Pipeline) -> AsyncIterator[int]:
        async with self.lock:
            async for letter in line:
                yield await client.get(letter)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        text = "kept: # aio-only"
        await asyncio.wait_for(  # aio-only
            self.drop(text), timeout=1  # aio-only
        )  # aio-only
        # blocking: self.drop(text, timeout=1)
'''

COURIER_TWIN = '''\
# Generated from facade/kafkabus/_async/redis/ledger_client.py by tools/generate_blocking.py. Do not edit.
"""The blocking ledger_client, safe between threads.

Example:
    with ledger_client:
        ledger_client.close()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import redis
from redis.client import Pipeline

from kafkabus._sync.compat import Lock

Handler = Callable[[int], dict[str, int]]
Maker = Callable[[], None]


class LedgerClient:
    def __enter__(self) -> LedgerClient:
        self.lock = Lock()
        return self

    def letters(self, client: redis.Redis, line: Pipeline) -> Iterator[int]:
        with self.lock:
            for letter in line:
                yield client.get(letter)
        raise StopIteration

    def close(self) -> None:
        text = "kept: # aio-only"
        self.drop(text, timeout=1)
'''

COURIER_TEST = '''
"""A ledger_client keeps its promises."""

import pytest

from kafkabus._async.redis.ledger_client import LedgerClient
from tests.contract.aio.conftest import ROUTE


@pytest.mark.asyncio
async def test_delivers() -> None:
    with pytest.raises(ValueError):
        async with LedgerClient():
            await ROUTE.walk()
'''

COURIER_TEST_TWIN = '''\
# Generated from tests/contract/aio/test_courier.py by tools/generate_blocking.py. Do not edit.
"""A ledger_client keeps its promises."""

import pytest

from kafkabus._sync.redis.ledger_client import LedgerClient
from tests.contract.conftest import ROUTE


def test_delivers() -> None:
    with pytest.raises(ValueError):
        with LedgerClient():
            ROUTE.walk()
'''


def generate(root: Path, *options: str) -> int:
    """Run the command line on a project."""
    return generate_blocking.main([*options, "--root", str(root)])


def put(root: Path, path: Path | str, text: str) -> None:
    """Write a file of a project."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text.removeprefix("\n"), encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project of one source and one test, with this project's settings and its twins made."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(generate_blocking.ROOT / name, tmp_path / name)
    put(tmp_path, SOURCE, COURIER)
    put(tmp_path, "facade/kafkabus/_async/compat.py", "async def by_hand() -> None: ...\n")
    put(tmp_path, "facade/kafkabus/aio/__init__.py", "")
    put(tmp_path, "tests/contract/aio/test_courier.py", COURIER_TEST)
    put(tmp_path, "tests/contract/aio/conftest.py", "ROUTE = None\n")
    assert generate(tmp_path) == 0
    return tmp_path


def test_source_becomes_its_blocking_twin(root: Path) -> None:
    assert (root / TWIN).read_text("utf-8") == COURIER_TWIN


def test_contract_test_becomes_its_blocking_twin(root: Path) -> None:
    assert (root / TEST_TWIN).read_text("utf-8") == COURIER_TEST_TWIN


def test_modules_written_by_hand_get_no_twin(root: Path) -> None:
    made = {path.relative_to(root) for path in root.rglob("*.py") if not {"aio", "_async"} & {*path.parts}}
    assert made == {TWIN, TEST_TWIN}


def test_check_passes_on_what_was_generated(root: Path) -> None:
    assert generate(root, "--check") == 0


def test_second_generation_writes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert generate(root) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(COURIER_TWIN.replace("timeout=1", "timeout=2"), id="edited"),
        pytest.param(COURIER_TWIN + "EXTRA = 1\n", id="appended"),
        pytest.param(COURIER_TWIN.rstrip("\n"), id="last-newline-gone"),
        pytest.param(COURIER_TWIN.replace("\n", "\r\n"), id="line-ends"),
        pytest.param(COURIER_TWIN.partition("\n")[2], id="banner-gone"),
        pytest.param("", id="emptied"),
    ],
)
def test_check_finds_a_changed_twin(root: Path, capsys: pytest.CaptureFixture[str], changed: str) -> None:
    (root / TWIN).write_bytes(changed.encode())
    assert generate(root, "--check") == 1
    assert f"{TWIN}: differs" in capsys.readouterr().err


def test_check_finds_a_missing_twin(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / TWIN).unlink()
    assert generate(root, "--check") == 1
    assert f"{TWIN}: missing" in capsys.readouterr().err


def test_check_finds_a_changed_source(root: Path) -> None:
    put(root, SOURCE, COURIER.replace("timeout=1", "timeout=2"))
    assert generate(root, "--check") == 1


def test_check_finds_a_twin_whose_source_is_gone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / SOURCE).unlink()
    assert generate(root, "--check") == 1
    assert f"{TWIN}: its source is gone" in capsys.readouterr().err


def test_check_changes_nothing(root: Path) -> None:
    put(root, TWIN, "edited\n")
    generate(root, "--check")
    assert (root / TWIN).read_text("utf-8") == "edited\n"


def test_generation_deletes_a_twin_whose_source_is_gone(root: Path) -> None:
    (root / SOURCE).unlink()
    assert generate(root) == 0
    assert not (root / TWIN).exists()


def test_generation_spares_a_file_written_by_hand(root: Path) -> None:
    put(root, TWIN, "WRITTEN_BY_HAND = True\n")
    assert generate(root) == 1
    assert (root / TWIN).read_text("utf-8") == "WRITTEN_BY_HAND = True\n"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param('print(f"{await x}")', "await outside the f-string", id="f-string"),
        pytest.param("x = 1  # blocking: y = 1", "holds nothing else", id="pragma-after-code"),
        pytest.param("if x:\n    await x  # aio-only", "ruff", id="nothing-left-of-a-block"),
        pytest.param("x: Awaitable[int", "was never closed", id="syntax-error"),
    ],
)
def test_source_without_a_twin_fails_the_run(
    root: Path, capsys: pytest.CaptureFixture[str], body: str, complaint: str
) -> None:
    put(root, SOURCE, f"async def f(x):\n{indent(body, '    ')}\n")
    assert generate(root) == 1
    assert complaint in capsys.readouterr().err


def test_another_ruff_than_the_pinned_one_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(root, "constraints.txt", "ruff==0.0.1\n")
    assert generate(root, "--check") == 1
    assert "0.0.1 is pinned" in capsys.readouterr().err
