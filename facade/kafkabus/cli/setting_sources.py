"""Settings of services: from options, the environment and a file, in this order."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kafkabus.cli.connection import CONNECTION_STRING_FILE_VARIABLE, given_connection
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
CONNECTION_MEMBERS = ("connection-string", "connection-string-file")
"""Members of the file that name the namespace."""
_ADDRESS = re.compile(r"(?:\[(?P<literal>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\s:\[\]]*)):(?P<port>\d{1,5})")
_SIMILAR = 0.9
"""From which similarity on, up to 1, a variable counts as a misspelt one: other programs' variables are left alone."""


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
class Setting:
    """A setting that an option, a variable and a member of the file can give.

    Attributes:
        variable: The environment's variable.
        default: The text that counts if none of them gives one; None: then the setting is None.
        read: Returns the value; raises ValueError with the rule and the remedy.
    """

    variable: str
    default: str | None
    read: Callable[[str], object]


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a function that reads one of several words."""

    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"choose from {', '.join(choices)}")
        return text.lower()

    return read


def http_address(text: str) -> HttpAddress | None:
    """Read an address to listen on; None if it is off.

    Raises:
        ValueError: It is no address.
    """
    if text.lower() == OFF:
        return None
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise ValueError(f"write HOST:PORT, for example 0.0.0.0:9464 or [::]:9464, or {OFF}")
    return HttpAddress(found["literal"] or found["host"], int(found["port"]))


LOG_SETTINGS: Mapping[str, Setting] = {
    "log-format": Setting("KAFKABUS_LOG_FORMAT", "text", one_of(*FORMATS)),
    "log-level": Setting("KAFKABUS_LOG_LEVEL", "info", one_of(*LEVELS)),
}
"""The settings of the log of each service."""


def read_values(
    settings: Mapping[str, Setting],
    options: Mapping[str, str | None],
    environment: Mapping[str, str],
    file: Path | None = None,
    *,
    others: Iterable[str] = (),
) -> tuple[dict[str, Any], Mapping[str, tuple[str, str]]]:
    """Return the values of settings; an option overrides a variable, and a variable the file.

    Args:
        settings: The settings by their names in the file, which are those of the options.
        options: Values of options by the settings' names; None for one that was not given.
        environment: The environment's variables; an empty one counts as not set.
        file: The file of settings; by default the one that the environment names, if any.
        others: Variables of ours that mean nothing here.

    Returns:
        The values by the settings' names with ``_`` for ``-``; and the file's members that name the namespace, each with its
        origin and its text.

    Raises:
        CommandError: A value breaks its rule, the file cannot be read, or a member or a variable is misspelt.
    """
    variables = (
        *(setting.variable for setting in settings.values()),
        *others,
        CONFIG_VARIABLE,
        CONNECTION_STRING_VARIABLE,
        CONNECTION_STRING_FILE_VARIABLE,
    )
    _check_variables(environment, variables)
    path = file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    members = {} if path is None else _read_file(path, (*settings, *CONNECTION_MEMBERS))
    values: dict[str, Any] = {}
    for name, setting in settings.items():
        candidates = (
            (f"--{name}", options.get(name)),
            (setting.variable, environment.get(setting.variable) or None),
            (f"{path}: {name}", members.get(name)),
            (name, setting.default),
        )
        origin, text = next(((origin, text) for origin, text in candidates if text is not None), (name, None))
        try:
            values[name.replace("-", "_")] = None if text is None else setting.read(text)
        except ValueError as error:
            raise CommandError(f"{origin}={text!r}: {error}", ExitCode.USAGE) from error
    return values, {name: (f"{path}: {name}", members[name]) for name in CONNECTION_MEMBERS if name in members}


def configured_connection(members: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Return the origin of a file's connection string, and the string; None if the file has none.

    Args:
        members: The file's members that name the namespace, as ``read_values`` returns them.
    """
    text, file = (members.get(name, (name, None)) for name in CONNECTION_MEMBERS)
    return given_connection(text, file)


def _check_variables(environment: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse a variable that is probably a misspelt one of ours: it would have no effect."""
    variables = tuple(known)
    for name in environment:
        if name.startswith("KAFKABUS_") and name not in variables:
            near = get_close_matches(name, variables, n=1, cutoff=_SIMILAR)
            if near:
                raise CommandError(
                    f"{name}: there is no such variable; did you mean {near[0]}? Rename or unset it", ExitCode.USAGE
                )


def _read_file(path: Path, known: Iterable[str]) -> dict[str, str]:
    """Return the members of a file of settings as texts; an error shows no value, since one may be a connection string."""
    try:
        members = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(
            f"{path}: the file of settings cannot be read: {error.strerror}; check the path and its rights"
        ) from error
    except ValueError as error:
        raise CommandError(f'{path}: no TOML: {error}; write lines such as log-format = "json"') from error
    names = tuple(known)
    for name, value in members.items():
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
            raise CommandError(f"{path}: {name}: there is no such setting; {hint}", ExitCode.USAGE)
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise CommandError(f"{path}: {name}: a setting is a text in quotes or a number", ExitCode.USAGE)
    return {name: str(value) for name, value in members.items()}
