"""The services of ``docker/compose.yaml``, run by Docker Compose: the plugin of Docker's client, or the program before it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tests.images import ROOT, docker, run

FILE = ROOT / "docker" / "compose.yaml"
PATIENCE_S = 180.0


@dataclass(frozen=True)
class Composition:
    """A project of Docker Compose.

    Attributes:
        name: The project's name.
        environment: The variables that the file asks for.
    """

    name: str
    environment: Mapping[str, str] = field(repr=False)

    @cached_property
    def _program(self) -> list[str]:
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        return ["docker", "compose"] if plugin else ["docker-compose"]

    def compose(self, *arguments: str) -> str:
        """Run one of Docker Compose's commands, which must succeed, and return its output."""
        program = [*self._program, "--project-name", self.name, "--file", str(FILE)]
        return run(*program, *arguments, patience=PATIENCE_S, environment=self.environment)

    def start(self) -> None:
        """Start all services, and return when they are healthy."""
        self.compose("up", "--detach")
        deadline = time.monotonic() + PATIENCE_S
        while unhealthy := [name for name, health in self._health().items() if health != "healthy"]:
            assert time.monotonic() < deadline, f"{unhealthy}: {self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        """Return the last lines that the services have printed."""
        return self.compose("logs", "--tail", "50")

    def _health(self) -> dict[str, str]:
        containers = self.compose("ps", "--quiet").split()
        inspected = docker("inspect", "--format", "{{.Name}} {{json .State}}", *containers).splitlines()
        states = (line.partition(" ") for line in inspected)
        return {name: json.loads(state).get("Health", {}).get("Status", "") for name, _, state in states}
