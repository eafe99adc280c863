"""Conditions of errors that Service Bus adds to those of AMQP, as Azure's SDKs know them."""

from __future__ import annotations

from typing import Final

from kafkabus_mapping.amqp.types import Symbol

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
