"""The command line without a broker: help, wrong usage, errors, and its imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import kafkabus
from kafkabus.cli.program import _with_json

SLOW = "confluent_kafka", "redis", "pyspark", "pandas"
NOWHERE = "Endpoint=sb://nowhere.localhost/;KafkaBootstrapServers=127.0.0.1:1;Redis=redis://127.0.0.1:1/0"


def run(*arguments: str, text: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program in an 80-column terminal's width, without a namespace unless one is given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKABUS_")}
    command = [sys.executable, "-m", "kafkabus.cli", *arguments]
    environment |= {"COLUMNS": "80", "TERM": "dumb", **variables}
    return subprocess.run(
        command, env=environment, input=text, capture_output=True, text=True, check=False, timeout=120
    )


def words(text: str) -> str:
    """Text without its boxes and line breaks."""
    return " ".join(text.replace("│", " ").split())


def test_help_names_commands_and_exit_statuses() -> None:
    """The help lists the commands, and the exit statuses that scripts may rely on."""
    result = run("--help")
    assert result.returncode == 0
    for command in ("up", "down", "status", "queue", "send", "receive", "stats"):
        assert re.search(rf"^  {command} ", result.stdout, re.MULTILINE)
    statuses = "4 no such queue, topic, subscription or rule; 5 doctor found a failure; 6 doctor found a warning, with"
    assert statuses in words(result.stdout)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_connection_string_in_place_of_a_command_is_not_shown() -> None:
    """The string may hold passwords. The error says where it goes."""
    result = run("Endpoint=sb://nowhere/;Redis=redis://:open-sesame@127.0.0.1:1/0", "queue", "list")
    assert result.returncode == 2
    assert "set KAFKABUS_CONNECTION_STRING, or write kafkabus -c … COMMAND" in words(result.stderr)
    assert "sesame" not in result.stdout + result.stderr


def test_the_version_is_the_package_s() -> None:
    """`kafkabus --version` names program and version."""
    assert run("--version").stdout == f"kafkabus {kafkabus.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["recieve", "orders"], "Did you mean 'receive'?"),
        (["queue", "creat", "orders"], "Did you mean 'create'?"),
        (["queue", "list", "-c", NOWHERE], "-c goes before the command: kafkabus -c … queue …"),
        (["queue", "create", "q", "--lock-duration", "30"], "'30' is no duration"),
        (["receive", "q", "--delete", "--abandon"], "exclude each other"),
        (["receive", "q", "--abandon", "--follow"], "use one of them"),
        (["receive", "q", "--max", "0"], "greater than or equal to 1"),
        (["send", "q", "body", "--file", "bodies"], "not both"),
        (["send", "q", "body", "--property", "novalue"], "--property 'novalue': write NAME=TEXT"),
        (["send", "q", "body", "--property", "n:=five"], "'five' is no number"),
        (["rule", "create", "t", "s", "r", "--where", "label:=5"], "label is a text: write label=5"),
        (["rule", "create", "t", "s", "r", "--sql", "a = 1", "--nothing"], "different filters: choose one"),
        (
            ["rule", "create", "t", "s", "r", "--where", "a=1", "--parameter", "@n=5"],
            "--sql and --action: give one of these too",
        ),
        (["send", "q", "-", "--count", "2"], "--count repeats messages given as arguments"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], told: str) -> None:
    """It exits with 2 and says what to write instead, on stderr alone."""
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert told in words(result.stderr)


def test_without_a_namespace_it_says_how_to_get_one(tmp_path: Path) -> None:
    """If there is neither an option nor a variable nor a running namespace, one line names all three remedies."""
    result = run("queue", "list", XDG_DATA_HOME=str(tmp_path), HOME=str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    for remedy in ("kafkabus up --detach", "KAFKABUS_CONNECTION_STRING", "--connection-string"):
        assert remedy in result.stderr


def test_an_error_names_what_it_came_from() -> None:
    """The error names the source of a malformed connection string; the option goes before the variable."""
    by_variable = run("queue", "list", KAFKABUS_CONNECTION_STRING="nonsense")
    assert by_variable.returncode == 1
    assert by_variable.stderr.startswith("error: KAFKABUS_CONNECTION_STRING: ")
    by_option = run("-c", "nonsense", "queue", "list", KAFKABUS_CONNECTION_STRING=NOWHERE)
    assert by_option.stderr.startswith("error: --connection-string: ")
    assert "Traceback" not in by_option.stderr


def test_an_empty_name_is_none(tmp_path: Path) -> None:
    """A variable that is not set may give one: no other value is taken in its place."""
    result = run("-c", "", "queue", "list", KAFKABUS_CONNECTION_STRING=NOWHERE)
    assert (result.returncode, result.stdout) == (1, "")
    assert "--connection-string: " in result.stderr
    addresses = run(
        "queue", "list", KAFKABUS_BOOTSTRAP_SERVERS="k:9092", XDG_DATA_HOME=str(tmp_path), HOME=str(tmp_path)
    )
    assert addresses.returncode == 1
    assert "KAFKABUS_BOOTSTRAP_SERVERS" in addresses.stderr
    assert "KAFKABUS_CONNECTION_STRING" in addresses.stderr


def test_debug_shows_the_traceback() -> None:
    """It shows the same error with its causes."""
    result = run("--debug", "-c", "nonsense", "queue", "list")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_a_missing_file_is_an_error_before_anything_is_asked(tmp_path: Path) -> None:
    """Without a broker, too, the error is about the file."""
    missing = tmp_path / "bodies"
    result = run("-c", NOWHERE, "send", "orders", "--file", str(missing))
    assert (result.returncode, result.stderr) == (1, f"error: {missing}: No such file or directory\n")


def test_an_impossible_message_is_an_error_before_anything_is_asked() -> None:
    """Without a broker, too, the error is about the rule of messages."""
    result = run("-c", NOWHERE, "send", "orders", "x", "--session-id", "a", "--partition-key", "b")
    assert result.returncode == 1
    assert result.stderr.startswith("error: --partition-key 'b' differs from --session-id 'a'")


def test_status_without_a_namespace_exits_with_3(tmp_path: Path) -> None:
    """For scripts, the status says that nothing runs; for users, stderr has the command to type."""
    result = run("status", "--data", str(tmp_path))
    assert (result.returncode, result.stdout) == (3, "")
    assert f"kafkabus up --detach --data {tmp_path}" in result.stderr


def test_down_without_a_namespace_says_so(tmp_path: Path) -> None:
    """If nothing runs, that is no error."""
    result = run("down", "--data", str(tmp_path))
    assert (result.returncode, result.stderr) == (0, f"Nothing ran on {tmp_path}.\n")


def test_the_commands_import_nothing_slow() -> None:
    """Help appears before Kafka's and Redis's clients could be imported."""
    script = f"""
