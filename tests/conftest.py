"""Settings that all tests of the project share."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# These modules come first, because others import them and pytest has its own way of importing them.
pytest_plugins = (
    "tests.failures",
    "tests.hangs",
    "tests.no_skips",
    "tests.no_secrets",
    "tests.servers",
    "tests.images",
    "tests.named_tests",
    "tests.scheduling",
    "tests.server_logs",
    "tests.ran_on",
    "tests.time_spent",
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored; the children of the tests would inherit that and could not be
    # interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Java's second compiler makes programs faster that run for minutes. Here it takes a third of the time of brokers that
# serve a test or two, and half of Spark's time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

if not os.environ.get("CI"):
    # How long an example takes depends on the machine. If CI is set, Hypothesis's own settings allow for that.
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
