"""The programs of this folder: how each is installed from its registry, and started.

``python -m tests.clients.programs`` installs all of them, into the user's cache folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafkabus.embedded import cache_folder

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parents[1]
PYTHON_SDKS = ("7.15.0", "7.14.3")
"""The versions of azure-servicebus."""

_PATIENCE_S = 900.0


class Program(NamedTuple):
    """A program that checks a gateway with one SDK.

    Attributes:
        name: Its name, which begins the names of its entities.
        language: Its language.
        command: Its command line, without arguments.
        folder: The folder in which it runs.
    """

    name: str
    language: str
    command: tuple[str, ...]
    folder: Path

    def run(
        self, *arguments: str, connection_string: str, prefix: str = "", timeout_s: float = _PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end.

        Args:
            arguments: Its arguments.
            connection_string: The gateway's connection string; kafkabus's for its own SDK.
            prefix: The beginning of the names of the checks' entities.
            timeout_s: After how many seconds it must have ended.
        """
        return subprocess.run(
            [*self.command, *arguments],
            cwd=self.folder,
            env=_environment(connection_string, prefix),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self, *arguments: str, connection_string: str, errors: Path) -> subprocess.Popen[str]:
        """Start the program; its output can be read while it runs.

        Args:
            arguments: Its arguments.
            connection_string: The gateway's connection string.
            errors: The file to which its errors go.
        """
        with errors.open("w") as file:
            return subprocess.Popen(
                [*self.command, *arguments],
                cwd=self.folder,
                env=_environment(connection_string),
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )


def _environment(connection_string: str, prefix: str = "") -> dict[str, str]:
    return {**os.environ, "CONNECTION_STRING": connection_string, "PREFIX": prefix}


def home() -> Path:
    """Return the folder of what is installed."""
    return cache_folder() / "clients"


def _python(version: str) -> str:
    return str(home() / f"python-{version}" / "bin" / "python")


def _of_python(name: str, interpreter: str, *options: str) -> Program:
    return Program(name, "python", (interpreter, "-m", "tests.clients.python", *options), REPOSITORY)


def _of_java(name: str, package: str) -> Program:
    target = home() / name / "target"
    classes = f"{target / 'classes'}{os.pathsep}{target / 'dependency'}/*"
    return Program(
        name, name, ("java", "-XX:TieredStopAtLevel=1", "-cp", classes, f"kafkabus.{package}.Program"), target
    )


def programs() -> list[Program]:
    """Return the programs that check a gateway."""
    return [
        *(
            _of_python(f"python-{version}{half}", _python(version), *options)
            for version in PYTHON_SDKS
            for half, options in {"": (), "-asyncio": ("--asyncio",)}.items()
        ),
        Program("javascript", "javascript", ("node", "program.js"), home() / "javascript"),
        Program("rhea", "rhea", ("node", "rhea_program.js"), home() / "javascript"),
        Program("go", "go", (str(home() / "go" / "clients"),), home() / "go"),
        _of_java("java", "clients"),
        _of_java("jms", "jms"),
    ]


def own_program() -> Program:
    """Return the program with kafkabus's own SDK, which needs no gateway."""
    return _of_python("kafkabus", sys.executable, "--sdk", "kafkabus")


def install() -> None:
    """Install all programs; what is there already is only brought up to date."""
    install_python()
    _call(
        ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--prefer-offline"], _sources("javascript")
    )
    _call(["go", "build", "-o", "clients", "."], _sources("go"))
    for name in ("java", "jms"):
        _call(["mvn", "--batch-mode", "--quiet", "process-classes"], _sources(name))


def install_python() -> None:
    """Install the programs in Python, unless they are there."""
    for version in PYTHON_SDKS:
        interpreter = _python(version)
        home_of_it = Path(interpreter).parents[1]
        done = home_of_it / "installed"
        if done.exists():
            continue
        _call([sys.executable, "-m", "venv", "--clear", str(home_of_it)], REPOSITORY)
        packages = [f"azure-servicebus=={version}", "azure-core[aio]==1.41.0"]
        _call([interpreter, "-m", "pip", "install", "--quiet", *packages], REPOSITORY)
        done.touch()


def _sources(language: str) -> Path:
    """Copy a program's sources beside what it needs: nothing is built in the repository."""
    folder = home() / language
    shutil.rmtree(folder / "src", ignore_errors=True)
    shutil.copytree(FOLDER / language, folder, dirs_exist_ok=True)
    return folder


def _call(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, timeout=_PATIENCE_S)


if __name__ == "__main__":
    install()
