"""The programs of docs/how-to/gateway.md in other languages than Python: each prints the two messages that it sends."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkabus.embedded import EmbeddedRuntime
from kafkabus.embedded.gateway import GatewayPorts
from kafkabus.gateway.announcement import Bound, connection_string
from kafkabus.management import ServiceBusAdministrationClient
from tests.clients.programs import REPOSITORY, home
from tests.ports import free_ports
from tests.servers import scratch_folder

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

PAGE = REPOSITORY / "docs" / "how-to" / "gateway.md"


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    """The connection string of a gateway with the page's queue."""
    amqp, http = free_ports(2)
    data = scratch_folder()
    try:
        with EmbeddedRuntime(data, gateway=GatewayPorts(amqp, http)) as runtime:
            with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
                administration.create_queue("orders")
            yield connection_string("127.0.0.1", Bound(amqp, None, http))
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.mark.parametrize(
    ("language", "file", "command"),
    [
        ("javascript", "how-to.mjs", ["node", "how-to.mjs"]),
        ("go", "how-to/main.go", ["go", "run", "./how-to"]),
        ("java", "Orders.java", ["java", "-cp", "target/dependency/*", "Orders.java"]),
    ],
)
def test_a_program_of_the_page_does_what_it_says(gateway: str, language: str, file: str, command: list[str]) -> None:
    """The SDKs that it needs are those of the checks."""
    (program,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    folder = home() / language
    path = folder / Path(file)
    path.parent.mkdir(exist_ok=True)
    path.write_text(program)
    environment = {**os.environ, "CONNECTION_STRING": gateway}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.stdout.split(), ended.returncode) == (["one", "two"], 0), ended.stderr[-2000:]
