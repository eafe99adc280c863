"""azure-core's errors if it is installed, so that applications that catch those catch ours; else classes of their names.

Applications that come from ``azure.servicebus`` have it; kafkabus does not need it. Source of the classes and of what they
mean: azure-core's reference, ``azure.core.exceptions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    INSTALLED = False
else:
    try:
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            HttpResponseError,
            ResourceExistsError,
            ResourceNotFoundError,
            ServiceRequestError,
            ServiceResponseError,
        )

        INSTALLED = True
    except ImportError:
        INSTALLED = False

if not INSTALLED:

    class AzureError(Exception):
        """Root of all."""

    class ServiceRequestError(AzureError):
        """The service was not reached."""

    class ServiceResponseError(AzureError):
        """The service was reached and gave no answer."""

    class HttpResponseError(AzureError):
        """The service refused."""

    class ClientAuthenticationError(HttpResponseError):
        """It refused the credentials."""

    class ResourceExistsError(HttpResponseError):
        """There is such a thing already."""

    class ResourceNotFoundError(HttpResponseError):
        """There is no such thing."""
