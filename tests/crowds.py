"""Many receivers of a queue, as far as those that really receive can tell."""

from __future__ import annotations

import time

from kafkabus.connection_string import parse_settings
from kafkabus.services import Services
from kafkabus_mapping.names import EntityPath

CROWD = 20
LONG = 600.0
"""How long, in seconds, they count: longer than any test takes."""


def crowd(connection_string: str, queue: str) -> None:
    """Have it look as if many clients received, so that who wants much claims messages before they are read."""
    services = Services(parse_settings(connection_string))
    try:
        heard_of = (time.time() + LONG) * 1000
        services.redis.zadd(
            services.entity(EntityPath(queue)).receivers_key, {f"another {number}": heard_of for number in range(CROWD)}
        )
    finally:
        services.close()
