"""The namespace that a gateway serves: its entities, and the SDK's senders and receivers for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from kafkabus._async.context import ClientContext
from kafkabus._core.entity import Entity
from kafkabus._core.enums import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode, ServiceBusSubQueue
from kafkabus._core.exceptions import MessagingEntityNotFoundError, ServiceBusError
from kafkabus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.gateway.amqp.conditions import DETACH_FORCED, NOT_ALLOWED, AmqpError
from kafkabus.gateway.server.errors import to_amqp_error
from kafkabus_mapping.names import SUBSCRIPTIONS, EntityPath


class ServedNamespace:
    """A namespace, as all links of a gateway use it.

    Args:
        connection_string: The namespace, with the addresses of Kafka and Redis.

    Attributes:
        client: The namespace's client.
        administration: The namespace's administration client.
    """

    def __init__(self, connection_string: str) -> None:
        self.client = ServiceBusClient.from_connection_string(connection_string)
        self.context.registry.kind = "gateway"
        self.administration = ServiceBusAdministrationClient.from_connection_string(connection_string)

    async def close(self) -> None:
        """Close the connections to Kafka and Redis."""
        await self.client.close()
        await self.administration.close()

    def sender(self, path: EntityPath) -> ServiceBusSender:
        """Return a sender to a queue or topic.

        Raises:
            AmqpError: It is neither.
        """
        if path.is_dead_letter or SUBSCRIPTIONS in path.name:
            raise AmqpError(NOT_ALLOWED, f"nothing can be sent to {path}: send to a queue or a topic")
        return self.client.get_queue_sender(path.name)

    def receiver(
        self,
        path: EntityPath,
        identifier: str,
        *,
        takes: bool = False,
        in_session: bool = False,
        session_id: str | None = None,
        wait: float | None = None,
    ) -> ServiceBusReceiver:
        """Return a receiver.

        Args:
            path: The queue or subscription, with its sub-queue.
            identifier: The receiver's identifier, which its locks name.
            takes: Whether messages are deleted when they are received.
            in_session: Whether to receive from a session.
            session_id: Which one; None for the next that is available.
            wait: How long to wait for that session, in seconds.
        """
        options: dict[str, Any] = {
            "receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE if takes else ServiceBusReceiveMode.PEEK_LOCK,
            "client_identifier": identifier,
            "sub_queue": ServiceBusSubQueue(path.sub_queue.value) if path.is_dead_letter else None,
        }
        if in_session:
            options["session_id"] = NEXT_AVAILABLE_SESSION if session_id is None else session_id
            options["max_wait_time"] = wait
        topic, separator, subscription = path.name.partition(SUBSCRIPTIONS)
        if separator:
            return self.client.get_subscription_receiver(topic, subscription, **options)
        return self.client.get_queue_receiver(path.name, **options)

    async def entity(self, path: EntityPath) -> Entity:
        """Return an entity.

        Raises:
            MessagingEntityNotFoundError: There is none.
        """
        return await self.context.catalog.entity(path)

    async def entity_with_messages(self, path: EntityPath) -> Entity:
        """Return an entity that messages are received from.

        Raises:
            MessagingEntityNotFoundError: There is none.
            AmqpError: It is a topic.
        """
        entity = await self.entity(path)
        if entity.is_topic:
            raise AmqpError(
                NOT_ALLOWED,
                f"{path} is a topic, and its subscriptions have its messages: name one of them in the address, as "
                f"{path}{SUBSCRIPTIONS}NAME",
            )
        return entity

    async def to_link_error(self, error: Exception, path: EntityPath) -> AmqpError:
        """Return the AMQP error for an error of a link: a link whose entity was replaced may be attached again."""
        if isinstance(error, MessagingEntityNotFoundError):
            with suppress(ServiceBusError):
                self.context.catalog.look_up_again(await self.entity(path))
                await self.entity(path)
                return AmqpError(DETACH_FORCED, f"{path} was deleted and created again: attach the link again")
        return to_amqp_error(error, path)

    async def max_message_bytes(self, path: EntityPath) -> int:
        """Return how large a message to an entity may be.

        Raises:
            MessagingEntityNotFoundError: There is none.
        """
        return (await self.entity(path)).max_message_bytes

    @property
    def context(self) -> ClientContext:
        """The parts of the client."""
        return self.client._connections()

    def sessions(self, path: EntityPath, updated_after: datetime | None) -> AsyncIterator[str]:
        """Yield the ids of an entity's sessions.

        Raises:
            AmqpError: It is a dead-letter queue, which has none.
        """
        if path.is_dead_letter:
            raise AmqpError(NOT_ALLOWED, f"{path} has no sessions: ask for those of {path.name}")
        topic, separator, subscription = path.name.partition(SUBSCRIPTIONS)
        if separator:
            return aiter(self.client.list_subscription_sessions(topic, subscription, state_updated_after=updated_after))
        return aiter(self.client.list_queue_sessions(path.name, state_updated_after=updated_after))
