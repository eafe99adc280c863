"""Retry policies as text: ``fixed:10s``, ``exponential:1s:5m``, ``list:10s,1m,10m``."""

from __future__ import annotations

import typer

from kafkabus.cli.durations import format_duration, parse_duration
from kafkabus_mapping.entities import RetryPolicy

NONE = "none"
"""The text that removes a policy."""
_FORMS = "fixed:10s, exponential:1s:5m or list:10s,1m,10m"
_SEPARATORS = {"fixed": None, "exponential": ":", "list": ","}
"""The kinds of policies, with what separates their delays."""


def parse_policy(text: str) -> RetryPolicy:
    """Read a retry policy.

    Args:
        text: The policy, in either case.

    Raises:
        ValueError: The text is no policy, or breaks a rule of policies; the error names value, rule and remedy.
    """
    kind, _, rest = text.strip().partition(":")
    kind = kind.strip().lower()
    if kind not in _SEPARATORS or not rest:
        raise ValueError(f"{text!r} is no retry policy: write {_FORMS}")
    separator = _SEPARATORS[kind]
    try:
        delays = [parse_duration(delay) for delay in ([rest] if separator is None else rest.split(separator))]
        if kind == "fixed":
            return RetryPolicy.fixed(*delays)
        if kind == "list":
            return RetryPolicy.by_delivery_count(delays)
        if len(delays) != 2:
            raise ValueError("write the first delay and the longest one, as in exponential:1s:5m")
        return RetryPolicy.exponential(*delays)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from error


def format_policy(policy: RetryPolicy) -> str:
    """Write a retry policy in a form that ``parse_policy`` accepts."""
    return f"{policy.kind}:{(_SEPARATORS[policy.kind] or '').join(map(format_duration, policy.delays))}"


def given_policy(text: str | None) -> RetryPolicy | None:
    """Return the policy that the option of a new entity names; None if it was not given.

    Raises:
        typer.BadParameter: The text is no policy.
    """
    if text is not None and text.strip().lower() == NONE:
        raise typer.BadParameter(
            f"--retry-policy {text!r}: a new entity has no policy unless one is given; leave it out"
        )
    try:
        return None if text is None else parse_policy(text)
    except ValueError as error:
        raise typer.BadParameter(f"--retry-policy {error}") from error


def changed_policy(text: str | None) -> RetryPolicy | str | None:
    """Return the policy that the option of an update names; an empty text if it removes the policy, None if it was not given.

    Raises:
        typer.BadParameter: The text is no policy.
    """
    if text is not None and text.strip().lower() == NONE:
        return ""
    try:
        return None if text is None else parse_policy(text)
    except ValueError as error:
        raise typer.BadParameter(f"--retry-policy {error}; 'none' removes the policy") from error
