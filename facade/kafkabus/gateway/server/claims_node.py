"""The node ``$cbs``, which takes claims: tokens that say what the client may do."""

from __future__ import annotations

from datetime import datetime

from kafkabus.gateway.server.errors import told
from kafkabus.gateway.server.requests import Answer, Request, RequestNode
from kafkabus_mapping.amqp.types import Int

PUT_CLAIM = "put-token"


class ClaimsNode(RequestNode):
    """Takes the client's claims."""

    async def answer(self, request: Request) -> Answer:
        """Take a claim."""
        if request.operation != PUT_CLAIM:
            return _answer(400, f"$cbs does no {request.operation!r}: it takes {PUT_CLAIM!r}")
        token, audience, expiration = request.body, request.options.get("name"), request.options.get("expiration")
        try:
            self.peer.claims.put(
                str(audience or ""),
                token if isinstance(token, str) else "",
                expiration if isinstance(expiration, datetime) else None,
            )
        except Exception as error:  # noqa: BLE001 - the client is told
            return _answer(401, told(error).description)
        return _answer(202, "Accepted")


def _answer(code: int, description: str) -> Answer:
    return Answer({"status-code": Int(code), "status-description": description})
