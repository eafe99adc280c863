"""The namespace that a command uses, as options, variables and files name it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from kafkabus.cli.connection import GlobalOptions, open_settings
from kafkabus.cli.exits import CommandError

PASSWORD = "open-sesame"


def string(namespace: str) -> str:
    """Return the connection string of a namespace."""
    return f"Endpoint=sb://{namespace}.localhost/;KafkaBootstrapServers=127.0.0.1:1;Redis=redis://:{PASSWORD}@127.0.0.1:1/0"


def namespace(options: GlobalOptions) -> str:
    """Return the name of the namespace that a command with these options uses."""
    command = typer.main.get_command(typer.Typer(callback=lambda: None, invoke_without_command=True))
    return open_settings(typer.Context(command, obj=options)).namespace


def test_a_file_may_hold_the_connection_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option overrides a variable, and a variable the file of settings; each may name a file."""
    for name in ("option", "variable"):
        (tmp_path / name).write_text(f"{string(name)}\n")
    monkeypatch.delenv("KAFKABUS_CONNECTION_STRING", raising=False)
    configured = "serve.toml", string("configured")
    assert namespace(GlobalOptions(configured=configured)) == "configured"
    monkeypatch.setenv("KAFKABUS_CONNECTION_STRING_FILE", str(tmp_path / "variable"))
    assert namespace(GlobalOptions(configured=configured)) == "variable"
    assert namespace(GlobalOptions(connection_string_file=str(tmp_path / "option"))) == "option"
    assert namespace(GlobalOptions(connection_string=string("given"))) == "given"


def test_two_sources_of_one_kind_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names both, and no password."""
    monkeypatch.setenv("KAFKABUS_CONNECTION_STRING", string("a"))
    monkeypatch.setenv("KAFKABUS_CONNECTION_STRING_FILE", str(tmp_path / "b"))
    with pytest.raises(CommandError) as caught:
        namespace(GlobalOptions())
    assert str(caught.value) == (
        "KAFKABUS_CONNECTION_STRING and KAFKABUS_CONNECTION_STRING_FILE both name a namespace: give one of them"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory; check the path and its rights"),
        (b"\n", "is empty: write the connection string there"),
        (b"\xff" + PASSWORD.encode(), "is no UTF-8 text"),
        (PASSWORD.encode(), "the first part is unknown"),
    ],
)
def test_an_error_names_the_file_and_not_what_it_holds(tmp_path: Path, content: bytes | None, told: str) -> None:
    """It says what to do."""
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CommandError) as caught:
        namespace(GlobalOptions(connection_string_file=str(file)))
    assert f"--connection-string-file='{file}': " in str(caught.value)
    assert told in str(caught.value)
    assert PASSWORD not in str(caught.value)
