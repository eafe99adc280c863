"""The settings of ``kafkabus serve``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from kafkabus.cli.setting_sources import OFF, HttpAddress, LogFormat, LogLevel, Setting, read_address

NONE = "none"
MOST_ENTITIES = 1_000
"""How many entities have separate metrics, by default."""


@dataclass(frozen=True, slots=True)
class MetricsEntities:
    """The entities that have separate metrics; the others are summed.

    Attributes:
        most: How many have, the first ones by name.
        pattern: A regular expression that the whole name matches, in any case; None: every name.
    """

    most: int
    pattern: re.Pattern[str] | None = None


def _read_metrics_entities(text: str) -> MetricsEntities:
    if text.lower() == NONE:
        return MetricsEntities(0)
    if text.isdigit():
        return MetricsEntities(int(text))
    try:
        return MetricsEntities(sys.maxsize, re.compile(text, re.IGNORECASE))
    except re.error as error:
        raise ValueError(
            f"write a number of entities, {NONE}, or a regular expression of their names, which this is not: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The settings of the upkeep service.

    Attributes:
        http: The address of the HTTP endpoint; None: there is none.
        metrics_entities: The entities that have separate metrics.
        log_format: ``text`` or ``json``.
        log_level: The lowest level of log lines.
        connection: The origin of the connection string in the file of settings, and the string or the file that holds it.
    """

    http: Annotated[
        HttpAddress | None,
        Setting(
            "KAFKABUS_HTTP",
            "HOST:PORT",
            "Answer /livez, /readyz and /metrics at this address, for example 0.0.0.0:9464; '{default}', the default: nowhere.",
            read_address,
            OFF,
        ),
    ]
    metrics_entities: Annotated[
        MetricsEntities,
        Setting(
            "KAFKABUS_METRICS_ENTITIES",
            "WHICH",
            "Entities with separate metrics: a number, 'none', or a regular expression of their names. Default {default}.",
            _read_metrics_entities,
            str(MOST_ENTITIES),
        ),
    ]
    log_format: LogFormat
    log_level: LogLevel
    connection: Mapping[str, tuple[str, str]] = field(repr=False)
