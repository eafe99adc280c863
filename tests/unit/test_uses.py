"""Uses of an entity without receiving from it: each counts as access, so that the entity is not idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafkabus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace

Use = Callable[[ServiceBusClient, ServiceBusReceivedMessage], object]


@pytest.fixture
def namespace() -> Iterator[InMemoryNamespace]:
    """A namespace with a queue of each kind."""
    with (
        InMemoryNamespace() as namespace,
        ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration,
    ):
        administration.create_queue("q")
        administration.create_queue("s", requires_session=True)
        yield namespace


def plain(client: ServiceBusClient) -> ServiceBusReceiver:
    """Return a receiver of the plain queue."""
    return client.get_queue_receiver("q")


def test_uses_count_as_access(namespace: InMemoryNamespace) -> None:
    """Each is made by a new client, which does nothing else."""
    uses: dict[str, Use] = {
        "peek": lambda client, _: plain(client).peek_messages(),
        "renew": lambda client, message: plain(client).renew_message_lock(message),
        "defer": lambda client, message: plain(client).defer_message(message),
        "receive deferred": lambda client, message: plain(client).receive_deferred_messages(
            message.sequence_number or 0
        ),
        "purge": lambda client, _: plain(client).purge_messages(),
    }
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        client.get_queue_sender("q").send_messages(ServiceBusMessage("x"))
        (message,) = plain(client).receive_messages()
    for name, use in uses.items():
        assert _is_access(namespace, "q", lambda client, use=use: use(client, message)), name  # type: ignore[misc]


def test_uses_of_sessions_count_as_access(namespace: InMemoryNamespace) -> None:
    """By a receiver that receives nothing, and by listing them."""
    uses: dict[str, Callable[[ServiceBusClient], object]] = {
        "open": lambda client: client.get_queue_receiver("s", session_id="a").__enter__(),
        "list": lambda client: list(client.list_queue_sessions("s")),
        "list states": lambda client: list(client.list_queue_sessions("s", state_updated_after=message_time)),
    }
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        client.get_queue_sender("s").send_messages(ServiceBusMessage("x", session_id="a"))
        (message,) = client.get_queue_receiver("s", session_id="a").peek_messages()
        message_time = message.enqueued_time_utc
    for name, use in uses.items():
        namespace.advance(61)
        assert _is_access(namespace, "s", use), name


def test_a_session_that_is_held_is_used(namespace: InMemoryNamespace) -> None:
    """Renewing its lock and its state are uses."""
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        with client.get_queue_receiver("s", session_id="a") as receiver:
            session = receiver.session
            assert session is not None
            for use in (session.renew_lock, session.get_state, lambda: session.set_state(b"x")):
                client._connections().connections.notifications._used.clear()
                assert _is_access(namespace, "s", lambda _, use=use: use())  # type: ignore[misc]


def _is_access(namespace: InMemoryNamespace, queue: str, use: Callable[[ServiceBusClient], object]) -> bool:
    """Return whether a use by a new client counts."""
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string) as administration:
        before = administration.get_queue_runtime_properties(queue).accessed_at_utc
        namespace.advance(10)
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            use(client)
        return administration.get_queue_runtime_properties(queue).accessed_at_utc > before
