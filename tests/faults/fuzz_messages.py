"""Bring made-up messages into a namespace by every way, and out by every way.

``python -m tests.faults.fuzz_messages --seed 7 --seconds 600`` does so with a gateway to a namespace in memory, or with
``--servers`` to real servers. Each message is refused by its name, or comes out; none keeps another from coming out. A good
message beside each comes at its first delivery, with delivery count 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Producer
from rich.console import Console

from kafkabus import ServiceBusReceiveMode
from kafkabus.aio import ServiceBusClient
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import MessageSizeExceededError
from kafkabus.gateway.amqp.conditions import MESSAGE_SIZE_EXCEEDED
from kafkabus.gateway.amqp.performatives import Accepted, Modified, Rejected
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.gateway.server.messages import BATCH_FORMAT
from kafkabus.gateway.server.service_bus_conditions import ARGUMENT_ERROR
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace
from kafkabus_mapping.amqp.sections import MESSAGE_ANNOTATIONS, Sections, decode_sections, encode_sections
from kafkabus_mapping.amqp.types import Array, Described, Symbol, UInt, ULong, encode
from kafkabus_mapping.codec import Headers, from_milliseconds
from tests.amqp_client import AmqpClient
from tests.kafka_log import KAFKA_LOG
from tests.odd_messages import NUMBER, payload, record, sdk_message
from tests.servers import scratch_folder

PATIENCE: Final = 120.0
"""How long, in seconds, the messages of a round may take to come."""
ROUND: Final = 30
"""How many odd messages there are in a round."""
GOOD: Final = "good"
"""The application property that numbers a good message."""
NEVER_BEFORE: Final = from_milliseconds(1_000)
"""A time to schedule for that is over."""

Produce = Callable[[tuple[bytes | None, bytes | None, Headers]], None]
"""Writes a record to the queue, as a plain producer does."""


class FuzzError(Exception):
    """A message was lost, blocked others, or was refused for a wrong reason; the error says which."""


@dataclass
class Round:
    """A queue, and the messages that are on their way through it.

    Attributes:
        queue: The queue.
        chance: Decides everything.
        amqp: A client of the gateway.
        sdk: A client of the SDK.
        produce: A plain producer for the queue.
        accepted: Numbers of messages that were taken, with the way by which each came.
        came: Numbers of messages that came out, how often.
        became: How many messages ended in which way.
    """

    queue: str
    chance: random.Random
    amqp: AmqpClient
    sdk: ServiceBusClient
    produce: Produce
    accepted: dict[str, str] = field(default_factory=dict[str, str])
    came: Counter[str] = field(default_factory=Counter[str])
    became: Counter[str] = field(default_factory=Counter[str])

    def answered(self, way: str, numbers: Sequence[int], outcome: Any) -> None:
        """Note what became of messages that came by a link.

        Raises:
            FuzzError: They were refused for a wrong reason.
        """
        if isinstance(outcome, Accepted):
            self.take(way, numbers)
        elif isinstance(outcome, Rejected) and outcome.error is not None:
            self.refuse(way, numbers, outcome.error.condition)
        else:
            raise FuzzError(f"{way}: messages {numbers} of {self.queue} were answered by {outcome!r}")

    def take(self, way: str, numbers: Sequence[int]) -> None:
        """Note that messages were taken."""
        self.accepted.update({str(number): way for number in numbers})
        self.became[f"{way} took"] += len(numbers)

    def refuse(self, way: str, numbers: Sequence[int], condition: str) -> None:
        """Note that messages were refused.

        Raises:
            FuzzError: The reason is none that a message may have.
        """
        if condition not in {ARGUMENT_ERROR, MESSAGE_SIZE_EXCEEDED}:
            raise FuzzError(f"{way}: messages {numbers} of {self.queue} were refused by {condition}")
        self.became[f"{way} refused"] += len(numbers)

    def saw(self, sections: Sections) -> None:
        """Note a message that came over AMQP.

        Raises:
            FuzzError: A good message had been delivered before.
        """
        self.note(sections.application_properties, sections.header.get("delivery_count"))

    def note(self, properties: Mapping[Any, Any], count: Any) -> None:
        """Note a message that came.

        Raises:
            FuzzError: It had been delivered before.
        """
        own = {_text(key): value for key, value in properties.items()}
        name = f"{GOOD} {_text(own[GOOD])}" if GOOD in own else _text(own.get(NUMBER))
        if count:
            raise FuzzError(f"message {name} of {self.queue} was delivered {count} times before")
        self.came[name] += 1

    @property
    def is_over(self) -> bool:
        """Whether all messages that were taken have come."""
        return self.came.keys() >= self.accepted.keys()


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# Ways in.


async def _by_link(flow: Round, numbers: Sequence[int]) -> None:
    link = await flow.amqp.sender(flow.queue, 0)
    for number in numbers:
        flow.answered("link", [number], await link.send(payload(flow.chance, number)))
    await link.detach()


async def _by_batch(flow: Round, numbers: Sequence[int]) -> None:
    link = await flow.amqp.sender(flow.queue, 0)
    # One that is refused has its batch refused, so batches are small.
    for part in (numbers[at : at + 2] for at in range(0, len(numbers), 2)):
        pieces = [payload(flow.chance, number) for number in part]
        outcome = await link.send(encode_sections(Sections(data=pieces)), message_format=BATCH_FORMAT)
        flow.answered("batch", part, outcome)
    await link.detach()


async def _by_schedule(flow: Round, numbers: Sequence[int]) -> None:
    due = encode(Described(ULong(MESSAGE_ANNOTATIONS), {Symbol("x-opt-scheduled-enqueue-time"): NEVER_BEFORE}))
    for number in numbers:
        # Of a section that is there twice, the last one counts.
        entries = [{"message": payload(flow.chance, number) + due, "message-id": str(number)}]
        answer = await _ask(flow, "schedule-message", {"messages": entries})
        options = answer.application_properties
        if options["statusCode"] == 200:
            flow.take("schedule", [number])
        else:
            flow.refuse("schedule", [number], options["errorCondition"])


async def _by_sdk(flow: Round, numbers: Sequence[int]) -> None:
    async with flow.sdk.get_queue_sender(flow.queue) as sender:
        for number in numbers:
            try:
                await sender.send_messages(sdk_message(flow.chance, number))
            except (TypeError, ValueError, MessageSizeExceededError):  # noqa: PERF203 - each is refused alone
                flow.became["SDK refused"] += 1
            else:
                flow.take("SDK", [number])


async def _by_plain_producer(flow: Round, numbers: Sequence[int]) -> None:
    for number in numbers:
        flow.produce(record(flow.chance, number))
        flow.take("producer", [number])


async def _as_they_should(flow: Round, numbers: Sequence[int]) -> None:
    link = await flow.amqp.sender(flow.queue, 0)
    for number in numbers:
        message = Sections(application_properties={GOOD: str(number)}, data=[b"x"])
        if not isinstance(await link.send(encode_sections(message)), Accepted):
            raise FuzzError(f"good message {number} of {flow.queue} was refused")
        flow.accepted[f"{GOOD} {number}"] = "link"
    await link.detach()


WAYS_IN: Final = (_by_link, _by_batch, _by_schedule, _by_sdk, _by_plain_producer)


async def _ask(flow: Round, operation: str, body: Any) -> Sections:
    options = {"operation": f"com.microsoft:{operation}"}
    return await flow.amqp.ask(f"{flow.queue}/$management", body, options)


# Ways out.


async def _out_by_link(flow: Round) -> None:
    link = await flow.amqp.receiver(flow.queue, 1)
    link.grant(10 * ROUND)
    while not flow.is_over:
        message = await link.receive()
        flow.saw(message.sections)
        await link.settle(message, state=Accepted())
    await link.detach()


async def _out_by_taking(flow: Round) -> None:
    link = await flow.amqp.receiver(flow.queue, 1, takes=True)
    link.grant(10 * ROUND)
    while not flow.is_over:
        flow.saw((await link.receive()).sections)
    await link.detach()


async def _out_by_peeking(flow: Round) -> None:
    first = 1
    while not flow.is_over:
        answer = await _ask(flow, "peek-message", {"from-sequence-number": first, "message-count": UInt(7)})
        if answer.application_properties["statusCode"] == 204:
            await asyncio.sleep(0.05)  # Of those that are scheduled, some are not there yet.
            continue
        for entry in _entries(flow, answer):
            first = entry.message_annotations["x-opt-sequence-number"] + 1
            flow.saw(entry)
    flow.came.clear()
    await _out_by_sdk(flow)


async def _out_by_number(flow: Round) -> None:
    link = await flow.amqp.receiver(flow.queue, 1)
    link.grant(10 * ROUND)
    seen: set[str] = set()
    while not flow.is_over:
        message = await link.receive()
        sections = message.sections
        flow.saw(sections)
        seen.add(str(sections.message_annotations["x-opt-sequence-number"]))
        await link.settle(message, state=Modified(undeliverable_here=True))
    await link.detach()
    flow.came.clear()
    for number in seen:
        asked = {"sequence-numbers": Array([int(number)]), "receiver-settle-mode": UInt(0)}
        for entry in _entries(flow, await _ask(flow, "receive-by-sequence-number", asked)):
            entry.header.pop("delivery_count", None)  # It was delivered before it was deferred.
            flow.saw(entry)


def _entries(flow: Round, answer: Sections) -> list[Sections]:
    options = answer.application_properties
    if options["statusCode"] != 200:
        raise FuzzError(f"{flow.queue}: {options['statusCode']} {options.get('statusDescription')}")
    return [decode_sections(entry["message"]) for entry in answer.value["messages"]]


async def _out_by_sdk(flow: Round) -> None:
    async with flow.sdk.get_queue_receiver(flow.queue) as receiver:
        while not flow.is_over:
            for message in await receiver.receive_messages(max_message_count=ROUND, max_wait_time=1):
                _ = (repr(message), message.body, message.raw_amqp_message.body, message.raw_amqp_message.annotations)
                flow.note(message.application_properties or {}, message.delivery_count)
                await receiver.complete_message(message)


async def _out_by_taking_sdk(flow: Round) -> None:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with flow.sdk.get_queue_receiver(flow.queue, receive_mode=mode) as receiver:
        while not flow.is_over:
            for message in await receiver.receive_messages(max_message_count=ROUND, max_wait_time=1):
                flow.note(message.application_properties or {}, message.delivery_count)


WAYS_OUT: Final[Mapping[str, Callable[[Round], Awaitable[None]]]] = {
    "link": _out_by_link,
    "taking-link": _out_by_taking,
    "peek": _out_by_peeking,
    "number": _out_by_number,
    "sdk": _out_by_sdk,
    "taking-sdk": _out_by_taking_sdk,
}


# Namespaces.


@dataclass(frozen=True)
class Place:
    """A namespace.

    Attributes:
        connection_string: Its connection string.
        producer: Returns a plain producer for a queue.
    """

    connection_string: str
    producer: Callable[[str], Produce]


@contextmanager
def in_memory() -> Generator[Place]:
    """Provide a namespace in memory."""
    with InMemoryNamespace() as namespace:
        cluster = namespace._cluster

        def producer(queue: str) -> Produce:
            topic = next(name for name in cluster.topics if name.endswith(f".{queue}"))
            return lambda content: _check(cluster.append(topic, 0, content).error())

        yield Place(namespace.connection_string, producer)


@contextmanager
def on_servers() -> Generator[Place]:
    """Provide a namespace on real servers."""
    data = scratch_folder()
    try:
        with EmbeddedRuntime(data) as runtime:
            plain = Producer({"bootstrap.servers": runtime.bootstrap_servers}, logger=KAFKA_LOG)

            def producer(queue: str) -> Produce:
                def produce(content: tuple[bytes | None, bytes | None, Headers]) -> None:
                    key, value, headers = content
                    plain.produce(
                        f"kafkabus.{queue}",
                        value,
                        key,
                        partition=0,
                        headers=list(headers),
                        on_delivery=lambda error, _: _check(error),
                    )
                    plain.flush()

                return produce

            yield Place(runtime.connection_string, producer)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _check(error: object) -> None:
    if error is not None:
        raise FuzzError(f"a record was not stored: {error}")


async def one_round(flow: Round, way_out: str, numbers: Iterator[int]) -> None:
    """Bring messages in by all ways, in any order, and out by one way.

    Raises:
        FuzzError: A message was lost, or kept another one back.
    """
    odd = [next(numbers) for _ in range(ROUND)]
    parts = [odd[at :: len(WAYS_IN)] for at in range(len(WAYS_IN))]
    plan = [(way, part) for way, part in zip(WAYS_IN, parts, strict=True)]
    plan += [(_as_they_should, part) for part in parts]
    flow.chance.shuffle(plan)
    for way, part in plan:
        await way(flow, part)
    try:
        await asyncio.wait_for(WAYS_OUT[way_out](flow), PATIENCE)
    except (asyncio.TimeoutError, TimeoutError) as error:
        missing = {name: way for name, way in flow.accepted.items() if name not in flow.came}
        raise FuzzError(f"{flow.queue}: of {len(flow.accepted)} messages, these did not come: {missing}") from error
    twice = [name for name, count in flow.came.items() if count > 1 or name not in flow.accepted]
    if twice:
        raise FuzzError(f"{flow.queue}: messages that came twice, or that were refused: {twice}")
    flow.became[f"out by {way_out}"] += flow.came.total()


async def fuzz(place: Place, seed: int, *, seconds: float | None = None, rounds: int | None = None) -> Counter[str]:
    """Bring messages in and out for so long, or so many rounds of each way out; return what became of them.

    Args:
        place: The namespace.
        seed: Decides which messages.
        seconds: How long.
        rounds: How many rounds.

    Raises:
        FuzzError: A message was lost, or kept another one back.
    """
    end = None if seconds is None else time.monotonic() + seconds
    became, numbers = Counter[str](), itertools.count()
    async with (
        Gateway(place.connection_string) as gateway,
        ServiceBusClient.from_connection_string(place.connection_string) as sdk,
    ):
        port = await gateway.listen("127.0.0.1", 0)
        for turn in itertools.count() if rounds is None else range(rounds):
            for way_out in WAYS_OUT:
                if end is not None and time.monotonic() >= end:
                    return became
                queue = f"{way_out}-{turn}"
                await asyncio.to_thread(_change, place, "create", queue)
                async with AmqpClient(port) as amqp:
                    chance = random.Random(f"{seed} {queue}")
                    flow = Round(queue, chance, amqp, sdk, place.producer(queue), became=became)
                    await one_round(flow, way_out, numbers)
                await asyncio.to_thread(_change, place, "delete", queue)
    return became


def _change(place: Place, verb: str, queue: str) -> None:
    """Create or delete a queue; one that is deleted must have no dead letters."""
    with ServiceBusAdministrationClient.from_connection_string(place.connection_string) as administration:
        if verb == "create":
            with contextlib.suppress(Exception):
                administration.create_namespace("Premium", 1)
            administration.create_queue(queue, max_delivery_count=1)
            return
        dead = administration.get_queue_runtime_properties(queue).dead_letter_message_count
        if dead:
            raise FuzzError(f"{queue}: {dead} dead letters")
        administration.delete_queue(queue)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--servers", action="store_true", help="use a real Kafka and Redis")
    options = parser.parse_args()
    say = Console(highlight=False, soft_wrap=True).print
    with on_servers() if options.servers else in_memory() as place:
        try:
            became = asyncio.run(fuzz(place, options.seed, seconds=options.seconds))
        except FuzzError as error:
            say(f"seed {options.seed}: {error}")
            sys.exit(1)
    say(f"seed {options.seed}: in {options.seconds:g} s, {dict(became)}; none lost, none blocked")


if __name__ == "__main__":
    main()
