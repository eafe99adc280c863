"""The files of a data folder that another version of kafkabus wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkabus.embedded import EmbeddedRuntimeError
from kafkabus.embedded.cluster import Addresses
from kafkabus.embedded.state import STATE_FILE, ProcessMark, RuntimeState, read_state, write_state


def change(file: Path, **fields: object) -> None:
    """Set fields of a file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_a_folder_of_a_later_format_is_refused(tmp_path: Path) -> None:
    """No server starts on it, and the file stays as it is."""
    Addresses(tmp_path, 1).release()
    file = tmp_path / "cluster.json"
    change(file, format=2)
    before = file.read_text()
    with pytest.raises(EmbeddedRuntimeError, match=r"format 2 of a later kafkabus; this kafkabus .* of format 1"):
        Addresses(tmp_path, 1)
    assert file.read_text() == before


def test_a_later_supervisor_is_seen(tmp_path: Path) -> None:
    """Commands of this version can stop it, although it writes more than they know."""
    state = RuntimeState("ready", tmp_path, ProcessMark.own(), detached=True, namespace="shop", brokers=1)
    write_state(tmp_path, state)
    change(tmp_path / STATE_FILE, dashboard="http://127.0.0.1:1")
    assert read_state(tmp_path) == state
