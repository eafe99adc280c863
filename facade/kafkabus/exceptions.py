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

Where azure-core is installed they are its errors, too, so that applications go on that catch those: all are an ``AzureError``;
what the service's administration answers with an HTTP status is an ``HttpResponseError`` with that.
"""

from kafkabus._core.exceptions import (
    AutoLockRenewFailed,
    AutoLockRenewTimeout,
    InvalidOperationError,
    LedgerError,
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
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
    UnsuitableRedisError,
)

__all__ = [
    "AutoLockRenewFailed",
    "AutoLockRenewTimeout",
    "InvalidOperationError",
    "LedgerError",
    "MessageAlreadySettled",
    "MessageLockLostError",
    "MessageNotFoundError",
    "MessageSizeExceededError",
    "MessagingEntityAlreadyExistsError",
    "MessagingEntityDisabledError",
    "MessagingEntityNotFoundError",
    "OperationTimeoutError",
    "ServiceBusAuthenticationError",
    "ServiceBusAuthorizationError",
    "ServiceBusCommunicationError",
    "ServiceBusConnectionError",
    "ServiceBusError",
    "ServiceBusQuotaExceededError",
    "ServiceBusServerBusyError",
    "SessionCannotBeLockedError",
    "SessionLockLostError",
    "UnsuitableRedisError",
]

for _name in __all__:
    # Tracebacks and pickles name the module that applications import.
    globals()[_name].__module__ = __name__
