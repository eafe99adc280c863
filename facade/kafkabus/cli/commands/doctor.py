"""``kafkabus doctor``."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus.cli.connection import GlobalOptions, open_settings
from kafkabus.cli.exits import ExitCode
from kafkabus.cli.options import JsonOption
from kafkabus.cli.terminal import activity, say, write_json, write_table

if TYPE_CHECKING:
    from kafkabus._core.settings import Settings
    from kafkabus.doctor import Check, Finding

app = typer.Typer()

DEFAULT_TIMEOUT = 10.0
"""The longest time for one step of the look, in seconds."""


@app.command()
def doctor(
    context: typer.Context,
    json: JsonOption = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 6 if there are warnings, or checks that were not made.")
    ] = False,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="CHECK", help="Leave out this check; may be repeated.", show_default=False),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Longest time for one step.")
    ] = DEFAULT_TIMEOUT,
) -> None:
    """Check what the namespace needs of Kafka and Redis, its upkeep and its entities; say what is wrong, and what to do.

    Entities stay as they are. To try rights, a topic of the namespace's own is created and deleted, and a few keys. The exit
    status is 5 if a check fails.
    """
    from kafkabus.doctor import CHECKS, LookLimits, gather, judge

    checks = _select_checks(CHECKS, skip or [])
    settings = open_settings(context)
    options = context.find_object(GlobalOptions)
    if options is None or not options.debug:
        # The findings say what the clients would log.
        logging.getLogger("kafkabus").setLevel(logging.CRITICAL)
    with activity() as show:
        show(f"Looking at namespace {settings.namespace} at {settings.bootstrap_servers} and {settings.redis_address}")
        facts = gather(settings, LookLimits(step_s=timeout))
    findings = [(check, judge(check, facts)) for check in checks]
    if json:
        _write_json(settings, findings)
    else:
        _write_table(findings)
    code = _exit_code(findings, strict)
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


def _select_checks(checks: tuple[Check, ...], skipped: list[str]) -> list[Check]:
    names = {check.name for check in checks}
    for name in skipped:
        if name not in names:
            raise typer.BadParameter(
                f"--skip {name!r}: there is no such check; the checks are {', '.join(sorted(names))}"
            )
    return [check for check in checks if check.name not in skipped]


def _write_table(findings: list[tuple[Check, Finding]]) -> None:
    write_table(
        {"CHECK": False, "STATE": False, "FOUND": False, "REMEDY": False},
        _rows(findings),
    )
    counts = Counter(found.state.value for _, found in findings)
    say(", ".join(f"{count} {state}" for state, count in counts.items()))


def _rows(findings: list[tuple[Check, Finding]]) -> list[list[str]]:
    """Return a row for each finding, and one for all checks that are not made for the same reason."""
    from kafkabus.doctor import State

    rows: dict[object, list[str]] = {}
    alike = Counter((found.state, found.found) for _, found in findings)
    for check, found in findings:
        repeated = alike[found.state, found.found] - 1
        if found.state is State.NOT_CHECKED and repeated:
            key = found.found
            rows.setdefault(key, [f"{check.name} and {repeated} more", found.state.value, found.found, found.remedy])
        else:
            rows[check.name] = [check.name, found.state.value, found.found, found.remedy]
    return list(rows.values())


def _write_json(settings: Settings, findings: list[tuple[Check, Finding]]) -> None:
    write_json(
        {
            "namespace": settings.namespace,
            "kafka": settings.bootstrap_servers,
            "redis": settings.redis_address,
            "checks": [
                {"check": check.name, "state": found.state.value, "found": found.found, "remedy": found.remedy}
                for check, found in findings
            ],
        }
    )


def _exit_code(findings: list[tuple[Check, Finding]], strict: bool) -> ExitCode:
    from kafkabus.doctor import State

    states = {found.state for _, found in findings}
    if State.FAILURE in states:
        return ExitCode.UNHEALTHY
    return ExitCode.WARNED if strict and states - {State.OK} else ExitCode.DONE
