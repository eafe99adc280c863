"""Work on messages without a caller: they expire, are given up, and are moved on if a client left them half-way.

``Upkeep`` is a service; any number of them may serve a namespace. The ledgers decide all that a service does, as for any other
client, so two that tend the same entity for a moment harm nothing.
"""

from kafkabus.upkeep.process import serve
from kafkabus.upkeep.service import Upkeep

__all__ = ["Upkeep", "serve"]
