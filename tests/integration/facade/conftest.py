"""Fixtures that tests of the facade's inner parts share."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkabus import ServiceBusClient
from kafkabus._async.receiving import message_reader as aio_message_reader
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus._sync.receiving import message_reader
from kafkabus.embedded import EmbeddedRuntime, RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from tests.queues import crowd, delete_new_queues, new_queue
from tests.servers import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def queues_are_deleted() -> Iterator[None]:
    """Leave no queue to upkeep that ``new_queue`` made."""
    yield
    delete_new_queues()


@pytest.fixture
def administration(untended: str) -> Iterator[ServiceBusAdministrationClient]:
    """An administration client of a namespace without upkeep."""
    with ServiceBusAdministrationClient.from_connection_string(untended) as opened:
        yield opened


@pytest.fixture
def client(untended: str) -> Iterator[ServiceBusClient]:
    """A client of that namespace."""
    with ServiceBusClient.from_connection_string(untended) as opened:
        yield opened


@pytest.fixture(scope="module")
def own_runtime(request: pytest.FixtureRequest) -> Iterator[EmbeddedRuntime]:
    """A namespace of the module's own, ``NAMESPACE``, whose Redis may be emptied."""
    data = scratch_folder()
    try:
        with EmbeddedRuntime(data, namespace=request.module.NAMESPACE) as running:
            yield running
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def context(own_runtime: EmbeddedRuntime) -> Iterator[ClientContext]:
    """A client's connections to that namespace, to look behind what users see."""
    opened = ClientContext(parse_settings(own_runtime.connection_string))
    yield opened
    opened.close()


@pytest.fixture
def queue(runtime: RunningNamespace) -> str:
    """A new plain queue: one log."""
    return new_queue(runtime.connection_string)


@pytest.fixture
def crowded(
    runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[str], None]:
    """Make a queue look crowded, have its readers wait for a stalling machine, and log the claims that they make ahead."""
    caplog.set_level(logging.DEBUG, "kafkabus.reader")
    for module in (message_reader, aio_message_reader):
        monkeypatch.setattr(module, "TAILS_TIMEOUT", 30.0)
    return lambda queue: crowd(runtime.connection_string, queue)
