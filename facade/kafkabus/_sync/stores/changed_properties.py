# Generated from facade/kafkabus/_async/stores/changed_properties.py by tools/generate_blocking.py. Do not edit.
"""Application properties that were changed when messages were returned, which ledgers keep."""

from __future__ import annotations

from collections.abc import Sequence

from kafkabus._core.record import Record, with_changes
from kafkabus._ledger.operations import Ledger
from kafkabus._sync.connections import Connections


def as_changed(connections: Connections, ledger: Ledger, records: Sequence[Record]) -> list[Record]:
    """Return records as their messages are since they were returned with changed application properties.

    Args:
        connections: The client's connections.
        ledger: The ledger that granted or listed the messages.
        records: The records, as a subscription's rules made them.

    Raises:
        ServiceBusCommunicationError: Redis cannot be reached.
    """
    if not (ledger.has_changes and records):
        return list(records)
    changes = connections.ledger_client.changed_properties(ledger, [record.offset() or 0 for record in records])
    return [with_changes(record, changes.get(record.offset() or 0, {})) for record in records]
