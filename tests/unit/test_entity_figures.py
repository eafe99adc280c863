"""Entities with their own metrics, and the summed figures of the others."""

from __future__ import annotations

import re

from kafkabus.upkeep.entity_figures import EntityFigures, RefusedCopy, TendedEntity
from kafkabus.upkeep.metrics import OTHERS, Growth, _refused_metric, choose_figures
from kafkabus_mapping.names import SubQueue


def test_entities_beyond_the_bound_are_summed() -> None:
    """Numbers are added; of ages the highest counts; a skew has no sum. Their sub-queues are the same ones'."""
    tended = [
        *(
            TendedEntity(name, SubQueue.NONE, EntityFigures(active=active, postponed=1, oldest=age, skew=2.0))
            for name, active, age in (("b", 1, 5.0), ("A", 2, 6.0), ("c", 4, 7.0), ("z", 8, 1.0))
        ),
        TendedEntity("c", SubQueue.DEAD_LETTER, EntityFigures(active=16)),
    ]
    found = choose_figures(tended, most=1, pattern=re.compile("[abc]", re.IGNORECASE))
    assert found[SubQueue.NONE] == {
        "A": EntityFigures(active=2, postponed=1, oldest=6.0, skew=2.0),
        OTHERS: EntityFigures(active=13, postponed=3, oldest=7.0),
    }
    assert found[SubQueue.DEAD_LETTER] == {OTHERS: EntityFigures(active=16)}
    assert found[SubQueue.TRANSFER_DEAD_LETTER] == {}


def test_refused_copies_are_named_with_their_entities() -> None:
    """Those of summed entities are, too; there are no more of them than series are allowed for."""
    copies = tuple(RefusedCopy("b", 0, number, 50_000) for number in range(9))
    tended = [
        TendedEntity(name, SubQueue.NONE, EntityFigures(refused=refused))
        for name, refused in (("b", copies), ("c", (RefusedCopy("c", 1, 7, 60_000), RefusedCopy("c", 1, 8, 60_000))))
    ]
    labels = choose_figures(tended, most=0, pattern=None)
    assert labels[SubQueue.NONE][OTHERS].refused == (*copies, RefusedCopy("c", 1, 7, 60_000))
    samples = _refused_metric("shop", labels).samples
    assert samples[-1].labels == {"namespace": "shop", "entity": "c", "partition": "1", "sequence_number": "7"}
    assert samples[-1].value == 60_000


def test_counters_of_summed_entities_grow_by_what_theirs_do() -> None:
    """An entity that comes adds nothing, and one that goes takes nothing away: either would look like a burst of messages."""
    growth = Growth()

    def count(**stored: int) -> int | None:
        tended = [TendedEntity(name, SubQueue.NONE, EntityFigures(stored=value)) for name, value in stored.items()]
        labels = choose_figures(tended, most=1, pattern=None)
        growth.count(tended, labels)
        return labels[SubQueue.NONE][OTHERS].stored

    assert count(a=100, b=50) == 0
    assert count(a=200, b=53, c=70) == 3
    assert count(a=200, c=71) == 4
    assert count(a=200, b=54, c=71) == 5
    assert count(a=200, b=2, c=71) == 7  # another entity of that name


def test_a_counter_does_not_fall() -> None:
    """Prometheus would take that for a restart, and the whole counter for growth."""
    figures = EntityFigures(stored=5, settled=3)
    figures.hold(EntityFigures(stored=4, settled=4))
    assert (figures.stored, figures.settled) == (5, 4)
