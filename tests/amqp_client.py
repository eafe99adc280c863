"""A client of AMQP 1.0 for tests and benchmarks: it sends exactly the given frames, and knows nothing of Service Bus.

It writes the same performatives as the gateway's engine, with separate code for sessions and links.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import Mapping
from ssl import SSLContext
from typing import Any, TypeVar

from typing_extensions import Self

from kafkabus.gateway.amqp.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, FrameReader, frame_of
from kafkabus.gateway.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from kafkabus_mapping.amqp.sections import Sections, decode_sections, encode_sections
from tests.signatures import signature

P = TypeVar("P", bound=Composite)

PATIENCE = 60.0
"""How long, in seconds, an answer may take."""


class LinkError(Exception):
    """A link was detached, a session ended, or the connection closed.

    Attributes:
        condition: The condition; empty without an error.
    """

    def __init__(self, error: object) -> None:
        condition = error.condition if isinstance(error, ErrorCondition) else ""
        super().__init__(f"{condition}: {error.description if isinstance(error, ErrorCondition) else error}")
        self.condition = condition


class Delivered:
    """A message that came.

    Attributes:
        number: Its number in the session.
        tag: Its tag.
        settled: Whether it came settled.
        payload: Its bytes.
    """

    def __init__(self, transfer: Transfer) -> None:
        self.number = transfer.delivery_id or 0
        self.tag = transfer.delivery_tag or b""
        self.settled = bool(transfer.settled)
        self.payload = b""

    @property
    def sections(self) -> Sections:
        """Its sections."""
        return decode_sections(self.payload)

    @property
    def body(self) -> bytes:
        """Its body, if that is bytes."""
        return b"".join(self.sections.data)


class Link:
    """A link.

    Attributes:
        handle: Its handle.
        answer: The gateway's answer to its attachment.
        credit: How many messages may be sent.
        flowed: The last flow that the gateway sent for it.
    """

    def __init__(self, client: AmqpClient, handle: int) -> None:
        self._client = client
        self.handle = handle
        self.answer: Attach | None = None
        self.credit = 0
        self.flowed: Flow | None = None
        self.error: object = None
        self.is_detached = False
        self._count = 0
        self._tags = itertools.count()
        self._came: deque[Delivered] = deque()
        self._coming: Delivered | None = None
        self._received = 0

    # Sending.

    def put(
        self, payload: bytes, *, message_format: int = 0, state: Composite | None = None, settled: bool = False
    ) -> asyncio.Future[Any]:
        """Send a message; return the future of its outcome."""
        client, number = self._client, self._client.next_delivery()
        transfer = Transfer(
            self.handle, number, next(self._tags).to_bytes(4, "big"), message_format, settled, state=state
        )
        outcome = client.expect_outcome(number)
        room = client.frame_bytes - 128
        for at in range(0, max(1, len(payload)), room):
            transfer.more = at + room < len(payload)
            client.say(transfer, payload[at : at + room])
        self._count += 1
        self.credit -= 1
        return outcome

    async def until_credit(self, count: int = 1) -> None:
        """Wait until so many messages may be sent.

        Raises:
            LinkError: The link is gone.
        """
        await self._client.until(lambda: self.credit >= count or self.is_detached)
        self.check()

    async def send(self, payload: bytes, *, message_format: int = 0, state: Composite | None = None) -> Any:
        """Send a message when there is credit; return its outcome."""
        await self.until_credit()
        return await asyncio.wait_for(self.put(payload, message_format=message_format, state=state), PATIENCE)

    # Receiving.

    def grant(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Give credit."""
        self._client.say(
            Flow(
                next_incoming_id=self._client.next_incoming,
                incoming_window=self._client.window,
                outgoing_window=self._client.window,
                handle=self.handle,
                delivery_count=self._received,
                link_credit=credit,
                drain=drain,
                echo=echo,
            )
        )

    async def receive(self) -> Delivered:
        """Return the next message that comes."""
        await self._client.until(lambda: self._came or self.is_detached)
        if not self._came:
            self.check()
        return self._came.popleft()

    @property
    def waiting(self) -> int:
        """How many messages have come that were not received."""
        return len(self._came)

    async def settle(self, *deliveries: Delivered, state: Any, settled: bool = False) -> list[Any]:
        """Send the state of messages; return the gateway's answers."""
        client = self._client
        answers = [client.expect_answer(one.number) for one in deliveries]
        for one in deliveries:
            client.say(Disposition(True, one.number, one.number, settled, state))
        return [] if settled else [await asyncio.wait_for(answer, PATIENCE) for answer in answers]

    async def drain(self, credit: int = 0) -> None:
        """Give up the credit, or that much after the messages that are there; return when the gateway has."""
        before = self.flowed
        self.grant(credit, drain=True)
        await self._client.until(lambda: self.flowed is not before or self.is_detached)

    async def detach(self) -> None:
        """Detach the link."""
        if not self.is_detached:
            self._client.say(Detach(self.handle, closed=True))
            await self._client.until(lambda: self.is_detached)

    def check(self) -> None:
        """Raise if the link is gone.

        Raises:
            LinkError: It is.
        """
        if self.is_detached:
            raise LinkError(self.error)

    def take(self, performative: Composite, payload: bytes) -> None:
        """Take what the gateway says of this link."""
        if isinstance(performative, Attach):
            self.answer = performative
        elif isinstance(performative, Flow):
            self.flowed = performative
            if performative.link_credit is not None:
                self.credit = (performative.delivery_count or 0) + performative.link_credit - self._count
            if performative.drain:
                self._received = performative.delivery_count or 0
        elif isinstance(performative, Detach):
            self.end(performative.error)
        elif isinstance(performative, Transfer):
            self._transfer(performative, payload)

    def end(self, error: object) -> None:
        """Note that the link is gone."""
        if not self.is_detached:
            self.error, self.is_detached = error, True

    def _transfer(self, transfer: Transfer, payload: bytes) -> None:
        if self._coming is None:
            self._coming = Delivered(transfer)
        self._coming.payload += payload
        if not transfer.more:
            self._came.append(self._coming)
            self._coming = None
            self._received += 1


