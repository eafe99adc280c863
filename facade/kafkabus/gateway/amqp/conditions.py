"""Conditions of errors: symbols that AMQP 1.0 names, and the error that carries one."""

from __future__ import annotations

from typing import Final

from kafkabus_mapping.amqp.types import Symbol

INTERNAL_ERROR: Final = Symbol("amqp:internal-error")
NOT_FOUND: Final = Symbol("amqp:not-found")
UNAUTHORIZED_ACCESS: Final = Symbol("amqp:unauthorized-access")
DECODE_ERROR: Final = Symbol("amqp:decode-error")
RESOURCE_LIMIT_EXCEEDED: Final = Symbol("amqp:resource-limit-exceeded")
NOT_ALLOWED: Final = Symbol("amqp:not-allowed")
INVALID_FIELD: Final = Symbol("amqp:invalid-field")
NOT_IMPLEMENTED: Final = Symbol("amqp:not-implemented")
ILLEGAL_STATE: Final = Symbol("amqp:illegal-state")
CONNECTION_FORCED: Final = Symbol("amqp:connection:forced")
FRAMING_ERROR: Final = Symbol("amqp:connection:framing-error")
WINDOW_VIOLATION: Final = Symbol("amqp:session:window-violation")
HANDLE_IN_USE: Final = Symbol("amqp:session:handle-in-use")
UNATTACHED_HANDLE: Final = Symbol("amqp:session:unattached-handle")
DETACH_FORCED: Final = Symbol("amqp:link:detach-forced")
TRANSFER_LIMIT_EXCEEDED: Final = Symbol("amqp:link:transfer-limit-exceeded")
MESSAGE_SIZE_EXCEEDED: Final = Symbol("amqp:link:message-size-exceeded")
UNKNOWN_TRANSACTION: Final = Symbol("amqp:transaction:unknown-id")
TRANSACTION_ROLLBACK: Final = Symbol("amqp:transaction:rollback")
TRANSACTION_TIMEOUT: Final = Symbol("amqp:transaction:timeout")


class AmqpError(Exception):
    """An error that is reported to the peer.

    Attributes:
        condition: The condition's symbol.
        description: The cause, in plain words.
    """

    def __init__(self, condition: Symbol, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description
