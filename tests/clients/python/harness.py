"""The Python SDK, blocking or asyncio, for the checks; and their run, each with its own time limit."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

TIME_LIMIT_S = 60.0
"""How long a check may take."""
PATIENCE_S = 20.0
"""How long a check waits for messages that have to come."""
SILENCE_S = 2.0
"""How long a check waits for messages that must not come."""
AT_ONCE = 4
"""How many checks run at the same time."""

_MAKES_HANDLE = ("get_queue_sender", "get_queue_receiver", "get_topic_sender", "get_subscription_receiver")


class CheckError(AssertionError):
    """Something is not as the check wants it."""


class Blocking:
    """An object of the blocking SDK with the methods of the asyncio SDK: each call runs in a thread."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject

    async def __aenter__(self) -> Blocking:
        await asyncio.to_thread(self._subject.__enter__)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.to_thread(self._subject.__exit__, *raised)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._subject, name)
        if name == "session":
            return Blocking(attribute)
        if not callable(attribute):
            return attribute
        if name in _MAKES_HANDLE:
            return partial(_blocking, attribute)
        return partial(asyncio.to_thread, attribute)


def _blocking(make: Callable[..., Any], *arguments: Any, **options: Any) -> Blocking:
    return Blocking(make(*arguments, **options))


class Sdk:
    """A package with the names of ``azure.servicebus``.

    Attributes:
        errors: Its module of errors.
        amqp: Its module of AMQP messages.
        connection_string: The namespace.
        prefix: The beginning of the entities' names.
    """

    def __init__(self, package: str, asyncio_half: bool, connection_string: str, prefix: str) -> None:
        self._package = importlib.import_module(package)
        self._clients = importlib.import_module(f"{package}.aio") if asyncio_half else self._package
        self._asyncio_half = asyncio_half
        self.errors = importlib.import_module(f"{package}.exceptions")
        self.amqp = importlib.import_module(f"{package}.amqp")
        self.connection_string = connection_string
        self.prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._package, name)

    def client(self) -> ServiceBusClient:
        """Return a client that gives up early."""
        client = self._clients.ServiceBusClient.from_connection_string(
            self.connection_string, retry_total=1, retry_backoff_factor=0.1
        )
        return client if self._asyncio_half else Blocking(client)  # type: ignore[return-value]

    async def session_ids(self, client: ServiceBusClient, queue: str) -> list[str]:
        """Return the ids of a queue's sessions."""
        if self._asyncio_half:
            return [session async for session in client.list_queue_sessions(queue)]
        blocking: Any = client
        return await asyncio.to_thread(lambda: list(blocking._subject.list_queue_sessions(queue)))


