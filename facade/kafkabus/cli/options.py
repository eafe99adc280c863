"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False)]

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]

JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print a JSON object per message, with its properties.")]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, also in a terminal.")]
