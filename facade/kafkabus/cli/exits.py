"""The program's exit statuses."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit statuses; scripts rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING = 3
    NOT_FOUND = 4
    UNHEALTHY = 5
    WARNED = 6
    HUNG_UP = 129
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


class CommandError(Exception):
    """A command failed.

    Args:
        message: The error and the remedy.
        code: The exit status for it.

    Attributes:
        code: The exit status.
    """

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


class OutputClosed(Exception):
    """The reader of the output has closed it, as ``head`` does when it has enough."""


EXIT_CODES_HELP = (
    """\
[bold]Exit status[/bold]: 0 done; 1 failed, stderr says why; 2 wrong usage; 3 nothing there: no message came, nothing
runs; 4 no such queue, topic, subscription or rule; 5 doctor found a failure; 6 doctor found a warning, with --strict;
130 interrupted by Ctrl-C; 129 the terminal was closed; 141 the reader closed the output; 143 terminated.

[bold]Connection[/bold]: --connection-string before the command, or a file that holds it, --connection-string-file; else
the variable KAFKABUS_CONNECTION_STRING or KAFKABUS_CONNECTION_STRING_FILE; else the
namespace that 'kafkabus up' runs on this machine.""".replace("\n\n", "\0")
    .replace("\n", " ")
    .replace("\0", "\n\n")
)
