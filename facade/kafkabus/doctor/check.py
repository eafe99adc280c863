"""A check: its name, its remedy, and the rule by which it judges facts; without I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kafkabus.doctor.facts import FactIsMissingError, Facts, Handshake
from kafkabus.doctor.findings import Finding, State, failure, ok, warning

SHOWN = 3
"""How many names a finding lists."""
EXPIRES_SOON_DAYS = 14
"""How many days before the end of a certificate to warn."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        name: Its name, which scripts rely on.
        about: The state of things in which it ends well.
        remedy: The advice if it ends with a warning or a failure.
        look: Judges facts.
    """

    name: str
    about: str
    remedy: str
    look: Callable[[Facts], Finding]


def judge(check: Check, facts: Facts) -> Finding:
    """Return what a check finds in facts; each finding that is not ``OK`` has a remedy."""
    try:
        finding = check.look(facts)
    except FactIsMissingError as error:
        return Finding(
            State.NOT_CHECKED, str(error), "mend what keeps it from being checked, or leave it out with --skip"
        )
    if finding.state is State.OK or finding.remedy:
        return finding
    return replace(finding, remedy=check.remedy)


def list_names(names: Iterable[str]) -> str:
    """Return some names, and how many there are beside them."""
    every = list(names)
    more = len(every) - SHOWN
    return ", ".join(every[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def of_tls(shaken: Handshake, what: str) -> Finding:
    """Return what an attempt to agree on TLS shows."""
    if shaken.problem:
        return failure(shaken.problem)
    if not shaken.expected:
        return ok(f"{what} without TLS, as the connection string says")
    if shaken.days_left is not None and shaken.days_left < EXPIRES_SOON_DAYS:
        return warning(f"the certificate ends in {shaken.days_left:.0f} days", "renew the server's certificate")
    return ok("TLS, with a certificate that is trusted")
