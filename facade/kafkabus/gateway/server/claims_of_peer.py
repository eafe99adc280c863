"""The claims of one client."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from kafkabus_mapping.names import EntityPath


class Right(Enum):
    """What a client may do with an entity."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


class Claims:
    """The claims of a client; as long as no policies are configured, they are carried and not checked."""

    def put(self, audience: str, token: str, expiration: datetime | None) -> None:
        """Take a claim."""

    def check(self, path: EntityPath, *rights: Right) -> None:
        """Check that the client may do one of several things with an entity."""