import sys
from kafkabus.cli import main
sys.argv = ["kafkabus", "receive", "--help"]
try:
    main()
finally:
    print("imported:", [name for name in {SLOW} if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.endswith("imported: []\n")


def test_help_at_80_columns_cuts_off_no_name() -> None:
    """Nor does it name a type of options that take no value."""
    environment = {**os.environ, "COLUMNS": "80"}
    for command in ("queue create", "subscription update", "peek", "gateway"):
        shown = subprocess.run(
            [sys.executable, "-m", "kafkabus.cli", *command.split(), "--help"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "--" in shown
        assert re.findall(r"--[a-z-]*…|<bool>", shown) == [], command
        assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["a", "--output", "json"], ["a", "--json"]),
        (["--output=json", "a"], ["--json", "a"]),
        (["-o", "table", "a"], ["a"]),
        (["a", "--max", "1", "--", "--output", "x"], ["a", "--max", "1", "--", "--output", "x"]),
        (["--where", "a = '--output'"], ["--where", "a = '--output'"]),
    ],
)
def test_an_output_is_json_or_a_table(given: list[str], meant: list[str]) -> None:
    """As other command lines have it; behind ``--`` there are no options."""
    assert _with_json(given) == meant


@pytest.mark.parametrize("given", [["--output", "yaml"], ["--output"], ["--output=", "json"]])
def test_another_output_is_refused(given: list[str]) -> None:
    """With those that there are."""
    with pytest.raises(typer.BadParameter, match="choose json or table"):
        _with_json(given)
