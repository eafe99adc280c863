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
class Failure:
    """An error as an answer.

    Attributes:
        status: The status of HTTP.
        detail: The text for the client.
        ours: Whether the operator of the gateway has to know.
    """

    status: int
    detail: str
    ours: bool = False


def failure_of(error: Exception) -> Failure:  # noqa: C901, PLR0911 - a case each
    """Return the answer for an error."""
    match error:
        case RefusedError():
            return Failure(error.status, error.detail)
        case TooManyAttemptsError():
            return Failure(429, f"SubCode=42900. Too Many Requests. {error}")
        case UnauthorizedError():
            # Also if only rights are missing: .NET's client takes 403 for a quota that is used up.
            return Failure(401, f"SubCode=40100: Unauthorized. {error}")
        case MessagingEntityNotFoundError():
            return Failure(404, f"SubCode=40400. Not Found. {error}")
        case MessagingEntityAlreadyExistsError():
            return Failure(409, f"SubCode=40900. Conflict. {error}")
        case ServiceBusQuotaExceededError():
            return Failure(403, f"SubCode=40302. Forbidden. {error}")
        case OperationTimeoutError():
            return Failure(408, str(error))
        case InvalidOperationError() | DocumentError():
            return Failure(400, f"SubCode=40000. Bad Request. {error}")
        case ServiceBusAuthenticationError() | ServiceBusAuthorizationError():
            # These are the gateway's own credentials, not the client's.
            return Failure(
                503, "Kafka or Redis refuses the gateway's credentials: its operator has to see to that", True
            )
        case ServiceBusError() if error.retryable:
            return Failure(503, "SubCode=50300. The namespace cannot be reached; try again", True)
        case _:
            return Failure(500, "SubCode=50000. Internal Server Error", True)
