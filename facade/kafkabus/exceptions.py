"""Errors, with the names and meanings of ``azure.servicebus.exceptions``.

::

    ServiceBusError
    ├── ServiceBusConnectionError           Kafka or Redis broke off
    ├── ServiceBusCommunicationError        Kafka, Redis or a partition cannot be reached
    ├── ServiceBusAuthenticationError       credentials refused
    ├── ServiceBusAuthorizationError        no right to do this
    ├── OperationTimeoutError
    ├── MessageSizeExceededError            (also a ValueError)
    ├── InvalidOperationError               (also a ValueError) a rule of the entity forbids it
    ├── MessageLockLostError                the token's delivery is over
    ├── SessionLockLostError
    ├── SessionCannotBeLockedError
    ├── MessageNotFoundError
    ├── MessagingEntityNotFoundError        (ResourceNotFoundError in azure.core)
    ├── MessagingEntityDisabledError
    ├── MessagingEntityAlreadyExistsError   (ResourceExistsError in azure.core)
    ├── ServiceBusQuotaExceededError
    ├── ServiceBusServerBusyError
    ├── AutoLockRenewFailed
    ├── AutoLockRenewTimeout
    ├── LedgerError                         ours: Redis refused a request to a ledger
    ├── UnsuitableRedisError                ours: Redis would drop locks, or is part of a cluster
    └── EmbeddedRuntimeError                ours, in kafkabus.embedded: Kafka or Redis cannot be provided

    MessageAlreadySettled                   a ValueError and no ServiceBusError, as in azure.servicebus
"""

from __future__ import annotations


class ServiceBusError(Exception):
    """Root of the errors of a namespace.

    Args:
        message: What went wrong, the rule, and the remedy.
        error: The error underneath, if any.

    Attributes:
        message: As given.
        inner_exception: The error underneath, or None.
        retryable: Whether the same call may succeed later.
    """

    retryable = False

    def __init__(self, message: str = "", *, error: BaseException | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.inner_exception = error

    def __reduce__(self) -> tuple[object, tuple[str], dict[str, object]]:
        return type(self), (self.message,), {"inner_exception": self.inner_exception}


class ServiceBusConnectionError(ServiceBusError):
    """The connection to Kafka or Redis broke; whether the operation was carried out is unknown."""

    retryable = True


class ServiceBusCommunicationError(ServiceBusError):
    """Kafka, Redis or the partition that a key belongs to cannot be reached."""

    retryable = True


class ServiceBusAuthenticationError(ServiceBusError):
    """Kafka or Redis refused the credentials."""

    retryable = True


class ServiceBusAuthorizationError(ServiceBusError):
    """The credentials do not allow the operation."""

    retryable = True


class OperationTimeoutError(ServiceBusError):
    """The operation did not end in time; whether it was carried out is unknown where the message does not say."""

    retryable = True


class MessageSizeExceededError(ServiceBusError, ValueError):
    """A message or batch is larger than its namespace takes; nothing was sent."""


class InvalidOperationError(ServiceBusError, ValueError):
    """A rule of the entity forbids the operation (the service's InvalidOperationException); nothing was sent."""


class MessageLockLostError(ServiceBusError):
    """The lock expired, or the delivery was settled: its token settles nothing any more."""


class SessionLockLostError(ServiceBusError):
    """The session's lock expired."""


class SessionCannotBeLockedError(ServiceBusError):
    """Another receiver holds the session."""

    retryable = True


class MessageNotFoundError(ServiceBusError):
    """No deferred or scheduled message has that sequence number."""


class MessagingEntityNotFoundError(ServiceBusError):
    """There is no such entity."""


class MessagingEntityDisabledError(ServiceBusError):
    """The entity's status forbids the operation."""

    retryable = True


class MessagingEntityAlreadyExistsError(ServiceBusError):
    """There is such an entity already."""


class ServiceBusQuotaExceededError(ServiceBusError):
    """A quota is used up."""


class ServiceBusServerBusyError(ServiceBusError):
    """Kafka or Redis takes no more for now."""

    retryable = True


class AutoLockRenewFailed(ServiceBusError):
    """A lock could not be renewed; see ``auto_renew_error``."""


class AutoLockRenewTimeout(ServiceBusError):
    """A lock was renewed for as long as was asked for; see ``auto_renew_error``."""


class LedgerError(ServiceBusError):
    """Redis refused a request to a ledger; kafkabus's own, the service has no such error."""


class UnsuitableRedisError(ServiceBusError):
    """The Redis is not one that kafkabus can use: it evicts keys, or is part of a cluster; nothing was done.

    kafkabus's own, the service has no such error.
    """


class MessageAlreadySettled(ValueError):
    """The message was settled before, by this very object; as in ``azure.servicebus`` no ServiceBusError."""

    def __init__(self, message: str = "this message was settled already: receive it again to settle it again") -> None:
        super().__init__(message)
