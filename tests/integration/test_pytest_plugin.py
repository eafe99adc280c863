"""The pytest plugin for applications, in separate test suites."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest
from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from kafkabus.management import ServiceBusAdministrationClient

@pytest.mark.parametrize("text", ["one", "two"])
def test_an_order(kafkabus_namespace, text):
    assert text not in repr(kafkabus_namespace)
    connection_string = kafkabus_namespace.connection_string
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        assert list(administration.list_queues()) == [], "each test has its own namespace"
        administration.create_queue("orders", dead_lettering_on_message_expiration=True)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(text))
        with client.get_queue_receiver("orders") as receiver:
            [message] = receiver.receive_messages(max_wait_time=30)
            assert str(message) == text
"""


def suite(folder: Path, *options: str, configuration: str = "") -> subprocess.CompletedProcess[str]:
    """Run a suite of an application in its own folder."""
    (folder / "test_orders.py").write_text(SUITE)
    (folder / "pytest.ini").write_text(f"[pytest]\n{configuration}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=170, check=False, env=environment
    )


def test_each_test_has_an_empty_namespace_in_memory(tmp_path: Path) -> None:
    """That needs no option and no server."""
    done = suite(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_namespaces_may_be_on_an_embedded_kafka(tmp_path: Path) -> None:
    """One start, which takes seconds, serves all tests of the run."""
    done = suite(tmp_path, configuration="kafkabus = embedded")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.containers
@pytest.mark.timeout(900)
def test_the_namespaces_may_be_on_a_container(tmp_path: Path, emulator_image: str) -> None:
    """One container serves all tests of the run."""
    done = suite(tmp_path, "--kafkabus", "container", "--kafkabus-image", emulator_image)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_another_backend_is_refused(tmp_path: Path) -> None:
    """The error names those that there are."""
    done = suite(tmp_path, configuration="kafkabus = cloud")
    assert "kafkabus = cloud: choose one of memory, embedded, container" in done.stdout + done.stderr
    assert "--kafkabus: invalid choice: 'cloud'" in suite(tmp_path, "--kafkabus", "cloud").stderr
