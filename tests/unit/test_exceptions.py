"""Errors are azure-core's if that is installed; otherwise they work without it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from azure.core import exceptions as azure_core
from azure.servicebus import exceptions as azure

from kafkabus import exceptions
from kafkabus.exceptions import ServiceBusError

CAUGHT: dict[str, tuple[type[Exception], int | None, str]] = {
    "MessagingEntityNotFoundError": (azure_core.ResourceNotFoundError, 404, "Not Found"),
    "MessagingEntityAlreadyExistsError": (azure_core.ResourceExistsError, 409, "Conflict"),
    "InvalidOperationError": (azure_core.HttpResponseError, 400, "Bad Request"),
    "ServiceBusAuthenticationError": (azure_core.ClientAuthenticationError, 401, "Unauthorized"),
    "ServiceBusAuthorizationError": (azure_core.HttpResponseError, 403, "Forbidden"),
    "ServiceBusQuotaExceededError": (azure_core.HttpResponseError, 403, "Forbidden"),
    "ServiceBusServerBusyError": (azure_core.HttpResponseError, 503, "Service Unavailable"),
    "OperationTimeoutError": (azure_core.HttpResponseError, 408, "Request Timeout"),
}
"""The errors that applications catch around administration, and the attributes that they read."""

UNREACHED = {
    "ServiceBusCommunicationError": azure_core.ServiceRequestError,
    "ServiceBusConnectionError": azure_core.ServiceResponseError,
}


@pytest.mark.parametrize("name", CAUGHT)
def test_applications_catch_what_they_caught(name: str) -> None:
    """An error is caught by azure-core's class, with status and reason, and by ours."""
    kind, status, reason = CAUGHT[name]
    cause = ValueError("underneath")
    with pytest.raises(kind, match="what, why") as caught:
        raise getattr(exceptions, name)("what, why", error=cause)
    error = caught.value
    assert isinstance(error, ServiceBusError)
    assert (error.message, error.inner_exception, str(error)) == ("what, why", cause, "what, why")
    assert (error.status_code, error.reason, error.response, error.model) == (status, reason, None, None)


@pytest.mark.parametrize("name", UNREACHED)
def test_what_is_not_reached_is_no_answer(name: str) -> None:
    """The error has no status."""
    error = getattr(exceptions, name)("gone")
    assert error.status_code is None
    assert isinstance(error, UNREACHED[name])


def test_each_error_of_azure_servicebus_is_there() -> None:
    """It has Azure's name, its base classes, and its attributes."""
    for name, theirs in inspect.getmembers(azure, inspect.isclass):
        if theirs.__module__ != azure.__name__ or not issubclass(theirs, Exception) or name.startswith("_"):
            continue
        ours = getattr(exceptions, name)
        for parent in (azure_core.AzureError, ValueError):
            assert issubclass(ours, parent) or not issubclass(theirs, parent), name
        if issubclass(ours, ServiceBusError):
            example = azure.ServiceBusError("why")
            assert {one for one in vars(example) if not one.startswith("_")} <= set(vars(ours("why"))), name


def test_without_azure_core_they_stand_alone() -> None:
    """Nothing of azure-core is imported."""
    program = (
        "import sys; sys.modules['azure'] = None\n"
        "from kafkabus import exceptions\n"
        "error = exceptions.MessagingEntityNotFoundError('gone')\n"
        "print(error.status_code, error.error_code, isinstance(error, exceptions.ServiceBusError))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("404 MessagingEntityNotFound True", "")
