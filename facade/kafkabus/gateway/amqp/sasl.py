"""Logins by SASL: the outcomes that are sent to a peer (part 5 of AMQP 1.0's specification, section 5.3.3.6)."""

from __future__ import annotations

from typing import Final

from kafkabus.gateway.amqp.conditions import UNAUTHORIZED_ACCESS, AmqpError

PASSED: Final = 0
"""The outcome of SASL for a client that is let in."""
WRONG_CREDENTIALS: Final = 1
"""The outcome of SASL for a client that is refused for good."""
TRY_LATER: Final = 4
"""The outcome of SASL for a client that may try again."""


class LoginError(AmqpError):
    """A login is refused.

    Attributes:
        code: The outcome of SASL.
    """

    def __init__(self, code: int, description: str) -> None:
        super().__init__(UNAUTHORIZED_ACCESS, description)
        self.code = code
