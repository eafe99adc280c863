"""The rights that operations need: a client needs one of them, for the operation's entity, when it asks for the operation.

Service Bus documents the rights to create and delete rules, to list them, to receive, settle, defer and dead-letter, to use the
states of sessions, and to send. Of the others, those that show, lock or delete messages, or show sessions, need the right to
receive, and those that store messages or remove what was stored so need the right to send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkabus.gateway.sas_tokens import Right

SENDING: Final = (Right.SEND,)
"""The right of links on which a client sends messages."""
RECEIVING: Final = (Right.LISTEN,)
"""The right of links on which a client receives messages."""
TRANSACTING: Final = (Right.SEND, Right.LISTEN)
"""The rights of the link to the coordinator, for any entity: each operation in a transaction needs its own right as well."""
MANAGING: Final = tuple(Right)
"""The rights of links to ``$management``, which clients open with every other link; each request needs its own right."""
OPERATIONS: Final[Mapping[str, tuple[Right, ...]]] = {
    "renew-lock": (Right.LISTEN,),
    "renew-session-lock": (Right.LISTEN,),
    "peek-message": (Right.LISTEN,),
    "receive-by-sequence-number": (Right.LISTEN,),
    "update-disposition": (Right.LISTEN,),
    "batch-delete-messages": (Right.LISTEN,),
    "get-session-state": (Right.LISTEN,),
    "set-session-state": (Right.LISTEN,),
    "get-message-sessions": (Right.LISTEN,),
    "schedule-message": (Right.SEND,),
    "cancel-scheduled-message": (Right.SEND,),
    "enumerate-rules": (Right.MANAGE, Right.LISTEN),
    "add-rule": (Right.MANAGE,),
    "remove-rule": (Right.MANAGE,),
}
"""The rights of the operations of ``$management``, by their names without ``com.microsoft:``."""
