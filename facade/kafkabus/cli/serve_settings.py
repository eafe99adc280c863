"""The settings of ``kafkabus serve``: from options, the environment and a file, in this order."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kafkabus.cli.connection import CONNECTION_STRING_FILE_VARIABLE
from kafkabus.cli.exits import CommandError, ExitCode
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG_VARIABLE = "KAFKABUS_CONFIG"
"""The variable with the path of the file of settings."""
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
OFF = "off"
NONE = "none"
MOST_ENTITIES = 1_000
"""How many entities have metrics of their own, by default."""
_ADDRESS = re.compile(r"(?:\[(?P<literal>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\s:\[\]]*)):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """An address to listen on.

    Attributes:
        host: A name or an address; empty for all addresses of the machine.
        port: The port; 0 for a free one.
    """

    host: str
    port: int


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


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting that an option, a variable and a member of the file can give.

    Attributes:
        variable: The environment's variable.
        default: The text that counts if none of them gives one.
        read: Returns the value; raises ValueError with the rule and the remedy.
    """

    variable: str
    default: str
    read: Callable[[str], object]


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"choose from {', '.join(choices)}")
        return text.lower()

    return read


def _http_address(text: str) -> HttpAddress | None:
    if text.lower() == OFF:
        return None
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise ValueError(f"write HOST:PORT, for example 0.0.0.0:9464 or [::]:9464, or {OFF}")
    return HttpAddress(found["literal"] or found["host"], int(found["port"]))


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


SETTINGS: Mapping[str, _Setting] = {
    "http": _Setting("KAFKABUS_HTTP", OFF, _http_address),
    "log-format": _Setting("KAFKABUS_LOG_FORMAT", "text", _one_of(*FORMATS)),
    "log-level": _Setting("KAFKABUS_LOG_LEVEL", "info", _one_of(*LEVELS)),
    "metrics-entities": _Setting("KAFKABUS_METRICS_ENTITIES", str(MOST_ENTITIES), _metrics_entities),
}
"""The settings by their names in the file, which are those of the options."""
CONNECTION_MEMBERS = ("connection-string", "connection-string-file")
"""Members of the file that name the namespace."""
_VARIABLES = (
    *(setting.variable for setting in SETTINGS.values()),
    CONFIG_VARIABLE,
    CONNECTION_STRING_VARIABLE,
    CONNECTION_STRING_FILE_VARIABLE,
)
_SIMILAR = 0.9
"""From which similarity on, up to 1, a variable counts as a misspelt one: other programs' variables are left alone."""


def read_settings(
    options: Mapping[str, str | None], environment: Mapping[str, str], file: Path | None = None
) -> ServeSettings:
    """Return the settings; an option overrides a variable, and a variable the file.

    Args:
        options: Values of options by the settings' names; None for one that was not given.
        environment: The environment's variables; an empty one counts as not set.
        file: The file of settings; by default the one that the environment names, if any.

    Raises:
        CommandError: A value breaks its rule, the file cannot be read, or a member or a variable is misspelt.
    """
    _check_variables(environment)
    path = file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    members = {} if path is None else _read_file(path)
    values: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        candidates = (
            (f"--{name}", options.get(name)),
            (setting.variable, environment.get(setting.variable) or None),
            (f"{path}: {name}", members.get(name)),
            (name, setting.default),
        )
        origin, text = next((origin, text) for origin, text in candidates if text is not None)
        try:
            values[name.replace("-", "_")] = setting.read(text)
        except ValueError as error:
            raise CommandError(f"{origin}={text!r}: {error}", ExitCode.USAGE) from error
    connection = {name: (f"{path}: {name}", members[name]) for name in CONNECTION_MEMBERS if name in members}
    return ServeSettings(**values, connection=connection)


def _check_variables(environment: Mapping[str, str]) -> None:
    """Refuse a variable that is probably a misspelt one of ours: it would have no effect."""
    for name in environment:
        if name.startswith("KAFKABUS_") and name not in _VARIABLES:
            near = get_close_matches(name, _VARIABLES, n=1, cutoff=_SIMILAR)
            if near:
                raise CommandError(
                    f"{name}: there is no such variable; did you mean {near[0]}? Rename or unset it", ExitCode.USAGE
                )


def _read_file(path: Path) -> dict[str, str]:
    """Return the members of a file of settings as texts; an error shows no value, since one may be a connection string."""
    try:
        members = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(
            f"{path}: the file of settings cannot be read: {error.strerror}; check the path and its rights"
        ) from error
    except ValueError as error:
        raise CommandError(f'{path}: no TOML: {error}; write lines such as log-format = "json"') from error
    known = (*SETTINGS, *CONNECTION_MEMBERS)
    for name, value in members.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise CommandError(f"{path}: {name}: there is no such setting; {hint}", ExitCode.USAGE)
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise CommandError(f"{path}: {name}: a setting is a text in quotes or a number", ExitCode.USAGE)
    return {name: str(value) for name, value in members.items()}
