"""The settlements of messages that clients hold: their requests, and carrying them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

from kafkabus._async.context import ClientContext
from kafkabus._async.engine.receiver_engine import engine_of
from kafkabus._core.amqp_encoding import plain_value
from kafkabus._core.entity import Entity
from kafkabus._core.message import ServiceBusReceivedMessage, receipt_of
from kafkabus.aio import ServiceBusReceiver
from kafkabus.gateway.amqp.conditions import NOT_ALLOWED, NOT_IMPLEMENTED, AmqpError
from kafkabus.gateway.amqp.performatives import (
    Accepted,
    Composite,
    ErrorCondition,
    Modified,
    Rejected,
    Released,
    TransactionalState,
    fields_of,
)
from kafkabus.gateway.server.held import read_contents
from kafkabus.gateway.server.service_bus_conditions import ARGUMENT_ERROR, DEAD_LETTER
from kafkabus.gateway.server.transactions import Enlistment
from kafkabus_mapping.entities import LONGEST_DELAY

DELAY = "x-opt-kafkabus-delay"
"""The name, among the properties to modify of a message that is abandoned, of the time in ms after which it is available."""
LONGEST_DELAY_MS = LONGEST_DELAY // timedelta(milliseconds=1)


class Verb(Enum):
    """A way to settle messages; the values are those of ``update-disposition``, spelt as there."""

    COMPLETE = "completed"
    ABANDON = "abandoned"
    DEFER = "defered"
    DEAD_LETTER = "suspended"
    RELEASE = "released"


@dataclass(frozen=True)
class RequestedSettlement:
    """A client's request to settle messages.

    Attributes:
        verb: The way.
        reason: Why they are dead-lettered.
        description: The reason in more words.
        changes: Application properties to change; also the delay, which is none.
    """

    verb: Verb
    reason: str | None = None
    description: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def delay(self) -> timedelta | None:
        """After which time abandoned messages are available; None: as the entity's retry policy says.

        Raises:
            AmqpError: It is not a number of ms up to seven days, or the messages are not abandoned.
        """
        given = plain_value(self.changes.get(DELAY))
        if given is None:
            return None
        if self.verb is not Verb.ABANDON:
            raise AmqpError(
                ARGUMENT_ERROR,
                f"{DELAY} is given for messages that are {self.verb.value}: it is for abandoned ones alone",
            )
        # Numbers of JavaScript may come as floats.
        is_whole = isinstance(given, int) or (isinstance(given, float) and given.is_integer())
        if isinstance(given, bool) or not is_whole or not 0 <= given <= LONGEST_DELAY_MS:
            raise AmqpError(
                ARGUMENT_ERROR,
                f"{DELAY} is {given!r:.60}: give whole milliseconds from 0 to {LONGEST_DELAY_MS:,}, which are 7 days",
            )
        return timedelta(milliseconds=given)

    async def apply(
        self,
        context: ClientContext,
        entity: Entity,
        receiver: ServiceBusReceiver,
        messages: Sequence[ServiceBusReceivedMessage],
        part: Enlistment | None,
    ) -> None:
        """Settle messages.

        Args:
            context: The parts of the client.
            entity: The messages' entity.
            receiver: A receiver of it.
            messages: The messages.
            part: Its part in a transaction; None without one.

        Raises:
            ServiceBusError: They cannot be settled.
            AmqpError: That is not done to them.
        """
        delay = self.delay
        if self.changes and self.verb in {Verb.COMPLETE, Verb.RELEASE}:
            raise AmqpError(
                NOT_ALLOWED,
                f"properties cannot be changed when a message is {self.verb.value}: leave them out; they can be when it is "
                "abandoned, deferred or dead-lettered",
            )
        transaction = None if part is None else part.transaction
        changes = {name: plain_value(value) for name, value in self.changes.items() if name != DELAY} or None
        # Of a changed message, the size is checked.
        copied = [message for message in messages if changes or self._copies(entity, message)]
        await read_contents(context, entity, copied, _no_limit if part is None else part.count)
        if self.verb is Verb.COMPLETE:
            await receiver.complete_messages(messages, transaction=transaction)
        elif self.verb is Verb.ABANDON:
            await receiver.abandon_messages(
                messages, delay=delay, properties_to_modify=changes, transaction=transaction
            )
        elif self.verb is Verb.DEFER:
            await receiver.defer_messages(messages, properties_to_modify=changes, transaction=transaction)
        elif self.verb is Verb.RELEASE:
            if transaction is not None:
                raise AmqpError(
                    NOT_IMPLEMENTED, "a transaction releases no messages: release them without it, or abandon them"
                )
            await engine_of(receiver).release(messages)
        else:
            await receiver.dead_letter_messages(
                messages, self.reason, self.description, properties_to_modify=changes, transaction=transaction
            )

    def _copies(self, entity: Entity, message: ServiceBusReceivedMessage) -> bool:
        """Return whether this may copy a message, into the dead-letter queue."""
        if self.verb is Verb.ABANDON:
            return receipt_of(message).delivery.count + 1 >= entity.max_deliveries
        return self.verb is Verb.DEAD_LETTER


def settlement_of_state(state: object) -> RequestedSettlement | None:
    """Return what a delivery's state asks for; None if it asks for nothing.

    Raises:
        AmqpError: The state is none that settles.
    """
    if isinstance(state, TransactionalState):
        if state.outcome is None:
            raise AmqpError(
                NOT_ALLOWED, "a transaction's state without an outcome settles nothing: name one, as accepted"
            )
        return settlement_of_state(state.outcome)
    if isinstance(state, Accepted):
        return RequestedSettlement(Verb.COMPLETE)
    if isinstance(state, Released):
        return RequestedSettlement(Verb.RELEASE)
    if isinstance(state, Modified):
        verb = Verb.DEFER if state.undeliverable_here else Verb.ABANDON
        return RequestedSettlement(verb, changes=texts(state.message_annotations))
    if isinstance(state, Rejected):
        return _dead_letter(state.error)
    if state is None:
        return None
    raise AmqpError(NOT_ALLOWED, f"{type(state).__name__} settles nothing")


def settlement_of_request(body: Mapping[str, Any]) -> RequestedSettlement:
    """Return what a request ``update-disposition`` asks for.

    Raises:
        AmqpError: It asks for nothing that is known.
    """
    status = body.get("disposition-status")
    try:
        verb = Verb(status)
    except ValueError as error:
        known = ", ".join(verb.value for verb in Verb)
        raise AmqpError(ARGUMENT_ERROR, f"disposition-status is {status!r:.60}: it is one of {known}") from error
    return RequestedSettlement(
        verb,
        body.get("deadletter-reason"),
        body.get("deadletter-description"),
        texts(body.get("properties-to-modify")),
    )


def echo_of(state: object) -> Composite | None:
    """Return what answers a state that was carried out: the same; but an error in it would be taken for a failure."""
    if isinstance(state, TransactionalState):
        return TransactionalState(state.txn_id, echo_of(state.outcome))
    if isinstance(state, Rejected):
        return Rejected()
    return state if isinstance(state, Composite) else None


def texts(given: object) -> dict[str, Any]:
    """Return a map with its keys, which may be symbols, as texts; empty if there is none."""
    return {str(key): value for key, value in fields_of(given).items()}


def _no_limit(size: int) -> None:
    """Allow any number of bytes."""
    del size


def _dead_letter(error: object) -> RequestedSettlement:
    if not isinstance(error, ErrorCondition):
        return RequestedSettlement(Verb.DEAD_LETTER)
    changes = texts(error.info)
    reason, description = changes.pop("DeadLetterReason", None), changes.pop("DeadLetterErrorDescription", None)
    if error.condition != DEAD_LETTER and reason is None:
        reason, description = error.condition, description or error.description
    return RequestedSettlement(
        Verb.DEAD_LETTER,
        None if reason is None else str(reason),
        None if description is None else str(description),
        changes,
    )
