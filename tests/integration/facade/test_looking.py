"""Looking at messages: large ones are read a few at a time, and none is shown twice."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._ledger.operations import Peek
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
        assert context.receiving.deletion.delete(context.catalog.entity(EntityPath(queue)), 20, NEVER) == 8
        assert max(counts) == count
        assert [str(one)[0] for one in receiver.peek_messages(20, sequence_number=1)] == ["c"]


def test_a_session_that_is_used_meanwhile_is_looked_at_once(
    runtime: RunningNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is asked again, as its first answer has messages of another session alone."""
    queue = new_queue(runtime.connection_string, requires_session=True)
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with (
        ServiceBusClient.from_connection_string(runtime.connection_string) as client,
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, session_id="a") as receiver,
    ):

        def send_and_receive(*bodies: str) -> None:
            sender.send_messages([ServiceBusMessage(body, session_id="a") for body in bodies])
            assert len(take(receiver, len(bodies))) == len(bodies)

        send_and_receive("a0")
        sender.schedule_messages([ServiceBusMessage(f"b{one}", session_id="b") for one in range(12)], later)
        asked: list[int] = []

        class UsedBefore(Peek):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                asked.append(self.start)
                if len(asked) == 2:
                    send_and_receive("a1", "a2")

        monkeypatch.setattr(peek, "Peek", UsedBefore)
        seen = [str(one) for _ in range(4) for one in receiver.peek_messages(10)]
        assert seen == ["a1", "a2"]
        assert len(asked) > 4
