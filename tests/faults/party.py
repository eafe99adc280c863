"""A sender or a receiver in a separate process, which may be killed at any moment; it writes down what it did.

Each line that it writes is a moment, an event (``try``, ``sent``, ``got``, ``done``) and a list of messages, the
received ones as ``body@sequence number``. An incomplete line counts as not written.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

from kafkabus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from kafkabus.cli.connection import receiver_of
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient, SqlRuleFilter
from kafkabus_mapping.names import split_subscription

FLOWS = (
    *("plain", "detecting", "scheduling", "forwarding", "hopping", "looping", "transactions", "subscribing", "ruling"),
    *("renewing", "forgetting", "clocks", "postponing", "amqp", "amqp-transactions"),
)
"""The tasks of an entity beyond sending and receiving. If it detects duplicates, senders send messages more than once."""
TRANSACTED = {"transactions", "amqp-transactions"}
"""Flows in which separate parties move the messages on in transactions."""
OVER_AMQP = {"amqp", "amqp-transactions"}
"""Flows whose parties use the gateway."""
TIMED = {"forgetting", "clocks"}
"""Flows in which some messages are scheduled, some have a time to live, and some are sent in transactions."""
KINDS = ("plain", "scheduled", "mortal", "in a transaction")
"""The kinds of batches in these flows, in turn."""
LIFE = 4.0
"""How long, in seconds, messages with a time to live live."""
RULE = "changing"
"""Name of the rule that is changed again and again."""
NOT_FORWARDED = "/$Transfer/$DeadLetterQueue"
"""The suffix of the path that holds a queue's messages that could not be forwarded."""
BATCH = 20
PACE = 0.02
"""How long, in seconds, a sender rests between two batches, so that receivers keep up."""
RHYTHM = 0.05
"""For how long, in seconds, senders that send messages more than once send the same ones."""
DELAY = 3.0
"""For how long, in seconds, messages are scheduled at the most."""
POSTPONED = 0.1
"""Which part of the messages is postponed by a delay, and as much again by the retry policy."""
RETRY = 1.0
"""The delay, in seconds, of the retry policy of flows in which messages are postponed."""
SUBSCRIBING = {"subscribing", "ruling"}
"""Flows in which messages are sent to a topic, and a rule of one of its subscriptions is changed."""
SUBJECTS = ("even", "odd")
"""The subjects of messages to a topic: a rule asks for one of them, and then for the other."""
STANDING = 1.0
"""How long, in seconds, a rule is in force at the most."""
WORK = 0.2
"""For how long, in seconds, a receiver works on its messages at the most: it is likely to be killed while it holds some."""
LONG_WORK = 8.0
"""The same for flows whose receivers renew their locks, which last three seconds."""


def tell(event: str, *words: str) -> None:
    """Write an event down; it is in the file when this returns."""
    sys.stdout.write(f"{time.time():.6f} {event} {' '.join(words)}\n")
    sys.stdout.flush()


def send(client: ServiceBusClient, queue: str, name: str, sessions: int, flow: str) -> None:
    """Send numbered messages, half of them with keys, or all in sessions, for ever."""
    sender, detecting = client.get_queue_sender(queue), flow == "detecting"
    for first in _again_and_again() if detecting else count(0, BATCH):
        bodies = [f"{'any' if detecting else name}-{first + index}" for index in range(BATCH)]
        tell("try", *bodies)
        messages = [_message(body, first, sessions, flow) for body in bodies]
        try:
            if kind_of(bodies[0], flow) == "in a transaction":
                with client.transaction() as transaction:
                    sender.send_messages(messages, transaction=transaction)
            elif kind_of(bodies[0], flow) == "scheduled":
                due = datetime.now(timezone.utc) + timedelta(seconds=random.uniform(0, DELAY))
                tell("due", f"{due.timestamp():.3f}", *bodies)
                sender.schedule_messages(messages, due)
            else:
                sender.send_messages(messages)
        except ServiceBusError as error:
            tell("failed", type(error).__name__)
        else:
            tell("sent", *bodies)
        time.sleep(PACE)


def _message(body: str, first: int, sessions: int, flow: str) -> ServiceBusMessage:
    subject = subject_of(body) if flow in SUBSCRIBING else None
    if sessions:
        return ServiceBusMessage(body, session_id=session_of(body, sessions), subject=subject)
    # A message without a key may be stored twice if a partition does not answer.
    keyed = first // BATCH % 2 or flow in TRANSACTED or kind_of(body, flow) == "in a transaction"
    key = f"key-{first // BATCH % 7}" if keyed else None
    message_id = body if flow == "detecting" else None
    life = timedelta(seconds=LIFE) if kind_of(body, flow) == "mortal" else None
    return ServiceBusMessage(body, partition_key=key, message_id=message_id, subject=subject, time_to_live=life)


def kind_of(body: str, flow: str) -> str:
    """Return the kind of a message of a flow: one of ``KINDS``."""
    batch = int(body.rpartition("-")[2]) // BATCH
    if flow in TIMED:
        return KINDS[batch % len(KINDS)]
    if flow == "ruling":
        return "in a transaction" if batch % 2 else "plain"
    return "scheduled" if flow == "scheduling" and batch % 2 else "plain"


def _again_and_again() -> Generator[int]:
    """Yield batches that all senders send at about the same time, and now and then once more a little later."""
    while True:
        now = int(time.time() / RHYTHM) * BATCH
        yield now
        yield now - random.randrange(100) * BATCH


@contextmanager
def failures_told() -> Generator[None]:
    """Write errors down, and go on."""
    try:
        yield
    except ServiceBusError as error:
        tell("failed", type(error).__name__)


