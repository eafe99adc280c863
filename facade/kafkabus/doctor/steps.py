"""Steps of gathering, each with a time limit: a server that hangs holds up its own line of steps, and only once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunningError
from dataclasses import dataclass
from typing import TypeVar

from kafkabus._core.exceptions import ServiceBusError
from kafkabus.doctor.facts import Missing

T = TypeVar("T")

_ANSWERED_WITHIN = 0.8
"""The part of a step's time after which a client gives up, so that its error is heard, which says more."""


@dataclass(frozen=True, slots=True)
class LookLimits:
    """The limits of a look.

    Attributes:
        step_s: The longest time for one step, in seconds.
        transaction_s: After how many seconds a Kafka transaction counts as open for too long; a broker ends abandoned ones of
            kafkabus after 20 s, those of other producers after 70 s by default.
    """

    step_s: float = 10.0
    transaction_s: float = 90.0

    @property
    def answer_s(self) -> float:
        """The longest time for an answer of a server, in seconds."""
        return self.step_s * _ANSWERED_WITHIN


class Line:
    """Steps one after the other; after one that does not end in time, no other is taken.

    Args:
        limits: The limits.
        ended: Why no step is taken; None: steps are taken.
    """

    def __init__(self, limits: LookLimits, ended: Missing | None = None) -> None:
        self._limit = limits.step_s
        self._ended = ended

    def ask(self, what: str, call: Callable[[], T]) -> T | Missing:
        """Take a step; return its result, or why there is none.

        Args:
            what: The step, in words, such as "to describe the topics".
            call: The step. If it hangs, its thread is abandoned; the end of the process ends it.
        """
        if self._ended is not None:
            return self._ended
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                outcome.set_exception(error)

        threading.Thread(target=run, daemon=True, name="kafkabus-doctor").start()
        try:
            return outcome.result(self._limit)
        except StillRunningError:
            self._ended = Missing(f"{what} took more than {self._limit:g} s")
            return self._ended
        except ServiceBusError as error:
            return Missing(str(error), error)
