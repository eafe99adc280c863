"""A namespace whose topics are copies: records that a program read and wrote again, in topics with other ids."""

from __future__ import annotations

import logging

import pytest

from kafkabus import ServiceBusClient
from kafkabus.exceptions import MessagingEntityNotFoundError
from tests.contract.receiving import receive_all
from tests.golden.stored import put
from tests.integration.facade.test_formats import FORMATS, golden

ALL = {"completed", "abandoned", "deferred", "dead", "held", "waiting", "due"}
"""All that was ever sent to the queue and is due."""


def test_a_copied_namespace_gives_all_that_its_logs_hold_and_says_so(
    untended: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Settled messages come again, and each loss of what was known of them is an error in the log."""
    caplog.set_level(logging.ERROR)
    put(golden(FORMATS[-1]), untended, redis=False, same_topics=False)
    with ServiceBusClient.from_connection_string(untended) as client:
        with client.get_queue_receiver("orders") as receiver:
            with pytest.raises(MessagingEntityNotFoundError, match="is another one than before"):
                receiver.receive_messages(1, max_wait_time=60)
            assert {str(message) for message in receive_all(receiver, len(ALL))} == ALL
        with client.get_queue_receiver("apart") as receiver:
            with pytest.raises(MessagingEntityNotFoundError, match="is another one than before"):
                receiver.receive_messages(1, max_wait_time=60)
    assert "lost_by_the_log entity=orders" in caplog.text
    assert "lost_by_the_log entity=apart" in caplog.text