def session_of(body: str, sessions: int) -> str:
    """Return the session of a message."""
    return f"session-{int(body.rpartition('-')[2]) % sessions}"


def subject_of(body: str) -> str:
    """Return the subject of a message to a topic."""
    return SUBJECTS[int(body.rpartition("-")[2]) % 2]


def receiver_from(client: ServiceBusClient, source: str, **settings: Any) -> ServiceBusReceiver:
    """Return a receiver from a queue, a subscription, or the place of a queue's messages that could not be forwarded."""
    queue, found, _ = source.partition(NOT_FORWARDED)
    if found:
        return client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER, **settings)
    return receiver_of(client, source, **settings)


def receive_and_renew(client: ServiceBusClient, source: str) -> None:
    """Receive, work for longer than locks last, and complete, for ever."""
    receiver = receiver_from(client, source)
    with AutoLockRenewer() as renewer:
        while True:
            with failures_told():
                take(receiver, BATCH, LONG_WORK, renewer)


def receive(client: ServiceBusClient, source: str, flow: str) -> None:
    """Receive and complete for ever."""
    receiver = receiver_from(client, source)
    while True:
        with failures_told():
            take(receiver, postpones=flow == "postponing")


def receive_sessions(client: ServiceBusClient, source: str, flow: str) -> None:
    """Receive and complete for ever, a few times of each session."""
    while True:
        with (
            failures_told(),
            receiver_of(client, source, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1) as receiver,
        ):
            for _ in range(random.randrange(1, 4)):
                take(receiver, postpones=flow == "postponing")


def move(client: ServiceBusClient, queue: str) -> None:
    """Receive, and send all messages on to the queue of this name, in a transaction for each key, for ever."""
    receiver, sender = client.get_queue_receiver(queue), client.get_queue_sender(moved_to(queue))
    while True:
        with failures_told():
            by_key: dict[str | None, list[ServiceBusReceivedMessage]] = defaultdict(list)
            for message in receiver.receive_messages(10 * BATCH, max_wait_time=1):
                by_key[message.partition_key].append(message)
            for key, messages in by_key.items():
                time.sleep(random.uniform(0, WORK / 4))
                with client.transaction() as transaction:
                    copies = [ServiceBusMessage(str(message), partition_key=key) for message in messages]
                    sender.send_messages(copies, transaction=transaction)
                    receiver.complete_messages(messages, transaction=transaction)


def change_rule(connection_string: str, subscription: str) -> None:
    """Have a rule ask for messages of one subject, and then of the other, for ever; write ``rule`` down at each change."""
    topic, name = split_subscription(subscription) or ("", "")
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        for number in count():
            subject = SUBJECTS[number % 2]
            tell("change", subject)
            with failures_told():
                rule = administration.get_rule(topic, name, RULE)
                administration.update_rule(topic, name, rule, filter=SqlRuleFilter(f"sys.Label = '{subject}'"))
                tell("rule", subject)
            time.sleep(random.uniform(0, STANDING))


def moved_to(queue: str) -> str:
    """Return the destination to which messages of a queue are moved."""
    return queue.removesuffix("-first")


def take(
    receiver: ServiceBusReceiver,
    count: int = 10 * BATCH,
    work: float = WORK,
    renewer: AutoLockRenewer | None = None,
    *,
    postpones: bool = False,
) -> None:
    """Receive and complete once; of some messages, postpone a part, by a delay or by the retry policy."""
    messages = receiver.receive_messages(count, max_wait_time=1)
    if messages:
        copies = [f"{message}@{message.sequence_number}" for message in messages]
        tell("got", *copies)
        if renewer is not None:
            for message in messages:
                renewer.register(receiver, message, max_lock_renewal_duration=10 * work)
        time.sleep(random.uniform(0, work))
        if postpones:
            for delay, kind in ((random.uniform(0, DELAY), "delayed"), (None, "retried")):
                chosen = [message for message in messages if random.random() < POSTPONED]
                messages = [message for message in messages if message not in chosen]
                begun = time.time()
                if chosen:
                    receiver.abandon_messages(chosen, delay=delay)
                    until = begun + (RETRY if delay is None else delay)
                    tell(kind, f"{until:.3f}", *(f"{message}@{message.sequence_number}" for message in chosen))
        receiver.complete_messages(messages)
        tell("done", *(f"{message}@{message.sequence_number}" for message in messages))


@contextmanager
def output_to(output: Path) -> Generator[None]:
    """Have ``tell`` write to a file, and nothing be written elsewhere."""
    with output.open("w") as sys.stdout, Path(os.devnull).open("w") as sys.stderr:
        os.dup2(sys.stderr.fileno(), 2)
        yield


def take_part(
    output: Path, role: str, connection_string: str, entity: str, name: str, sessions: int, flow: str
) -> None:
    """Be a sender, a receiver, or one that moves messages on or changes a rule, until killed.

    Args:
        output: The file in which it writes down what it did.
        role: ``send``, ``receive``, ``move`` or ``rule``.
        connection_string: Of the namespace.
        entity: The entity that it sends to or receives from, or whose rule it changes.
        name: The beginning of its messages.
        sessions: How many sessions messages have; 0: none.
        flow: One of ``FLOWS``.
    """
    with output_to(output), ServiceBusClient.from_connection_string(connection_string) as client:
        if role == "send":
            send(client, entity, name, sessions, flow)
        elif role == "move":
            move(client, entity)
        elif role == "rule":
            change_rule(connection_string, entity)
        elif sessions:
            receive_sessions(client, entity, flow)
        elif flow == "renewing":
            receive_and_renew(client, entity)
        else:
            receive(client, entity, flow)
