"""``kafkabus serve``."""

from __future__ import annotations

import asyncio

import typer

from kafkabus.cli.connection import open_settings
from kafkabus.cli.terminal import say

app = typer.Typer()


@app.command()
def serve(context: typer.Context) -> None:
    """Run the upkeep of a namespace until Ctrl-C: it handles messages that expired, were delivered too often or half moved.

    Each namespace needs one upkeep service, and may have several; 'kafkabus up' runs its own.
    """
    from kafkabus.upkeep import serve as tend

    settings = open_settings(context)
    say(f"Looking after namespace {settings.namespace} at {settings.bootstrap_servers}. Stop with Ctrl-C.")
    asyncio.run(tend(settings))
    say("Stopped.")
