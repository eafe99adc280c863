"""The node ``$cbs``, which takes claims."""

from __future__ import annotations

from typing import Final

from kafkabus.gateway.sas_tokens import TooManyAttemptsError, UnauthorizedError
from kafkabus.gateway.server.requests import Answer, Request, RequestNode
from kafkabus_mapping.amqp.types import Int

OPERATION: Final = "put-token"


class ClaimsNode(RequestNode):
    """Takes the client's claims."""

    # The longest token and audience, and what is around them: strangers may have larger ones decoded for nothing.
    most_bytes = 65_536
    most_values = 256

    async def answer(self, request: Request) -> Answer:
        """Take a claim."""
        if request.operation != OPERATION:
            return _answer(400, f"$cbs does no {request.operation!r}: it takes {OPERATION!r}")
        token, audience = request.body, request.options.get("name")
        try:
            self.peer.claims.put(str(audience or ""), token if isinstance(token, str) else "", self.peer.socket.address)
        except TooManyAttemptsError as error:
            # A client whose token is right may try again.
            return _answer(503, str(error))
        except UnauthorizedError as error:
            return _answer(401, str(error))
        self.peer.on_claim()
        return _answer(202, "Accepted")


def _answer(code: int, description: str) -> Answer:
    return Answer({"status-code": Int(code), "status-description": description})
