"""What tests of the facade's inner parts share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kafkabus.aio.log import reader as aio_reader
from kafkabus.log import reader
from tests.queues import crowd, new_queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkabus.embedded import EmbeddedRuntime


@pytest.fixture
def queue(runtime: EmbeddedRuntime) -> str:
    """A new plain queue: one log."""
    return new_queue(runtime.connection_string)


@pytest.fixture
def crowded(
    runtime: EmbeddedRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[str], None]:
    """Makes a queue look crowded, has readers wait for a machine that stalls, and has them log what they claim ahead."""
    caplog.set_level(logging.DEBUG, "kafkabus.reader")
    for module in (reader, aio_reader):
        monkeypatch.setattr(module, "TAILS_TIMEOUT", 30.0)
    return lambda queue: crowd(runtime.connection_string, queue)