class Context:
    """The things that a check works with.

    Attributes:
        sdk: The SDK.
        client: A client of the check's own.
        entity: The name of its queue or topic.
    """

    def __init__(self, sdk: Sdk, client: ServiceBusClient, entity: str) -> None:
        self.sdk = sdk
        self.client = client
        self.entity = entity

    def message(self, body: Any, **properties: Any) -> ServiceBusMessage:
        """Return a new message."""
        return self.sdk.ServiceBusMessage(body, **properties)  # type: ignore[no-any-return]

    async def send(self, *bodies: str, **properties: Any) -> None:
        """Send messages to the check's queue, each by itself."""
        async with self.client.get_queue_sender(self.entity) as sender:
            for body in bodies:
                await sender.send_messages(self.message(body, **properties))

    def receiver(self, **options: Any) -> ServiceBusReceiver:
        """Return a receiver of the check's queue."""
        return self.client.get_queue_receiver(self.entity, **options)

    async def receive(self, receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
        """Return so many messages, or fail."""
        messages: list[ServiceBusReceivedMessage] = []
        end = time.monotonic() + PATIENCE_S
        while len(messages) < count:
            left = end - time.monotonic()
            want(left > 0, f"{len(messages)} of {count} messages came in {PATIENCE_S:g} s")
            messages += await receiver.receive_messages(max_message_count=count - len(messages), max_wait_time=left)
        return messages

    async def receive_one(self, receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
        """Return one message, or fail."""
        return (await self.receive(receiver))[0]

    async def receive_nothing(self, receiver: ServiceBusReceiver) -> None:
        """Fail if a message comes."""
        messages = await receiver.receive_messages(max_message_count=1, max_wait_time=SILENCE_S)
        want(not messages, f"{len(messages)} messages came, and none should have")

    async def empty(self) -> None:
        """Fail if the check's queue has a message, in whatever state."""
        async with self.receiver() as receiver:
            messages = await receiver.peek_messages(max_message_count=10)
            want(not messages, f"{len(messages)} messages are left")

    @contextlib.asynccontextmanager
    async def raises(self, *names: str) -> AsyncGenerator[None]:
        """Fail unless the block raises one of the SDK's errors."""
        try:
            yield
        except CheckError:
            raise
        except Exception as error:
            wanted = tuple(getattr(self.sdk.errors, name) for name in names)
            # These are no refusals, though their classes are ServiceBusError's, too.
            transient = (self.sdk.errors.ServiceBusConnectionError, self.sdk.errors.ServiceBusServerBusyError)
            if not isinstance(error, wanted) or isinstance(error, transient):
                raise CheckError(f"{type(error).__name__} instead of {' or '.join(names)}: {error}") from error
        else:
            raise CheckError(f"no error instead of {' or '.join(names)}")


Check: TypeAlias = Callable[[Context], Awaitable[None]]


def want(condition: object, message: str) -> None:
    """Fail with a message unless a condition holds."""
    if not condition:
        raise CheckError(message)


def same(got: object, wanted: object, what: str) -> None:
    """Fail unless two things are equal."""
    want(got == wanted, f"{what} is {got!r} instead of {wanted!r}")


def text(message: ServiceBusReceivedMessage) -> str:
    """Return a message's body as text."""
    return b"".join(message.body).decode()


def texts(messages: Iterable[ServiceBusReceivedMessage]) -> list[str]:
    """Return the bodies of messages, sorted."""
    return sorted(map(text, messages))


def say(line: object) -> None:
    """Print a line of JSON."""
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def run(sdk: Sdk, checks: dict[str, Check]) -> bool:
    """Run checks, some at the same time, and print a line for each.

    Args:
        sdk: The SDK.
        checks: The checks, by name.

    Returns:
        Whether all passed.
    """
    free = threading.Semaphore(AT_ONCE)
    printing = threading.Lock()
    passed: list[bool] = []

    def report(name: str, began: float, error: str) -> None:
        with printing:
            passed.append(not error)
            say({"check": name, "ok": not error, "error": error, "seconds": round(time.monotonic() - began, 2)})

    def watch(name: str) -> None:
        outcome: list[str] = []
        began = time.monotonic()
        # A check that hangs keeps its thread, which ends with the process.
        check = threading.Thread(target=lambda: outcome.append(_error_of(sdk, name, checks[name])), daemon=True)
        check.start()
        check.join(TIME_LIMIT_S)
        report(name, began, outcome[0] if outcome else f"took longer than {TIME_LIMIT_S:g} s")
        free.release()

    watches: list[threading.Thread] = []
    for name in checks:
        free.acquire()
        watches.append(threading.Thread(target=watch, args=(name,), daemon=True))
        watches[-1].start()
    for watching in watches:
        watching.join()
    return all(passed)


def _error_of(sdk: Sdk, name: str, check: Check) -> str:
    async def alone() -> None:
        async with sdk.client() as client:
            await check(Context(sdk, client, f"{sdk.prefix}{name}"))

    try:
        asyncio.run(alone())
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the check's outcome
        return f"{type(error).__name__}: {error}"
    return ""
