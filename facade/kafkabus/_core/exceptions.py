"""Errors that users see; ``kafkabus.exceptions`` names them."""

from __future__ import annotations

import sys
from http import HTTPStatus
from types import TracebackType
from typing import ClassVar

from kafkabus._core.azure_core import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)


class ServiceBusError(AzureError):
    """Root of the errors of a namespace.

    Args:
        message: The failure, the rule, and the remedy.
        error: The error underneath, if any.

    Attributes:
        message: As given.
        inner_exception: The error underneath, or None.
        retryable: Whether the same call may succeed later.
        error_code: The name of the failure in .NET's client (``ServiceBusFailureReason``), such as ``MessageLockLost``.
        status_code: HTTP status with which the service's administration answers, or None.
        reason: The status in words, or None.
        response: None: there was no HTTP.
        model: None, for the same reason.
        error: None, for the same reason.
        exc_type: The type of the exception that was handled when this error was made, else of ``error``; as azure-core's errors
            have it.
        exc_value: The exception that was handled, or None.
        exc_traceback: The traceback of that exception, or None.
        exc_msg: The message, and the type and text of that exception.
        continuation_token: None: nothing can be continued.
    """

    retryable = False
    error_code: ClassVar[str] = "GeneralError"
    status_code: ClassVar[int | None] = None
    reason: ClassVar[str | None] = None
    # The positions, among the messages of a send, of those that are not known to be stored; None: that is known of none.
    _unstored: frozenset[int] | None = None

    def __init__(self, message: str = "", *, error: BaseException | None = None) -> None:
        # Azure-core's initialisers would take the message from an HTTP response.
        Exception.__init__(self, message)
        self.message = str(message)
        self.inner_exception = error
        self.response = self.model = self.error = self.continuation_token = None
        handled = sys.exc_info()
        self.exc_type: type[object] = handled[0] or type(error)
        self.exc_value: BaseException | None = handled[1]
        self.exc_traceback: TracebackType | None = handled[2]
        self.exc_msg = f"{message}, {self.exc_type.__name__}: {self.exc_value}"

    def __init_subclass__(cls, *, status: HTTPStatus | None = None, code: str | None = None) -> None:
        super().__init_subclass__()
        if status is not None:
            cls.status_code, cls.reason = status.value, status.phrase
        if code is not None:
            cls.error_code = code

    def __reduce__(self) -> tuple[object, tuple[str], dict[str, object]]:
        return type(self), (self.args[0],), {"inner_exception": self.inner_exception}


class ServiceBusConnectionError(ServiceBusError, ServiceResponseError, code="ServiceCommunicationProblem"):
    """The connection to Kafka or Redis broke; whether the operation was carried out is unknown."""

    retryable = True


class ServiceBusCommunicationError(ServiceBusError, ServiceRequestError, code="ServiceCommunicationProblem"):
    """Kafka, Redis or the partition that a key belongs to cannot be reached."""

    retryable = True


class ServiceBusAuthenticationError(
    ServiceBusError, ClientAuthenticationError, status=HTTPStatus.UNAUTHORIZED, code="Unauthorized"
):
    """Kafka or Redis refused the credentials."""

    retryable = True


class ServiceBusAuthorizationError(
    ServiceBusError, HttpResponseError, status=HTTPStatus.FORBIDDEN, code="Unauthorized"
):
    """The credentials do not allow the operation."""

    retryable = True


class OperationTimeoutError(
    ServiceBusError, HttpResponseError, status=HTTPStatus.REQUEST_TIMEOUT, code="ServiceTimeout"
):
    """The operation did not end in time; whether it was carried out is unknown if the message does not say."""

    retryable = True


class MessageSizeExceededError(ServiceBusError, ValueError, code="MessageSizeExceeded"):
    """A message or batch is larger than its namespace takes; nothing was sent."""


class InvalidOperationError(
    ServiceBusError, HttpResponseError, ValueError, status=HTTPStatus.BAD_REQUEST, code="InvalidOperation"
):
    """A rule of the entity forbids the operation (the service's InvalidOperationException); nothing was sent."""


class MessageLockLostError(ServiceBusError, code="MessageLockLost"):
    """The lock expired, or the delivery was settled: its token settles nothing any more."""


class SessionLockLostError(ServiceBusError, code="SessionLockLost"):
    """The session's lock expired."""


class SessionCannotBeLockedError(ServiceBusError, code="SessionCannotBeLocked"):
    """Another receiver holds the session."""

    retryable = True


class MessageNotFoundError(ServiceBusError, code="MessageNotFound"):
    """No deferred or scheduled message has that sequence number."""


class MessagingEntityNotFoundError(
    ServiceBusError, ResourceNotFoundError, status=HTTPStatus.NOT_FOUND, code="MessagingEntityNotFound"
):
    """There is no such entity."""


class MessagingEntityDisabledError(ServiceBusError, code="MessagingEntityDisabled"):
    """The entity's status forbids the operation."""

    retryable = True


class MessagingEntityAlreadyExistsError(
    ServiceBusError, ResourceExistsError, status=HTTPStatus.CONFLICT, code="MessagingEntityAlreadyExists"
):
    """There is such an entity already."""


class ServiceBusQuotaExceededError(
    ServiceBusError, HttpResponseError, status=HTTPStatus.FORBIDDEN, code="QuotaExceeded"
):
    """A quota is used up."""


class ServiceBusServerBusyError(
    ServiceBusError, HttpResponseError, status=HTTPStatus.SERVICE_UNAVAILABLE, code="ServiceBusy"
):
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


class NamespaceFormatError(ServiceBusError):
    """The namespace is stored in a format that this version of kafkabus does not read; nothing was read or written.

    kafkabus's own, the service has no such error.
    """


class MessageAlreadySettled(ValueError):
    """The message was settled before, through this very object; as in ``azure.servicebus``, this is no ServiceBusError."""

    def __init__(self, message: str = "this message was settled already: receive it again to settle it again") -> None:
        super().__init__(message)


def unstored_positions(error: Exception) -> frozenset[int] | None:
    """Return the positions of the messages of a failed send that are not known to be stored; None: that is known of none."""
    return error._unstored if isinstance(error, ServiceBusError) else None
