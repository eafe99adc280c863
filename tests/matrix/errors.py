"""The error of a version that cannot be tested."""

from __future__ import annotations


class NotToBeHadError(Exception):
    """A version of Kafka or of Redis that this machine cannot get; the text says why."""
