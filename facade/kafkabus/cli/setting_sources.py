"""Settings of services: from options, the environment and a file, in this order."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

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

S = TypeVar("S")


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
    """A setting that an option, a variable and a member of the file can give; it annotates the field of the settings' class.

    The option and the member are named as the field, with ``-`` for ``_``.

    Attributes:
        variable: The environment's variable.
        metavar: The name of the option's value in the help text.
        help: The help text of the option, in which ``{default}`` is replaced with the default.
        read: Returns the value; raises ValueError with the rule and the remedy.
        default: The text that counts if none of them gives one; None: then the setting is None.
    """

    variable: str
    metavar: str
    help: str
    read: Callable[[str], object]
    default: str | None = None


def read_choice(*choices: str) -> Callable[[str], str]:
    """Return a function that reads one of these words."""

    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"choose from {', '.join(choices)}")
        return text.lower()

    return read


def read_address(text: str) -> HttpAddress | None:
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


LogFormat = Annotated[
    str,
    Setting(
        "KAFKABUS_LOG_FORMAT",
        "FORMAT",
        "Write the log as {default} (the default) or json.",
        read_choice(*FORMATS),
        "text",
    ),
]
LogLevel = Annotated[
    str,
    Setting(
        "KAFKABUS_LOG_LEVEL", "LEVEL", "debug, {default} (the default), warning or error.", read_choice(*LEVELS), "info"
    ),
]


def settings_of(kind: Callable[..., object]) -> dict[str, Setting]:
    """Return the settings of a class by the names of its fields, in their order."""
    return {
        name: setting
        for name, hint in get_type_hints(kind, include_extras=True).items()
        for setting in getattr(hint, "__metadata__", ())
        if isinstance(setting, Setting)
    }


def take_settings(
    kind: Callable[..., S],
) -> Callable[[Callable[[typer.Context, S], None]], Callable[..., None]]:
    """Return a decorator that gives a command an option for each setting of a class, and ``--config`` for the file.

    The command is called with its context and its settings.

    Args:
        kind: The class of the settings, whose fields are annotated with a ``Setting``; see ``read_settings``.
    """
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in {
            **{name: _option_of(name, setting) for name, setting in settings_of(kind).items()},
            "config": Annotated[
                Path | None,
                typer.Option(
                    "--config",
                    metavar="FILE",
                    help="A TOML file of settings, named as the options.",
                    show_default=False,
                ),
            ],
        }.items()
    ]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)

    def decorate(command: Callable[[typer.Context, S], None]) -> Callable[..., None]:
        def run(context: typer.Context, *, config: Path | None, **given: str | None) -> None:
            command(context, read_settings(kind, given, os.environ, config))

        parameters = [context, *options]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        # Typer makes the options of what these say.
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        vars(run)["__signature__"] = inspect.Signature(parameters)
        return run

    return decorate


def _option_of(name: str, setting: Setting) -> Any:
    text = setting.help.format(default=setting.default)
    return Annotated[
        str | None, typer.Option(f"--{_external_name(name)}", metavar=setting.metavar, help=text, show_default=False)
    ]


def read_settings(
    kind: Callable[..., S],
    options: Mapping[str, str | None],
    environment: Mapping[str, str],
    file: Path | None = None,
) -> S:
    """Return the settings of a service; an option overrides a variable, and a variable the file.

    Args:
        kind: The class of the settings. Its field ``connection`` gets the file's members that name the namespace, each with
            its origin and its text.
        options: Values of options by the fields' names; None for one that was not given.
        environment: The environment's variables; an empty one counts as not set.
        file: The file of settings; by default the one that the environment names, if any.

    Raises:
        CommandError: A value breaks its rule, the file cannot be read, a member or a variable is misspelt, or settings do not
            fit together.
    """
    settings = settings_of(kind)
    _check_variables(environment, [setting.variable for setting in settings.values()])
    path = file or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    members = {} if path is None else _read_file(path, (*map(_external_name, settings), *CONNECTION_MEMBERS))
    values: dict[str, object] = {}
    for name, setting in settings.items():
        external = _external_name(name)
        candidates = (
            (f"--{external}", options.get(name)),
            (setting.variable, environment.get(setting.variable) or None),
            (f"{path}: {external}", members.get(external)),
            (external, setting.default),
        )
        origin, text = next(((origin, text) for origin, text in candidates if text is not None), (external, None))
        try:
            values[name] = None if text is None else setting.read(text)
        except ValueError as error:
            raise CommandError(f"{origin}={text!r}: {error}", ExitCode.USAGE) from error
    connection = {name: (f"{path}: {name}", members[name]) for name in CONNECTION_MEMBERS if name in members}
    return kind(**values, connection=connection)


def _external_name(name: str) -> str:
    """Return a field's name as options and files write it."""
    return name.replace("_", "-")


def configured_connection(members: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Return the origin of a file's connection string, and the string; None if the file has none.

    Args:
        members: The file's members that name the namespace, as ``read_settings`` gives them to the settings.
    """
    text, file = (members.get(name, (name, None)) for name in CONNECTION_MEMBERS)
    return given_connection(text, file)


def _check_variables(environment: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse a variable that is probably a misspelt one of kafkabus: it would have no effect."""
    variables = (*known, CONFIG_VARIABLE, CONNECTION_STRING_VARIABLE, CONNECTION_STRING_FILE_VARIABLE)
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
