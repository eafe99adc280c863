"""``kafkabus clients``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kafkabus.cli.connection import open_administration
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.options import JsonOption
from kafkabus.cli.terminal import escape_controls, say, write_json, write_table

if TYPE_CHECKING:
    from kafkabus.management import ClientProperties

app = typer.Typer()
SHOWN = 3
"""How many entities of a client the table names."""


@app.command()
def clients(context: typer.Context, json: JsonOption = False) -> None:
    """List the programs that use the namespace: clients of the SDK, gateways, and upkeep.

    Those count that were heard of within two minutes. If there are none, the exit status is 3.
    """
    with open_administration(context) as administration:
        found = list(administration.list_clients())
    if json:
        write_json([_fields(client) for client in found])
    elif found:
        write_table(
            {
                "CLIENT": False,
                "KIND": False,
                "VERSION": False,
                "HOST": False,
                "PID": True,
                "SINCE": False,
                "USES": False,
            },
            [
                [
                    client.client_id[:8],
                    client.kind or "",
                    client.version,
                    escape_controls(client.host or ""),
                    "" if client.process_id is None else str(client.process_id),
                    "" if client.opened_at_utc is None else f"{client.opened_at_utc:%Y-%m-%d %H:%M:%S}",
                    _uses(client),
                ]
                for client in found
            ],
        )
    if not found:
        say("no client was heard of")
        raise typer.Exit(ExitCode.NOTHING)


def _uses(client: ClientProperties) -> str:
    """Return the first entities of a client, with < for those that it receives from and > for those that it sends to."""
    texts = [
        f"{'<' if entity.receives else ''}{'>' if entity.sends else ''}{entity.name}"
        for entity in client.entities[:SHOWN]
    ]
    more = len(client.entities) - len(texts) + client.more_entities
    return ", ".join([*texts, f"{more} more"] if more else texts)


def _fields(client: ClientProperties) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "client_id": client.client_id,
        "kind": client.kind,
        "version": client.version,
        "host": client.host,
        "process_id": client.process_id,
        "opened_at_utc": None if client.opened_at_utc is None else client.opened_at_utc.isoformat(),
        "entities": [
            {
                "name": entity.name,
                "sends": entity.sends,
                "receives": entity.receives,
                "client_identifiers": list(entity.client_identifiers),
            }
            for entity in client.entities
        ],
        "more_entities": client.more_entities,
    }
    return {name: value for name, value in fields.items() if value is not None}
