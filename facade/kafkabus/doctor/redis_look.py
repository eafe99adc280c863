"""Gathering the facts of Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from kafkabus._core.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError
from kafkabus._redis.probe import RedisPlace, RedisProbe
from kafkabus.doctor.facts import Handshake, Missing, Reached, RedisFacts
from kafkabus.doctor.network import reach, reach_path, shake_hands, speaks_tls
from kafkabus.doctor.steps import Line, LookLimits

SETTINGS = ("save", "min-replicas-to-write")
"""The settings that INFO does not report."""


def look_at_redis(
    places: Sequence[RedisPlace], probe: RedisProbe, limits: LookLimits, clock: Callable[[], float]
) -> RedisFacts:
    """Return the facts of Redis.

    Args:
        places: The addresses in its URL, of which one is enough.
        probe: Asks Redis.
        limits: The limits.
        clock: This machine's clock, seconds since 1970.
    """
    facts, line = RedisFacts(), Line(limits)
    unreached = _connect(facts, line, places, probe, limits)
    if not unreached:
        facts.infos = line.ask("INFO", probe.infos)
        facts.settings = line.ask("CONFIG GET", lambda: {name: probe.get_setting(name) for name in SETTINGS})
        facts.ahead_ms = line.ask("TIME", lambda: _ahead_ms(probe, clock))
        facts.rights = {
            "keys": _refusal(line.ask("to use keys", probe.try_keys)),
            "scripts": _refusal(line.ask("to run a script", probe.try_scripts)),
            "channels": _refusal(line.ask("to use a channel", probe.try_channels)),
        }
    facts.miss_rest(unreached or "Redis was not asked")
    return facts


def _connect(facts: RedisFacts, line: Line, places: Sequence[RedisPlace], probe: RedisProbe, limits: LookLimits) -> str:
    """Have Redis accept the client; return why it does not, empty if it does."""
    seconds = limits.answer_s
    attempts = [(place, line.ask("to connect", partial(_reach, place, seconds))) for place in places]
    # One Sentinel, or one node of a cluster, knows where the others are.
    place, facts.address = next(
        ((place, address) for place, address in attempts if not isinstance(address, Missing) and not address.problem),
        attempts[0],
    )
    if isinstance(facts.address, Missing) or facts.address.problem:
        return "Redis is not reached"
    host = place.host
    if place.tls and host is not None:
        facts.tls = line.ask("to agree on TLS", lambda: _shake_hands(place, host, seconds))
        if isinstance(facts.tls, Missing) or facts.tls.problem:
            return "Redis and this client do not agree on TLS"
    else:
        facts.tls = Handshake(False)
    accepted = line.ask("to be accepted by Redis", probe.reach)
    if not isinstance(accepted, Missing):
        facts.refusal = ""
        return ""
    refused = isinstance(accepted.error, ServiceBusAuthenticationError)
    if not refused and not place.tls and host is not None and speaks_tls(host, place.port, seconds):
        facts.tls = Handshake(False, "the server speaks TLS, and the URL begins with redis://")
        return "Redis and this client do not agree on TLS"
    if not refused:
        # A server that is frozen takes connections all the same.
        facts.address = replace(facts.address, problem=accepted.reason)
        return "Redis does not answer"
    facts.refusal = accepted.reason
    return "Redis does not accept this client"


def _reach(place: RedisPlace, seconds: float) -> Reached:
    if place.host is None:
        return reach_path(place.path or "", seconds)
    return reach(place.host, place.port, seconds)


def _shake_hands(place: RedisPlace, host: str, seconds: float) -> Handshake:
    if place.checks:
        return shake_hands(host, place.port, seconds, place.authority, place.identity)
    answers = speaks_tls(host, place.port, seconds)
    return Handshake(True, "" if answers else f"{host}:{place.port} does not answer in TLS")


def _ahead_ms(probe: RedisProbe, clock: Callable[[], float]) -> tuple[float, float]:
    # The first call of a connection takes longer.
    probe.now_ms()
    before = clock() * 1000
    now = probe.now_ms()
    after = clock() * 1000
    return now - (before + after) / 2, (after - before) / 2


def _refusal(outcome: object) -> str | Missing:
    """Return Redis's refusal of a trial; empty if Redis allowed it, missing if a fault that is no missing right ended it."""
    if not isinstance(outcome, Missing):
        return ""
    return outcome.reason if isinstance(outcome.error, ServiceBusAuthorizationError) else outcome
