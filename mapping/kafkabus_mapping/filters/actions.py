"""Evaluation of actions, which change a copy of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafkabus_mapping.codec import Envelope
from kafkabus_mapping.filters.evaluate import (
    FilterEvaluationError,
    MessageSubject,
    compile_expression,
    kind_of,
    lower_name,
)
from kafkabus_mapping.filters.nodes import TEXT_PROPERTIES, Property, Remove, Statement, Value

Changed = Callable[[MessageSubject], Envelope]
"""A function that returns the properties of a message's copy."""


def compile_action(statements: Sequence[Statement], parameters: Mapping[str, Value] | None = None) -> Changed:
    """Return a function that carries out an action; each statement sees the changes of those before it.

    Args:
        statements: The statements of the action.
        parameters: Values of its parameters, by name with the ``@``.

    Raises:
        ValueError: A parameter has no value.
    """
    steps = [
        (statement.target, None if isinstance(statement, Remove) else compile_expression(statement.value, parameters))
        for statement in statements
    ]

    def change(subject: MessageSubject) -> Envelope:
        for target, value in steps:
            envelope = _remove(subject.envelope, target) if value is None else _set(subject, target, value(subject))
            subject = replace(subject, envelope=envelope)
        return subject.envelope

    return change


def _set(subject: MessageSubject, target: Property, value: Value) -> Envelope:
    """Set a property; a missing value is set as NULL, and an integer becomes a float if the old value was a float."""
    if target.system:
        if value is not None and not isinstance(value, str):
            raise FilterEvaluationError(f"sys.{target.name} takes a text, not {kind_of(value)}")
        return _with_text(subject.envelope, target, value)
    if type(value) is int and type(subject.user.get(target.name)) is float:
        value = float(value)
    properties = dict(subject.envelope.application_properties or {})
    names = [key for key in properties if lower_name(key) == target.name]
    for name in names[:-1]:
        del properties[name]
    properties[names[-1] if names else target.written or target.name] = value
    return replace(subject.envelope, application_properties=properties)


def _with_text(envelope: Envelope, target: Property, text: str | None) -> Envelope:
    changes: dict[str, Any] = {TEXT_PROPERTIES[target.name]: text}
    return replace(envelope, **changes)


def _remove(envelope: Envelope, target: Property) -> Envelope:
    if target.system:
        return _with_text(envelope, target, None)
    properties = envelope.application_properties or {}
    return replace(
        envelope,
        application_properties={key: value for key, value in properties.items() if lower_name(key) != target.name},
    )
