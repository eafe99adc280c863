"""The command line: ``kafkabus``."""

from kafkabus.cli.program import main

__all__ = ["main"]
