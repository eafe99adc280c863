"""Errors as answers, with the statuses and codes by which clients know them."""

from __future__ import annotations

from dataclasses import dataclass

from kafkabus._core.exceptions import (
    InvalidOperationError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from kafkabus.gateway.administration.atom import DocumentError
from kafkabus.gateway.sas_tokens import TooManyAttemptsError, UnauthorizedError


class RefusedError(Exception):
    """A request that cannot be carried out.

    Args:
        status: The status of HTTP.
        detail: The failure, the rule and the remedy.

    Attributes:
        status: As given.
        detail: As given.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as an answer.

    Attributes:
        status: The status of HTTP.
        detail: The text for the client.
        ours: Whether the operator of the gateway has to know.
    """

    status: int
    detail: str
    ours: bool = False


def failure_of(error: Exception) -> ErrorAnswer:  # noqa: C901, PLR0911 - a case each
    """Return the answer for an error."""
    match error:
        case RefusedError():
            return ErrorAnswer(error.status, error.detail)
        case TooManyAttemptsError():
            return ErrorAnswer(429, f"SubCode=42900. Too Many Requests. {error}")
        case UnauthorizedError():
            # Also if only rights are missing: .NET's client takes 403 for a quota that is used up.
            return ErrorAnswer(401, f"SubCode=40100: Unauthorized. {error}")
        case MessagingEntityNotFoundError():
            return ErrorAnswer(404, f"SubCode=40400. Not Found. {error}")
        case MessagingEntityAlreadyExistsError():
            return ErrorAnswer(409, f"SubCode=40900. Conflict. {error}")
        case ServiceBusQuotaExceededError():
            return ErrorAnswer(403, f"SubCode=40302. Forbidden. {error}")
        case OperationTimeoutError():
            return ErrorAnswer(408, str(error))
        case InvalidOperationError() | DocumentError():
            return ErrorAnswer(400, f"SubCode=40000. Bad Request. {error}")
        case ServiceBusAuthenticationError() | ServiceBusAuthorizationError():
            # These are the gateway's own credentials, not the client's.
            return ErrorAnswer(
                503, "Kafka or Redis refuses the gateway's credentials: its operator has to see to that", True
            )
        case ServiceBusError() if error.retryable:
            return ErrorAnswer(503, "SubCode=50300. The namespace cannot be reached; try again", True)
        case _:
            return ErrorAnswer(500, "SubCode=50000. Internal Server Error", True)
