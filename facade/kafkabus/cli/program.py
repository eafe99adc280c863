"""The program: its global options, its commands, and the handling of their errors."""

from __future__ import annotations

import logging
import re
import shutil
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperGroup
from typer.main import get_group

from kafkabus._runtime.repetitions import limit_repetitions
from kafkabus.cli.connection import GlobalOptions
from kafkabus.cli.exits import EXIT_CODES_HELP, CommandError, ExitCode, OutputClosed
from kafkabus.cli.stopping import unwind_on_signals
from kafkabus.cli.terminal import discard_output, flush, say, write
from kafkabus.cli.terms import describe_error
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

_COMMANDS = {
    "up": "runtime",
    "down": "runtime",
    "status": "runtime",
    "queue": "queue",
    "topic": "topic",
    "subscription": "subscription",
    "rule": "rule",
    "send": "send",
    "schedule": "schedule",
    "cancel": "schedule",
    "receive": "receive",
    "peek": "peek",
    "dead-letter": "dead_letter",
    "session": "session",
    "lock": "lock",
    "clients": "clients",
    "purge": "purge",
    "stats": "stats",
    "namespace": "namespace",
    "serve": "serve",
    "gateway": "gateway",
    "certificate": "certificate",
    "doctor": "doctor",
}
"""The commands in the order of the help text, and the module of each in ``commands``; one is imported when it is used."""
_WIDE = 100
"""From how many columns on help texts are tables: narrower ones would cut off the names of options."""
_LOOK: dict[str, Any] = {
    "rich_markup_mode": "rich" if shutil.get_terminal_size().columns >= _WIDE else None,
    "pretty_exceptions_enable": False,
}
"""Settings of all commands. The program prints an error in one line; --debug shows Python's own traceback."""

_GLOBAL_OPTIONS = {"--connection-string": " …", "-c": " …", "--connection-string-file": " …", "--debug": ""}


def _prepare(command: Any) -> None:
    """Have a command, and those below it, take ``--output``, and show in its help no type beside options without a value."""
    get_params, parse_args = command.get_params, command.parse_args
    prints_json = any(parameter.name == "json" for parameter in command.params)

    def without_types(ctx: Any) -> list[Any]:
        parameters: list[Any] = get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters

    def without_output(ctx: Any, args: list[str]) -> Any:
        return parse_args(ctx, _with_json(args) if prints_json else args)

    command.get_params, command.parse_args = without_types, without_output
    for below in getattr(command, "commands", {}).values():
        _prepare(below)


def _with_json(args: Sequence[str]) -> list[str]:
    """Return arguments with ``--json`` in place of ``--output json``, and without ``--output table``.

    Raises:
        typer.BadParameter: There is no such output.
    """
    rest, left = list[str](), deque(args)
    while left and left[0] != "--":
        name, equals, value = left.popleft().partition("=")
        if name not in {"--output", "-o"}:
            rest.append(name + equals + value)
            continue
        value = value if equals else left.popleft() if left else ""
        if value not in {"json", "table"}:
            raise typer.BadParameter(f"{name} {value!r}: choose json or table")
        rest += ["--json"] if value == "json" else []
    return [*rest, *left]


class _Commands(Mapping[str, Any]):
    """The commands by name; one is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        module = import_module(f"kafkabus.cli.commands.{_COMMANDS[name]}")
        around = typer.Typer(**_LOOK)
        around.add_typer(module.app)
        command = get_group(around).commands[name]
        _prepare(command)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Program(TyperGroup):
    """The group of commands, which gives a hint if a global option follows a command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _prepare(self)
        self.commands = cast("dict[str, Any]", _Commands())

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as click calls it
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Typer's usage errors are private classes; the class for unknown options has this name.
            option = getattr(error, "option_name", None)
            if isinstance(error, typer.BadParameter) or option not in _GLOBAL_OPTIONS:
                raise
            value = _GLOBAL_OPTIONS[option]
            command = ctx.invoked_subcommand
            raise typer.BadParameter(
                f"{option} goes before the command: kafkabus {option}{value} {command} …"
            ) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0].lower().startswith("endpoint="):
            # The error for an unknown command would show it.
            raise typer.BadParameter(
                f"a connection string is not a command: set {CONNECTION_STRING_VARIABLE}, or write kafkabus -c … COMMAND"
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Program,
    name="kafkabus",
    help="Service Bus's partitioned queues and topics on Kafka and Redis: run a namespace, send to it, receive from it.",
    epilog=EXIT_CODES_HELP if _LOOK["rich_markup_mode"] else re.sub(r"\[/?bold\]", "", EXIT_CODES_HELP),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    **_LOOK,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from kafkabus import __version__

        write(f"kafkabus {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    context: typer.Context,
    connection_string: Annotated[
        str | None,
        typer.Option(
            "--connection-string",
            "-c",
            metavar="TEXT",
            help="The namespace to use: Endpoint=sb://…, as 'kafkabus up' prints it.",
        ),
    ] = None,
    connection_string_file: Annotated[
        str | None,
        typer.Option("--connection-string-file", metavar="FILE", help="A file that holds the connection string."),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error, and more of the log.")
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    options = context.ensure_object(GlobalOptions)
    options.connection_string = connection_string
    options.connection_string_file = connection_string_file
    options.debug = debug
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.DEBUG if debug else logging.WARNING)
    if not debug:
        limit_repetitions()


def main() -> NoReturn:
    """Run the program with the process's arguments, and end the process."""
    options = GlobalOptions()
    unwind_on_signals()
    try:
        try:
            app(prog_name="kafkabus", obj=options)
        finally:
            flush()
    except OutputClosed:
        discard_output()
        sys.exit(ExitCode.OUTPUT_CLOSED)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        code = _exit_code(error)
        if options.debug or code is None:
            raise
        say(f"error: {_describe(error)}")
        sys.exit(code)
    sys.exit(ExitCode.DONE)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return describe_error(error)


def _exit_code(error: Exception) -> ExitCode | None:
    """Return the exit status for an error that the user can remedy; None for an error of the program itself."""
    from kafkabus.exceptions import MessagingEntityNotFoundError, ServiceBusError

    if isinstance(error, CommandError):
        return error.code
    if isinstance(error, MessagingEntityNotFoundError):
        return ExitCode.NOT_FOUND
    if isinstance(error, (ServiceBusError, ValueError, OSError)):
        return ExitCode.FAILED
    return None
