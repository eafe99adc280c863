"""A pytest plugin with the fixture ``kafkabus_namespace``: an empty namespace for each test of an application.

The option ``--kafkabus``, or ``kafkabus`` in pytest's configuration, says on which servers the namespaces are:

- ``memory`` (the default): in this process, without Kafka and Redis; see ``InMemoryNamespace``.
- ``embedded``: on a Kafka and a Redis that are started once for the run (``pip install "kafkabus[embedded]"``).
- ``container``: on those of a container that is started once for the run (``pip install "kafkabus[containers]"``).

pytest finds the plugin if kafkabus is installed. With pytest-xdist, each worker starts separate servers.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

BACKENDS = ("memory", "embedded", "container")


@dataclass(frozen=True)
class NamespaceOfTest:
    """A namespace of a test.

    Attributes:
        connection_string: The connection string for clients.
    """

    connection_string: str = field(repr=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and the setting in pytest's configuration."""
    text = "servers of the tests' namespaces: memory (the default: none), embedded, or container"
    group = parser.getgroup("kafkabus")
    group.addoption("--kafkabus", choices=BACKENDS, default=None, help=text)
    group.addoption(
        "--kafkabus-image", metavar="IMAGE", default=None, help="the container's image, if it has another name"
    )
    parser.addini("kafkabus", text, default=BACKENDS[0])


@pytest.fixture(scope="session")
def kafkabus_servers(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The connection string of Kafka and Redis that all namespaces of the run are on; None if they are in memory."""
    chosen = request.config.getoption("--kafkabus") or request.config.getini("kafkabus")
    if chosen not in BACKENDS:
        raise pytest.UsageError(f"kafkabus = {chosen}: choose one of {', '.join(BACKENDS)}")
    if chosen == "embedded":
        from kafkabus.embedded import EmbeddedRuntime

        with EmbeddedRuntime(upkeep=False) as runtime:
            yield runtime.connection_string
    elif chosen == "container":
        from kafkabus.testing.containers import IMAGE, KafkabusContainer

        with KafkabusContainer(request.config.getoption("--kafkabus-image") or IMAGE) as container:
            yield container.connection_string
    else:
        yield None


@pytest.fixture
def kafkabus_namespace(kafkabus_servers: str | None) -> Iterator[NamespaceOfTest]:
    """An empty namespace of the test's own, with upkeep; its entities are deleted after the test."""
    if kafkabus_servers is None:
        from kafkabus.testing.namespace import InMemoryNamespace

        with InMemoryNamespace() as namespace:
            yield NamespaceOfTest(namespace.connection_string)
    else:
        with _namespace_on(kafkabus_servers) as connection_string:
            yield NamespaceOfTest(connection_string)


@contextmanager
def _namespace_on(servers: str) -> Generator[str, None, None]:
    from kafkabus._core.settings import parse_settings
    from kafkabus.management import ServiceBusAdministrationClient
    from kafkabus.testing.upkeep_thread import UpkeepThread
    from kafkabus_mapping.connection import format_connection_string, parse_parts

    name = f"test-{uuid.uuid4().hex[:12]}"
    connection_string = format_connection_string({**parse_parts(servers), "Endpoint": f"sb://{name}.localhost/"})
    with UpkeepThread(parse_settings(connection_string)):
        yield connection_string
        with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
            for queue in administration.list_queues():
                administration.delete_queue(queue.name)
            for topic in administration.list_topics():
                administration.delete_topic(topic.name)
