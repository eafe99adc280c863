"""Errors of the SDK as AMQP carries them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kafkabus._core.exceptions import (
    InvalidOperationError,
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from kafkabus.gateway.amqp import conditions as c
from kafkabus.gateway.amqp.conditions import AmqpError
from kafkabus.gateway.server import service_bus_conditions as service_bus
from kafkabus_mapping.amqp.types import Symbol

LOGGER = logging.getLogger("kafkabus.gateway")

_CONDITIONS: Final[Mapping[type[Exception], Symbol]] = {
    MessagingEntityNotFoundError: c.NOT_FOUND,
    MessagingEntityDisabledError: service_bus.ENTITY_DISABLED,
    MessagingEntityAlreadyExistsError: service_bus.ENTITY_ALREADY_EXISTS,
    MessageLockLostError: service_bus.MESSAGE_LOCK_LOST,
    MessageAlreadySettled: service_bus.MESSAGE_LOCK_LOST,
    SessionLockLostError: service_bus.SESSION_LOCK_LOST,
    SessionCannotBeLockedError: service_bus.SESSION_CANNOT_BE_LOCKED,
    MessageNotFoundError: service_bus.MESSAGE_NOT_FOUND,
    MessageSizeExceededError: c.MESSAGE_SIZE_EXCEEDED,
    ServiceBusQuotaExceededError: c.RESOURCE_LIMIT_EXCEEDED,
    OperationTimeoutError: service_bus.TIMEOUT,
    InvalidOperationError: c.NOT_ALLOWED,
    # The gateway's own access to Kafka and Redis: the application's credentials are not in question.
    ServiceBusAuthenticationError: service_bus.SERVER_BUSY,
    ServiceBusAuthorizationError: service_bus.SERVER_BUSY,
    ServiceBusServerBusyError: service_bus.SERVER_BUSY,
    ServiceBusConnectionError: service_bus.SERVER_BUSY,
}


def to_amqp_error(error: BaseException, entity: object = "") -> AmqpError:
    """Return an error as it is reported to the peer; an unexpected one is logged with its trace.

    Args:
        error: The error.
        entity: The entity that it is about.
    """
    if isinstance(error, AmqpError):
        return error
    if isinstance(error, MessagingEntityNotFoundError):
        # Some clients know a missing entity by these words.
        return AmqpError(c.NOT_FOUND, f"The messaging entity '{entity}' could not be found. {error.message}")
    for kind, condition in _CONDITIONS.items():
        if isinstance(error, kind):
            return AmqpError(condition, str(error))
    if isinstance(error, ServiceBusError):
        return AmqpError(service_bus.SERVER_BUSY if error.retryable else c.INTERNAL_ERROR, error.message)
    if isinstance(error, (TypeError, ValueError)):
        return AmqpError(service_bus.ARGUMENT_ERROR, str(error))
    LOGGER.error("unexpected error", exc_info=error)
    return AmqpError(c.INTERNAL_ERROR, f"{type(error).__name__}: the gateway's log has more")
