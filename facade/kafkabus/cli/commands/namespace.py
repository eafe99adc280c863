"""``kafkabus namespace``: creating a namespace of a tier, upgrading it, and showing it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus.cli.connection import open_administration
from kafkabus.cli.durations import format_duration
from kafkabus.cli.options import JsonOption, duration_option
from kafkabus.cli.terminal import say, write, write_fields, write_json
from kafkabus_mapping.durations import iso_duration

if TYPE_CHECKING:
    from kafkabus.management import NamespaceProperties

app = typer.Typer(name="namespace", no_args_is_help=True, help="Create, change, upgrade and show the namespace.")

TierOption = Annotated[
    str, typer.Option("--tier", metavar="TIER", help="Basic, Standard or Premium; fixed from now on.")
]
PartitionsOption = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        min=1,
        metavar="N",
        help="Partitions of every queue of a Premium namespace; fixed from now on.",
        show_default=False,
    ),
]


@app.command()
def create(context: typer.Context, tier: TierOption = "Standard", partitions: PartitionsOption = None) -> None:
    """Create the namespace, unless an entity in it has already made it a Standard one."""
    with open_administration(context) as administration:
        created = administration.create_namespace(tier, partitions)
    write(f"namespace {created.name} is {_words(created)}")


@app.command()
def update(
    context: typer.Context,
    longest_lock: Annotated[
        timedelta,
        duration_option("The longest lock duration of its queues and subscriptions: 5m, as on the service, to 1d."),
    ],
) -> None:
    """Change a setting of the namespace. Programs that run see it within 5 seconds."""
    with open_administration(context) as administration:
        changed = administration.update_namespace(longest_lock=longest_lock)
    write(f"namespace {changed.name} has locks of up to {format_duration(changed.longest_lock)}")


@app.command()
def apply(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON file with the entities.", exists=True, dir_okay=False)
    ],
) -> None:
    """Create the queues, topics, subscriptions and rules in a file, and change those that differ; nothing is deleted.

    The format is that of Microsoft's emulator, with more settings.
    """
    from kafkabus.management.namespace_file import NamespaceFile

    wanted = NamespaceFile.read(file)
    with open_administration(context) as administration:
        changes = wanted.apply(administration)
    for change in changes:
        write(change)
    if not changes:
        say("Nothing to change.")


@app.command()
def export(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Write to this file; default: print.", dir_okay=False)
    ] = None,
) -> None:
    """Write the queues, topics, subscriptions and rules as the file that 'kafkabus namespace apply' reads, without keys."""
    from kafkabus.management.namespace_export import export_namespace

    with open_administration(context) as administration:
        content = export_namespace(administration)
    if file is None:
        write_json(content)
        return
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    say(f"wrote {file}")


@app.command()
def upgrade(context: typer.Context) -> None:
    """Bring the namespace into the latest format, for good, once all programs that use it are upgraded.

    It takes 70 seconds, during which programs go on. See docs/how-to/upgrade.md.
    """
    with open_administration(context) as administration:
        before = administration.get_namespace_properties().format
        after = administration.upgrade_namespace()
    if after.format == before:
        say(f"Nothing to do: namespace {after.name} is in format {after.format} already.")
    else:
        write(f"namespace {after.name} is in format {after.format} now, before in format {before}")


@app.command()
def show(context: typer.Context, json: JsonOption = False) -> None:
    """Show the namespace's tier, the format in which it is stored, and its longest lock."""
    with open_administration(context) as administration:
        namespace = administration.get_namespace_properties()
    fields: dict[str, object] = {
        "name": namespace.name,
        "messaging_sku": namespace.messaging_sku.value,
        "partitions": namespace.partitions,
        "created_at_utc": namespace.created_at_utc.isoformat(),
        "format": namespace.format,
        "longest_lock": iso_duration(namespace.longest_lock) if json else format_duration(namespace.longest_lock),
    }
    if json:
        write_json(fields)
    else:
        write_fields({name: str(value) for name, value in fields.items() if value is not None})


def _words(namespace: NamespaceProperties) -> str:
    sku = namespace.messaging_sku.value
    return sku if namespace.partitions is None else f"{sku}, with {namespace.partitions} partition(s) in each queue"
