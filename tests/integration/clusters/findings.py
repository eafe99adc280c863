"""The doctor's findings about Redis."""

from __future__ import annotations

from kafkabus._core.settings import parse_settings
from kafkabus.doctor.check import judge
from kafkabus.doctor.findings import Finding
from kafkabus.doctor.gathering import gather
from kafkabus.doctor.redis_checks import REDIS_CHECKS


def redis_findings(connection_string: str) -> dict[str, Finding]:
    """Return what the doctor finds at the Redis of a namespace, by the names of the checks."""
    facts = gather(parse_settings(connection_string))
    return {check.name: judge(check, facts) for check in REDIS_CHECKS}
