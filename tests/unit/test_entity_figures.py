"""Which entities have metrics of their own, and the figures of the others."""

from __future__ import annotations

import re

from kafkabus.upkeep.entity_figures import EntityFigures, TendedEntity
from kafkabus.upkeep.metrics import OTHERS, chosen
from kafkabus_mapping.names import SubQueue


def test_entities_beyond_the_bound_are_summed() -> None:
    """Numbers are added; of ages the highest counts; a skew has no sum. Their sub-queues are the same ones'."""
    tended = [
        *(
            TendedEntity(name, SubQueue.NONE, EntityFigures(active=active, oldest=age, skew=2.0))
            for name, active, age in (("b", 1, 5.0), ("A", 2, 6.0), ("c", 4, 7.0), ("z", 8, 1.0))
        ),
        TendedEntity("c", SubQueue.DEAD_LETTER, EntityFigures(active=16)),
    ]
    found = chosen(tended, most=1, pattern=re.compile("[abc]", re.IGNORECASE))
    assert found[SubQueue.NONE] == {
        "A": EntityFigures(active=2, oldest=6.0, skew=2.0),
        OTHERS: EntityFigures(active=13, oldest=7.0),
    }
    assert found[SubQueue.DEAD_LETTER] == {OTHERS: EntityFigures(active=16)}
    assert found[SubQueue.TRANSFER_DEAD_LETTER] == {}