class AmqpClient:
    """A connection with one session, open from entering the context to leaving it.

    Args:
        port: The port.
        host: The host.
        tls: Encrypts the connection if it is given.
        login: Mechanism and initial response for SASL.
        opening: Fields of ``Open``.

    Attributes:
        port: The port.
        frame_bytes: The largest frame that may be sent.
        window: The session's incoming window.
        next_incoming: How many frames of messages came.
        closed: Why the gateway closed the connection; None as long as it did not.
        opened: The gateway's ``Open``.
        mechanisms: The mechanisms of SASL that the gateway offers.
    """

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        *,
        tls: SSLContext | None = None,
        login: tuple[str, bytes] = ("ANONYMOUS", b""),
        opening: Mapping[str, Any] | None = None,
    ) -> None:
        self.frame_bytes = 512
        self.window = 1_000_000
        self.next_incoming = 0
        self.closed: LinkError | None = None
        self.opened: Open | None = None
        self.mechanisms: list[str] = []
        self.port = port
        self._where = (host, port, tls)
        self._login = login
        self._opening = dict(opening or {})
        self._links: dict[int, Link] = {}
        self._deliveries = itertools.count()
        self._outcomes: dict[int, asyncio.Future[Any]] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._changed = asyncio.Event()
        self._frames = FrameReader(1 << 20)
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        host, port, tls = self._where
        self._reader, self._writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname="localhost" if tls else None, limit=1 << 20
        )
        try:
            await self._log_in()
        except BaseException:
            self.abort()
            raise
        name = self._opening.pop("container_id", f"client-{uuid.uuid4().hex}")
        self.say(Open(name, hostname="localhost", max_frame_size=65_536, **self._opening))
        self._reading = asyncio.get_running_loop().create_task(self._read())
        await self.until(lambda: self.opened or self.closed)
        if self.opened is not None:
            self.frame_bytes = min(65_536, self.opened.max_frame_size)
        self.say(Begin(None, 0, self.window, self.window))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.closed is None:
            self.say(Close())
            await self.until(lambda: self.closed is not None)
        self.abort()
        if self._reading is not None:
            await asyncio.wait([self._reading])

    def abort(self) -> None:
        """Cut the connection off, without a word."""
        self._writer.transport.abort()

    def pause_reading(self) -> None:
        """Read nothing more."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is the reader's as well

    def resume_reading(self) -> None:
        """Read on."""
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def _log_in(self) -> None:
        mechanism, response = self._login
        self.raw(SASL_HEADER)
        assert await self._reader.readexactly(8) == SASL_HEADER
        self.mechanisms = list((await self._sasl(SaslMechanisms)).mechanisms)
        self.raw(frame_of(0, SaslInit(mechanism, response).encoded(), kind=SASL_FRAME))
        outcome = await self._sasl(SaslOutcome)
        if outcome.code:
            assert await self._reader.read() == b"", "the gateway says more after it has refused a login"
            raise LinkError(f"SASL: {outcome.code}")
        self.raw(AMQP_HEADER)
        assert await self._reader.readexactly(8) == AMQP_HEADER

    async def _sasl(self, kind: type[P]) -> P:
        size = await self._reader.readexactly(4)
        reader = FrameReader(1 << 20)
        reader.feed(size + await self._reader.readexactly(int.from_bytes(size, "big") - 4))
        frame = reader.frame()
        assert frame is not None
        assert isinstance(frame.performative, kind)
        return frame.performative

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def say(self, performative: Composite, payload: bytes = b"", channel: int = 0) -> None:
        """Send a frame."""
        self.raw(frame_of(channel, performative.encoded(), payload))

    async def attach(
        self, handle: int, *, receives: bool, target: Any = None, source: Any = None, **fields: Any
    ) -> Link:
        """Attach a link; return it when the gateway has answered.

        Raises:
            LinkError: The gateway refuses.
        """
        link = self.begin_to_attach(handle, receives=receives, source=source, target=target, **fields)
        await self.until(lambda: link.is_detached or link.answer is not None)
        answer = link.answer
        if answer is not None and (answer.source if receives else answer.target) is None:
            await self.until(lambda: link.is_detached)
        link.check()
        return link

    def begin_to_attach(
        self, handle: int, *, receives: bool, target: Any = None, source: Any = None, **fields: Any
    ) -> Link:
        """Ask the gateway to attach a link, and do not wait for the answer."""
        link = self._links[handle] = Link(self, handle)
        name = fields.pop("name", f"link-{handle}")
        attach = Attach(name, handle, receives, source=source, target=target, **fields)
        attach.initial_delivery_count = None if receives else 0
        self.say(attach)
        return link

    async def sender(self, address: str, handle: int = 0, **fields: Any) -> Link:
        """Attach a link on which messages are sent."""
        return await self.attach(handle, receives=False, source=Source("here"), target=Target(address), **fields)

    async def receiver(
        self,
        address: str,
        handle: int = 1,
        *,
        takes: bool = False,
        filters: Mapping[Any, Any] | None = None,
        **fields: Any,
    ) -> Link:
        """Attach a link on which messages come."""
        source = Source(address, filter=None if filters is None else dict(filters))
        modes = {"snd_settle_mode": 1, "rcv_settle_mode": 0} if takes else {"snd_settle_mode": 0, "rcv_settle_mode": 1}
        return await self.attach(handle, receives=True, source=source, target=Target("here"), **{**modes, **fields})

    async def coordinator(self, handle: int = 2) -> Link:
        """Attach a link that controls transactions."""
        return await self.attach(handle, receives=False, source=Source("here"), target=Coordinator())

    async def ask(
        self, node: str, body: Any, options: Mapping[str, Any], *, state: Composite | None = None, base: int = 100
    ) -> Sections:
        """Send a request to a node; return the answer.

        Args:
            node: The node's address.
            body: The value of the request's body.
            options: Its application properties.
            state: The transaction that it is part of.
            base: The handle of the first of the two links, which are attached if they are not.
        """
        if base not in self._links or self._links[base].is_detached:
            await self.attach(base + 1, receives=True, source=Source(node), target=Target(f"reply-{base}"))
            await self.attach(base, receives=False, source=Source("here"), target=Target(node))
        request = Sections(
            properties={"message_id": "m", "reply_to": f"reply-{base}"},
            application_properties=dict(options),
            value=body,
        )
        self._links[base + 1].grant(100)
        await self._links[base].send(encode_sections(request), state=state)
        return (await self._links[base + 1].receive()).sections

    def next_delivery(self) -> int:
        """Return the number of the next message to send."""
        return next(self._deliveries)

    def expect_outcome(self, number: int) -> asyncio.Future[Any]:
        """Return the future of the outcome of a message that is sent."""
        self._outcomes[number] = future = asyncio.get_running_loop().create_future()
        return future

    def expect_answer(self, number: int) -> asyncio.Future[Any]:
        """Return the future of the answer to a disposition."""
        self._answers[number] = future = asyncio.get_running_loop().create_future()
        return future

    async def until(self, true: Any) -> None:
        """Wait until something is true, or the connection is over.

        Raises:
            TimeoutError: It did not come true in time.
        """
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not true() and self.closed is None:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), deadline - asyncio.get_running_loop().time())

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(1 << 18):
                self._frames.feed(data)
                while (frame := self._frames.frame()) is not None:
                    if frame.performative is not None:
                        self._take(frame.performative, frame.payload)
                self._changed.set()
        except OSError:
            pass
        finally:
            self._end(LinkError("the connection was cut off"))

    def _take(self, performative: Composite, payload: bytes) -> None:
        if isinstance(performative, Open):
            self.opened = performative
        elif isinstance(performative, Disposition):
            futures = self._outcomes if performative.role else self._answers
            last = performative.first if performative.last is None else performative.last
            for number in range(performative.first, last + 1):
                future = futures.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(performative.state)
        elif isinstance(performative, (Attach, Flow, Detach, Transfer)):
            if isinstance(performative, Transfer):
                self.next_incoming += 1
            link = self._links.get(performative.handle) if performative.handle is not None else None
            if link is not None:
                link.take(performative, payload)
        elif isinstance(performative, (End, Close)):
            self._end(LinkError(performative.error))

    def _end(self, error: LinkError) -> None:
        self.closed = self.closed or error
        for link in self._links.values():
            link.end(error)
        for future in (*self._outcomes.values(), *self._answers.values()):
            if not future.done():
                future.set_exception(error)
                future.exception()
        self._changed.set()


async def put_token(client: AmqpClient, audience: str, policy: str, key: str, lasts: float, base: int = 200) -> int:
    """Put a shared access signature to ``$cbs``; return the status.

    Args:
        client: The client.
        audience: The URI that it is for.
        policy: The policy.
        key: The policy's key.
        lasts: How long it lasts, in seconds.
        base: See ``AmqpClient.ask``.
    """
    return await put(client, audience, signature(audience, policy, key, lasts), base)


async def put(client: AmqpClient, audience: str, token: str, base: int = 200) -> int:
    """Put a token to ``$cbs``; return the status. Arguments as for ``put_token``."""
    options = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
    return int((await client.ask("$cbs", token, options, base=base)).application_properties["status-code"])
