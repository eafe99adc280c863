"""Messages that are looked at are read a few at a time, so that large ones take little memory."""

from __future__ import annotations

from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._sync.dispositions import duplicate_scan
from kafkabus._sync.kafka.offset_reader import OffsetReader
from kafkabus._sync.receiving import deletion, peek
from kafkabus.embedded import RunningNamespace
from kafkabus_mapping.names import EntityPath
from tests.contract.receiving import take
from tests.queues import new_queue

NEVER = 1 << 45
SIZE = 1_000
"""How many bytes the messages of these tests have, and some more."""


@pytest.mark.parametrize(("most", "count"), [(1, 1), (2 * SIZE, 2)])
@pytest.mark.parametrize("in_body", [True, False])
def test_a_look_reads_few_bytes_at_a_time(
    runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch, most: int, count: int, in_body: bool
) -> None:
    """For a peek, a deletion and the search for duplicates, below what was received and beyond it."""
    for module, name in ((duplicate_scan, "SCANNED_BYTES"), (peek, "READ_BYTES"), (deletion, "READ_BYTES")):
        monkeypatch.setattr(module, name, most)
    read, counts = OffsetReader.read, list[int]()

    def counted(reader: OffsetReader, *arguments: Any, **named: Any) -> Any:
        records = read(reader, *arguments, **named)
        counts.append(len(records))
        return records

    monkeypatch.setattr(OffsetReader, "read", counted)
    queue = new_queue(runtime.connection_string, requires_duplicate_detection=True)
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        for one in "abcadefgbhij":
            large = "x" * SIZE
            message = ServiceBusMessage(one + (large if in_body else ""), message_id=one)
            message.application_properties = {} if in_body else {"large": large}
            sender.send_messages(message)
        first, second, third = take(receiver, 3)
        receiver.complete_message(second)
        receiver.defer_message(third)
        receiver.abandon_message(first)
        counts.clear()
        assert [str(one)[0] for one in receiver.peek_messages(20, sequence_number=1)] == list("acdefghij")
        assert max(counts) == count
        counts.clear()
        context = client._connections()
        assert context.deletion.delete(context.catalog.entity(EntityPath(queue)), 20, NEVER) == 8
        assert max(counts) == count
        assert [str(one)[0] for one in receiver.peek_messages(20, sequence_number=1)] == ["c"]
