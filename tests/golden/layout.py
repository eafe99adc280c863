"""The names and forms of all that this version stores, so that a change of any of them is noticed."""

from __future__ import annotations

import json
from typing import Any

from kafkabus._ledger import keys
from kafkabus._ledger.layout import FIELDS, GRAMMARS, KEYS
from kafkabus._ledger.snapshot import Snapshot
from kafkabus_mapping import headers
from kafkabus_mapping.checkpoints import CHANGES, block_text
from kafkabus_mapping.entities import QueueDescription, RuleSet, SubscriptionDescription, TopicDescription
from kafkabus_mapping.filters.rules import (
    CorrelationFilterDescription,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)
from kafkabus_mapping.names import EntityPath, compacted_topic_name, topic_name
from kafkabus_mapping.namespaces import NamespaceDescription

_MODELS = (
    CorrelationFilterDescription,
    NamespaceDescription,
    QueueDescription,
    RuleDescription,
    RuleSet,
    SqlActionDescription,
    SqlFilterDescription,
    SubscriptionDescription,
    TopicDescription,
)
_PURPOSES = ("archive", "checkpoints", "clock", "descriptions", "session-states", "transactions")
_PATH = EntityPath("News/Subscriptions/a_b")


def layout() -> dict[str, Any]:
    """Return the layout, as JSON has it."""
    ledger = keys.LedgerKeys.of("shop", _PATH, "<generation>", 7)
    return {
        "descriptions": {model.__name__: sorted(model.model_fields) for model in _MODELS},
        "headers": sorted(value for name, value in vars(headers).items() if isinstance(value, str) and name.isupper()),
        "topics": [topic_name("shop", path) for path in _PATH.all]
        + [compacted_topic_name("shop", purpose) for purpose in _PURPOSES],
        "ledger keys": {key.name: [key.kind, key.group.name] for key in KEYS},
        "ledger fields": [field.name for field in FIELDS],
        "ledger forms": {grammar.name: grammar.form for grammar in GRAMMARS},
        "keys": [
            ledger.meta,
            ledger.anew,
            ledger.slot("<client>"),
            *keys.entity_keys("shop", _PATH, "<generation>"),
            keys.upkeep_key("shop"),
            keys.clients_key("shop"),
            keys.descriptions_key("shop"),
            keys.deleted_key("shop", "<name>"),
            keys.turn_key("shop", "<name>"),
        ],
        "channels": [keys.notification_channel("shop", _PATH), keys.upkeep_channel("shop")],
        "checkpoint": _checkpoint(),
    }


def _checkpoint() -> dict[str, Any]:
    """Return the head and the blocks of a ledger that holds something of each kind."""
    snapshot = Snapshot(
        cursor=100,
        version=7,
        has_message_ttl=True,
        epoch=3,
        waiting=[(10, 12, 1)],
        deferred=[(20, 20, 2)],
        moving=[(30, 1, "<intent>")],
        skipped=[110],
        dedup_upto=90,
        dedup_epoch=3,
        duplicates=[(40, 41)],
        schedules=True,
        scheduled=[(50, 1_769_860_800_000)],
        markers=5,
        changes=[(10, {"<name>": '"<JSON>"'}, False), (30, {"<name>": "1"}, True)],
    )
    blocks = {str(number): block_text(7, content) for number, content in snapshot.blocks().items()}
    changes = snapshot.change_chunks()
    blocks |= {f"{CHANGES}{name}": block_text(7, content) for name, content in changes.items()}
    return {"head": json.loads(snapshot.head({0: 7}, dict.fromkeys(changes, 7))), "blocks": blocks}
