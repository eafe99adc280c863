"""The base of the engine's states and of their inputs."""

from __future__ import annotations

from enum import Enum


class StateEnum(Enum):
    """An enum that is looked up for each frame: its members are hashed as objects, and not by their names, which is slow."""

    __hash__ = object.__hash__
