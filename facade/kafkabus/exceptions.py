"""Errors, with the names and meanings of ``azure.servicebus.exceptions``.

::

    ServiceBusError
    ├── ServiceBusConnectionError           Kafka or Redis closed the connection
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
    ├── LedgerError                         kafkabus only: Redis refused a request to a ledger
    ├── NamespaceFormatError                kafkabus only: another version stored the namespace
    ├── UnsuitableRedisError                kafkabus only: Redis would drop locks, or is part of a cluster
    └── EmbeddedRuntimeError                kafkabus.embedded only: Kafka or Redis cannot be provided

    MessageAlreadySettled                   a ValueError and no ServiceBusError, as in azure.servicebus

If azure-core is installed, the errors are also azure-core's, so that applications that catch those keep working: all are an
``AzureError``; errors for which the service's administration returns an HTTP status are an ``HttpResponseError`` with it.
"""

from kafkabus._core.azure_core import AzureError
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
    NamespaceFormatError,
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
    "AzureError",
    "InvalidOperationError",
    "LedgerError",
    "MessageAlreadySettled",
    "MessageLockLostError",
    "MessageNotFoundError",
    "MessageSizeExceededError",
    "MessagingEntityAlreadyExistsError",
    "MessagingEntityDisabledError",
    "MessagingEntityNotFoundError",
    "NamespaceFormatError",
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
    if _name != "AzureError":
        globals()[_name].__module__ = __name__
