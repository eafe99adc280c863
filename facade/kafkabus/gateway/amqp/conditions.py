"""Conditions of errors: symbols that AMQP 1.0 and Service Bus name, and the error that carries one."""

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

DEAD_LETTER: Final = Symbol("com.microsoft:dead-letter")
TIMEOUT: Final = Symbol("com.microsoft:timeout")
ARGUMENT_ERROR: Final = Symbol("com.microsoft:argument-error")
ENTITY_DISABLED: Final = Symbol("com.microsoft:entity-disabled")
ENTITY_ALREADY_EXISTS: Final = Symbol("com.microsoft:entity-already-exists")
MESSAGE_LOCK_LOST: Final = Symbol("com.microsoft:message-lock-lost")
SESSION_LOCK_LOST: Final = Symbol("com.microsoft:session-lock-lost")
SESSION_CANNOT_BE_LOCKED: Final = Symbol("com.microsoft:session-cannot-be-locked")
MESSAGE_NOT_FOUND: Final = Symbol("com.microsoft:message-not-found")
SERVER_BUSY: Final = Symbol("com.microsoft:server-busy")


class AmqpError(Exception):
    """An error that is told to the peer.

    Attributes:
        condition: The condition's symbol.
        description: The cause, in plain words.
    """

    def __init__(self, condition: Symbol, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description
