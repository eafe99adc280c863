"""The settings of ``kafkabus serve``."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkabus.cli.setting_sources import LOG_SETTINGS, OFF, HttpAddress, Setting, http_address, read_values

NONE = "none"
MOST_ENTITIES = 1_000
"""How many entities have metrics of their own, by default."""


@dataclass(frozen=True, slots=True)
class MetricsEntities:
    """The entities that have metrics of their own; the others are summed.

    Attributes:
        most: How many have, the first ones by name.
        pattern: A regular expression that the whole name matches, in any case; None: every name.
    """

    most: int
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The settings of the upkeep service.

    Attributes:
        log_format: ``text`` or ``json``.
        log_level: The lowest level of log lines.
        http: The address of the HTTP endpoint; None: there is none.
        metrics_entities: The entities that have metrics of their own.
        connection: The origin of the connection string in the file of settings, and the string or the file that holds it.
    """

    log_format: str
    log_level: str
    http: HttpAddress | None
    metrics_entities: MetricsEntities
    connection: Mapping[str, tuple[str, str]]


def _metrics_entities(text: str) -> MetricsEntities:
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


SETTINGS: Mapping[str, Setting] = {
    "http": Setting("KAFKABUS_HTTP", OFF, http_address),
    "metrics-entities": Setting("KAFKABUS_METRICS_ENTITIES", str(MOST_ENTITIES), _metrics_entities),
    **LOG_SETTINGS,
}
"""The settings by their names in the file, which are those of the options."""


def read_settings(
    options: Mapping[str, str | None], environment: Mapping[str, str], file: Path | None = None
) -> ServeSettings:
    """Return the settings; see ``read_values``.

    Raises:
        CommandError: A value breaks its rule, the file cannot be read, or a member or a variable is misspelt.
    """
    values, connection = read_values(SETTINGS, options, environment, file)
    return ServeSettings(**values, connection=connection)
