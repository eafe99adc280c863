"""The end of a service: at a signal, and soon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a service to end: of Ctrl-C, of ``kill``, of a terminal that closes."""


def select_heeded() -> list[signal.Signals]:
    """Return those of them that the process does not ignore, as ``nohup`` has it ignore SIGHUP."""
    return [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]


def stop_on_signals(
    logger: logging.Logger, service: str, *, within: float, late: str, lifeline: int | None = None
) -> asyncio.Event:
    """Return an event that the first signal of ``SIGNALS`` sets; from then on the process ends, whatever it waits for.

    A second signal ends the process at once, but no SIGHUP does: a terminal that closes may send several.

    Args:
        logger: Logs the end.
        service: The service's name, with which the logged events begin.
        within: After how many seconds at most the process ends, with status 0.
        late: The text that the log shows then.
        lifeline: The descriptor of a pipe's end; once the other end is closed, also by the end of the process that had it, the
            service ends as at a signal. None: there is none.
    """
    # The log in JSON takes an event's name from a template.
    late_line, at_once_line, stopping_line = (
        f"{service}_ended_late seconds=%.0f: %s",
        f"{service}_ended_at_once signal=%d",
        f"{service}_stopping signal=%d",
    )
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    has_come = False

    def give_up() -> None:
        logger.warning(late_line, within, late)
        _end_now(0)

    def end(number: int) -> None:
        nonlocal has_come
        if has_come and number == signal.SIGHUP:
            return
        if has_come:
            logger.warning(at_once_line, number)
            _end_now(128 + number)
        # The first one may come after the end of the lifeline, of a process that got it as well.
        has_come = True
        logger.info(stopping_line, number)
        begin()

    def begin() -> None:
        if stop.is_set():
            return
        stop.set()
        deadline = threading.Timer(within, give_up)
        # It does not keep the process alive, and goes on while the interpreter waits for other threads.
        deadline.daemon = True
        deadline.start()

    def cut(end_of_line: int) -> None:
        loop.remove_reader(end_of_line)
        begin()

    for number in select_heeded():
        loop.add_signal_handler(number, end, number)
    if lifeline is not None:
        loop.add_reader(lifeline, cut, lifeline)
    return stop


def _end_now(status: int) -> None:
    """End the process without waiting for threads, as those that wait for a server."""
    logging.shutdown()
    os._exit(status)
