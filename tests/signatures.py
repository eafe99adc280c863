"""Shared access signatures, made as the documentation of Service Bus says."""

from __future__ import annotations

import base64
import hmac
import time
from urllib.parse import quote


def signature(
    audience: str, policy: str, key: str, lasts: float = 600.0, *, expires: str = "", resource: str | None = None
) -> str:
    """Return a shared access signature.

    Args:
        audience: The URI that it is for.
        policy: The policy.
        key: The policy's key.
        lasts: How long it lasts, in seconds.
        expires: Its end, in place of ``lasts``: a number of seconds since 1970, or a text that is none.
        resource: The encoded URI that is signed, in place of that of ``audience``.
    """
    scope = quote(audience, safe="") if resource is None else resource
    until = expires or str(int(time.time() + lasts))
    digest = base64.b64encode(hmac.digest(key.encode(), f"{scope}\n{until}".encode(), "sha256"))
    return f"SharedAccessSignature sr={scope}&sig={quote(digest, safe='')}&se={until}&skn={quote(policy, safe='')}"
