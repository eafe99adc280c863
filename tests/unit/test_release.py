"""The checks of a release: files that must be in an archive, and files that must not."""

from __future__ import annotations

import re

import pytest

from tools.release import IN_SDIST, ReleaseError, check_files

GOOD = dict.fromkeys(IN_SDIST, b"text")


def test_a_complete_archive_passes() -> None:
    """Files besides those that it must have do not matter."""
    check_files("kafkabus.tar.gz", GOOD | {"tests/unit/test_names.py": b""}, IN_SDIST)


@pytest.mark.parametrize("missing", ["facade/kafkabus/_ledger/lua/claim.lua", "tests/smoke.py", "LICENSE"])
def test_a_missing_file_is_named(missing: str) -> None:
    """The error says where the files of an archive are listed."""
    contents = {name: content for name, content in GOOD.items() if name != missing}
    with pytest.raises(ReleaseError, match=rf"lacks \['{re.escape(missing)}'\]: see \[tool.hatch.build\]"):
        check_files("kafkabus.tar.gz", contents, IN_SDIST)


@pytest.mark.parametrize(
    "unwanted",
    [
        "facade/kafkabus/__pycache__/aio.cpython-311.pyc",
        "tests/.pytest_cache/README.md",
        ".env",
        ".git/config",
        "docs/broker.log",
        "tests/data/cluster.json",
        "tests/server.key",
    ],
)
def test_caches_data_and_keys_do_not_go_out(unwanted: str) -> None:
    """They are found by their names."""
    with pytest.raises(ReleaseError, match=re.escape(unwanted)):
        check_files("kafkabus.tar.gz", GOOD | {unwanted: b""}, IN_SDIST)


def test_a_private_key_does_not_go_out_under_any_name() -> None:
    """It is found by its first line."""
    key = b"-----BEGIN " + b"RSA PRIVATE KEY-----\n"
    with pytest.raises(ReleaseError, match=r"tests/notes\.txt"):
        check_files("kafkabus.tar.gz", GOOD | {"tests/notes.txt": key}, IN_SDIST)
