"""Logins by SASL: the mechanisms that are offered, and the credentials of ``PLAIN``."""

from __future__ import annotations

from typing import Final

from kafkabus.gateway.amqp.sasl import TRY_LATER, WRONG_CREDENTIALS, LoginError
from kafkabus.gateway.sas_tokens import Policies, TooManyAttemptsError, UnauthorizedError
from kafkabus.gateway.server.connection_claims import Claims

MECHANISMS: Final = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
"""The mechanisms by which clients may log in, as Service Bus and the older gateways of Azure's SDKs name them."""
PLAIN: Final = "PLAIN"
"""The mechanism by which a client logs in with the name and a key of a policy."""
EXTERNAL: Final = "EXTERNAL"
"""The mechanism of client certificates, which the gateway does not ask for."""


def offered(policies: Policies | None) -> tuple[str, ...]:
    """Return the mechanisms to offer: those that grant no right by themselves are for clients that put tokens."""
    return MECHANISMS if policies is None else tuple(name for name in MECHANISMS if name != EXTERNAL)


def log_in(claims: Claims, policies: Policies, response: bytes, address: str) -> None:
    """Give a client the claims of the policy whose name and key it logs in with.

    Args:
        claims: The client's claims.
        policies: The policies.
        response: The response of SASL PLAIN: three texts, with zero bytes between them.
        address: The client's address.

    Raises:
        LoginError: It is no such response, no policy has that name and key, or the address has to wait. The error shows no key,
            and no name that is not a policy's: it may be a key.
    """
    try:
        identity, name, key = response.decode().split("\0")
    except ValueError:
        # Python's error holds the response.
        raise LoginError(
            WRONG_CREDENTIALS, "the response of SASL PLAIN is malformed: it is \\0, name, \\0, key"
        ) from None
    shown = f"policy {name!r}" if policies.has(name) else "an unknown policy"
    if identity not in {"", name}:
        raise LoginError(WRONG_CREDENTIALS, f"SASL PLAIN with {shown}: a client cannot act for another one")
    try:
        claims.log_in(name, key, address)
    except UnauthorizedError as error:
        code = TRY_LATER if isinstance(error, TooManyAttemptsError) else WRONG_CREDENTIALS
        raise LoginError(code, f"SASL PLAIN with {shown}: {error}") from None
