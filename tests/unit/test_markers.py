"""The contents of the markers that transactions write about ledgers."""

from __future__ import annotations

from contextlib import closing

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus._core.settings import parse_settings
from kafkabus._sync.context import ClientContext
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.names import EntityPath


def test_what_is_settled_beyond_the_end_that_was_asked_for_is_none_of_it() -> None:
    """The ledger was read before and cannot know of that settlement; it would count as one that went back."""
    with (
        InMemoryNamespace() as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        closing(ClientContext(parse_settings(namespace.connection_string))) as context,
    ):
        administration.create_queue("q")
        client.get_queue_sender("q").send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        receiver = client.get_queue_receiver("q")
        prefix = context.catalog.entity(EntityPath("q")).ledgers[0].keys.prefix
        ends: list[int] = []
        for message in receiver.receive_messages(2, max_wait_time=60):
            with client.transaction() as transaction:
                receiver.complete_message(message, transaction=transaction)
            ends.append(context.stores.markers.end())
        found = [
            context.stores.markers.read_settlements({prefix: start}, end)
            for start, end in ((0, ends[0]), (0, ends[1]), (ends[0], ends[1]))
        ]
        assert [[one.ranges for one in settled.get(prefix, ())] for settled in found] == [
            [[(0, 0)]],
            [[(0, 0)], [(1, 1)]],
            [[(1, 1)]],
        ]
