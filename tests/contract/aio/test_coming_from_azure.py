"""Applications written for azure.servicebus also find its errors, dictionaries, texts and connection strings."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError, ResourceNotFoundError

from kafkabus import ServiceBusMessage, parse_connection_string
from kafkabus.aio import ServiceBusClient
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.management import QueueProperties
from tests.contract.aio.receiving import receive_all


async def test_errors_are_azure_cores(
    client: ServiceBusClient, administration: ServiceBusAdministrationClient, queue: str
) -> None:
    """The errors have a code, and the status and reason that the service's administration would answer."""
    with pytest.raises(ResourceExistsError) as exists:
        await administration.create_queue(queue)
    with pytest.raises(ResourceNotFoundError) as missing:
        await administration.get_topic("there-is-none")
    with pytest.raises(HttpResponseError) as refused:
        await administration.create_queue("refused", lock_duration=timedelta(minutes=6))
    with pytest.raises(AzureError):
        await client.get_queue_receiver("there-is-none").receive_messages(max_wait_time=1)
    told = [(one.value.status_code, one.value.reason) for one in (exists, missing, refused)]
    assert told == [(409, "Conflict"), (404, "Not Found"), (400, "Bad Request")]
    for caught in (exists, missing, refused):
        error: Any = caught.value
        assert error.message == str(error)
        assert error.error_code
        assert error.response is None


async def test_properties_are_dictionaries_too(
    administration: ServiceBusAdministrationClient, queue: str, connection_string: str
) -> None:
    """That holds for properties of entities, of the namespace, and of a connection string."""
    known = await administration.get_queue(queue)
    known["max_delivery_count"] = 7
    known.update({"lock_duration": timedelta(seconds=30)})
    await administration.update_queue(known)
    found = await administration.get_queue(queue)
    assert (found["max_delivery_count"], found.get("lock_duration")) == (7, timedelta(seconds=30))
    assert ("name" in found, "colour" in found, found.get("colour", 1)) == (True, False, 1)
    assert {"name", "status"} < set(found.keys())
    assert QueueProperties(**dict(found)) == found
    assert (await administration.get_namespace_properties())["namespace_type"] == "Messaging"
    parts = parse_connection_string(connection_string)
    assert parts["endpoint"] == parts.endpoint
    assert set(dict(parts)) == set(parts.keys())
    counts = await administration.get_queue_runtime_properties(queue)
    assert (counts.size_in_bytes, counts.total_message_count) == (0, 0)


class Loose:
    """A class that has keys and items, and is no Mapping."""

    def __init__(self, **items: object) -> None:
        self._items = items

    def keys(self) -> list[str]:
        """Return its keys."""
        return list(self._items)

    def __getitem__(self, key: str) -> object:
        return self._items[key]


async def test_mappings_are_messages(client: ServiceBusClient, queue: str) -> None:
    """A mapping of any kind is accepted. If one is badly formed, no message is sent."""
    good: Any = Loose(body="good", subject="s")
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        for bad in (Loose(subject="s"), Loose(body=5), {"body": "x", "subject": 5}):
            wrong: Any = bad
            with pytest.raises(TypeError):
                await sender.send_messages([good, wrong])
            batch = await sender.create_message_batch()
            with pytest.raises(TypeError):
                batch.add_message(wrong)
        await sender.send_messages(good)
        assert [(str(one), one.subject) for one in await receive_all(receiver, 1)] == [("good", "s")]


async def test_what_is_printed_of_a_message(client: ServiceBusClient, queue: str) -> None:
    """The text has the body, cut, and the properties in Azure's order; for a received message, also its place."""
    sent = ServiceBusMessage("x" * 1000, message_id="m", subject="s", application_properties={"a": 1})
    assert repr(sent).startswith(f"ServiceBusMessage(body={'x' * 200}… (1000 bytes), application_properties={{'a': 1}}")
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(sent)
        (message,) = await receiver.receive_messages(max_wait_time=60)
        names = re.findall(r", (\w+)=", repr(message))
        assert (
            names.index("session_id") < names.index("message_id") < names.index("delivery_count") < names.index("state")
        )
        assert f"lock_token={message.lock_token}" in repr(message)
        await receiver.complete_message(message)


async def test_connection_strings_as_azure_takes_them(connection_string: str, queue: str) -> None:
    """The parts may have any case, a kind of transport and an entity. Azure's other keywords are accepted in silence."""
    lower = re.sub(r"(^|;)(\w+)=", lambda found: found[0].lower(), connection_string.rstrip(";"))
    keywords: dict[str, Any] = {
        "retry_total": 2,
        "retry_backoff_factor": 0.1,
        "retry_backoff_max": 1,
        "retry_mode": "fixed",
        "logging_enable": True,
        "transport_type": "Amqp",
        "http_proxy": None,
        "custom_endpoint_address": None,
        "connection_verify": None,
        "user_agent": "mine",
        "try_timeout": 5,
    }
    async with (
        ServiceBusClient.from_connection_string(
            f"{lower};TransportType=AmqpWebSockets;EntityPath={queue}", **keywords
        ) as one,
        one.get_queue_sender(queue) as sender,
        one.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("x"))
        assert [str(message) for message in await receive_all(receiver, 1)] == ["x"]
        with pytest.raises(ValueError, match=queue):
            one.get_queue_sender("another")
    nothing: Any = None
    with pytest.raises(TypeError, match="conn_str"):
        ServiceBusClient.from_connection_string(nothing)
    with pytest.raises(TypeError, match="conn_str"):
        ServiceBusAdministrationClient.from_connection_string(nothing)
