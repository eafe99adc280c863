"""The logs of services: to stderr, as text or as JSON."""

from __future__ import annotations

import logging

from kafkabus._runtime.log_format import JsonFormatter, TextFormatter
from kafkabus._runtime.repetitions import limit_repetitions

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure_logs(log_format: str, log_level: str, *, debug: bool) -> None:
    """Write the log to stderr; of other libraries' lines at most warnings, unless all are wanted.

    Args:
        log_format: ``text`` or ``json``.
        log_level: The lowest level, ``debug`` to ``error``.
        debug: Whether all lines are wanted.
    """
    level = logging.DEBUG if debug else _LEVELS[log_level]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=level if debug else max(level, logging.WARNING), force=True)
    logging.getLogger("kafkabus").setLevel(level)
    if level > logging.DEBUG:
        limit_repetitions()
