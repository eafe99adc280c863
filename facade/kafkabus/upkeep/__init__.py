"""What happens to messages without a caller: they expire, are given up, and are moved on where a client left them half-way.

``Upkeep`` is a service; any number of them may serve a namespace. Whatever they do is decided by the ledgers, as for any other
client, so two that tend the same entity for a moment harm nothing.
"""

from kafkabus.upkeep.service import Upkeep, serve

__all__ = ["Upkeep", "serve"]
