"""The version of kafkabus that is installed."""

from __future__ import annotations


def installed_version() -> str:
    """Return the installed distribution's version, such as ``0.2.0``; ``unknown`` if the modules were never installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kafkabus")
    except PackageNotFoundError:
        return "unknown"
