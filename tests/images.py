"""A pytest plugin that builds the project's images, and runs a container for the tests of a run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkabus.testing.containers import KafkabusContainer

ROOT = Path(__file__).resolve().parent.parent
BUILD_PATIENCE_S = 600.0
# Its reaper of containers is a separate image, which not all machines can pull.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


def docker(*arguments: str, patience: float = 60.0, environment: Mapping[str, str] | None = None) -> str:
    """Run a command of Docker's and return its output; see ``run``."""
    return run("docker", *arguments, patience=patience, environment=environment)


def run(*command: str, patience: float, environment: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output, standard error included; it must succeed.

    Args:
        *command: The command.
        patience: How long it may take, in seconds.
        environment: Variables that it has besides those of this process.
    """
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-8000:]}"
    return done.stdout


def _needs_docker() -> None:
    """Skip a test if no Docker daemon runs here."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no Docker daemon runs here")


def build(target: str) -> str:
    """Build an image of this checkout, and return its name; Docker's cache makes that quick the second time."""
    _needs_docker()
    name = f"{target}:tests"
    file = str(ROOT / "docker" / "Dockerfile")
    docker(
        *("build", "--network", "host", "--file", file, "--target", target, "--tag", name, str(ROOT)),
        patience=BUILD_PATIENCE_S,
    )
    return name


@pytest.fixture(scope="session")
def emulator_image() -> str:
    """The emulator's image."""
    return build("kafkabus-emulator")


@pytest.fixture(scope="session")
def kafkabus_image() -> str:
    """The image with the command line."""
    return build("kafkabus")


@pytest.fixture(scope="session")
def compose_images(emulator_image: str) -> None:
    """The images of Kafka and Redis that ``docker/compose.yaml`` names, or substitutes under their names."""
    text = (ROOT / "docker" / "compose.yaml").read_text()
    folder = ROOT / "tests" / "containers" / "stand_ins"
    for target in ("kafka", "redis"):
        found = re.search(rf"\$\{{{target.upper()}_IMAGE:-(.+)\}}", text)
        assert found is not None
        if not _is_there(found[1]):
            docker(
                *("build", "--network", "host", "--target", target, "--tag", found[1], str(folder)),
                patience=BUILD_PATIENCE_S,
            )


def _is_there(image: str) -> bool:
    """Return whether an image is here or can be pulled."""
    return any(
        subprocess.run(["docker", *words, image], capture_output=True, check=False).returncode == 0
        for words in (("image", "inspect"), ("pull", "--quiet"))
    )


@pytest.fixture(scope="session")
def container(emulator_image: str) -> Iterator[KafkabusContainer]:
    """A namespace in a container, started with the first test of a worker that needs one."""
    from kafkabus.testing.containers import KafkabusContainer

    # See tests/conftest.py.
    options = {"JDK_JAVA_OPTIONS": os.environ["JDK_JAVA_OPTIONS"]}
    with KafkabusContainer(emulator_image, namespace="tests", env=options) as started:
        yield started
