"""Sources of links on which clients receive: what clients ask for, and what of that is in force.

An answer names only what is in force, because clients rely on it: a consumer with a selector that is not in force would
acknowledge messages that it excludes. A link that asks for anything else is refused by name.
"""

from __future__ import annotations

from typing import Any, Final

from kafkabus.gateway.amqp.conditions import NOT_ALLOWED, NOT_FOUND, NOT_IMPLEMENTED, AmqpError
from kafkabus.gateway.amqp.performatives import Source, Target, fields_of
from kafkabus_mapping.amqp.types import Described, Symbol
from kafkabus_mapping.names import EntityPath, split_subscription

SESSION_FILTER: Final = Symbol("com.microsoft:session-filter")
COPY: Final = "copy"
"""The distribution mode of a link that leaves its messages where they are."""
MOVE: Final = "move"
MODES: Final = (MOVE, COPY)

OUTCOMES: Final = frozenset({"amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"})
CAPABILITIES: Final = frozenset({"queue", "topic"})
_NONE: Final = object()


class AskedSource:
    """The request of a client that attaches a link on which it receives; ``read`` returns one.

    Args:
        source: The source.

    Attributes:
        browses: Whether the client looks at messages that stay where they are; ``decide_for`` has the last word.
        in_session: Whether it receives from a session.
        session_id: The session; None for the next one that is available.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._filters = fields_of(source.filter)
        self.browses = source.distribution_mode == COPY
        asked = self._filters.get(SESSION_FILTER, _NONE)
        name = asked.value if isinstance(asked, Described) else asked
        self.in_session = asked is not _NONE
        self.session_id = name if isinstance(name, str) else None

    @classmethod
    def read(cls, source: object) -> AskedSource:
        """Return what a client asks for.

        Args:
            source: The source, as it came.

        Raises:
            AmqpError: It asks for something that is never in force.
        """
        if source is None:
            raise AmqpError(
                NOT_FOUND,
                "a link without a source: nothing is kept of a link by its name; a topic's subscription is deleted by its own",
            )
        asked = cls(source if isinstance(source, Source) else Source())
        asked._check()
        return asked

    def decide_for(self, path: EntityPath) -> None:
        """Decide by the entity that it names whether the client browses or receives.

        Raises:
            AmqpError: It contradicts itself.
        """
        if not self.browses or not self._source.durable:
            return
        if path.is_dead_letter or split_subscription(path.name) is None:
            raise AmqpError(
                NOT_ALLOWED,
                f"{path}: a durable link with distribution-mode copy, which only subscriptions have: leave durable out to "
                "browse, or the mode to receive",
            )
        # Of a topic, each durable subscriber of JMS has a separate copy: its subscription, whose messages it settles.
        self.browses = False

    def _check(self) -> None:
        refuse_dynamic(self._source)
        mode = self._source.distribution_mode
        if mode is not None and mode not in MODES:
            raise AmqpError(NOT_ALLOWED, f"distribution-mode {mode!r:.60}: it is one of {', '.join(MODES)}")
        unknown = [name for name in self._filters if name != SESSION_FILTER]
        if unknown:
            raise AmqpError(
                NOT_IMPLEMENTED,
                f"filter {unknown[0]!r:.80}: no such filter is in force when messages are received; receive without it, or "
                "from a subscription whose rules choose its messages",
            )

    def granted(self, session_id: str | None = None) -> Source:
        """Return what is in force, for the answer.

        Args:
            session_id: The session that was locked; None without one.
        """
        asked, filters = self._filters.get(SESSION_FILTER, _NONE), None
        if session_id is not None:
            # In the form of the question.
            name: Any = asked._replace(value=session_id) if isinstance(asked, Described) else session_id
            filters = {SESSION_FILTER: name}
        return Source(
            address=self._source.address,
            distribution_mode=self._source.distribution_mode and (COPY if self.browses else MOVE),
            filter=filters,
            outcomes=_known(self._source.outcomes, OUTCOMES),
            capabilities=_known(self._source.capabilities, CAPABILITIES),
        )


def refuse_dynamic(terminus: Source | Target) -> None:
    """Check that a client names the node of a link.

    Raises:
        AmqpError: It asks for a node that the gateway would make.
    """
    if terminus.dynamic:
        raise AmqpError(NOT_IMPLEMENTED, "a dynamic node: no temporary queues are made; create a queue, and name it")


def _known(asked: Any, known: frozenset[str]) -> list[str] | None:
    """Return those of some symbols that are known; None if none is."""
    given = [asked] if isinstance(asked, str) else asked if isinstance(asked, (list, tuple)) else []
    return [name for name in given if isinstance(name, str) and name in known] or None
