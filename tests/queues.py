"""New queues, and many receivers of them, as far as those that really receive can tell."""

from __future__ import annotations

import time
import uuid
from typing import Any

from kafkabus.connection_string import parse_settings
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.services import Services
from kafkabus_mapping.names import EntityPath

CROWD = 20
LONG = 600.0
"""How long, in seconds, they count: longer than any test takes."""


def new_queue(connection_string: str, **settings: Any) -> str:
    """A new queue; a plain one, of a single log, unless the settings say otherwise."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        administration.create_queue(name, **settings)
    return name


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
