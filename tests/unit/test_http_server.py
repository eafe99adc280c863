"""The HTTP server within a program: what its clients see while it serves, and when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from kafkabus._runtime import http_server, turns
from kafkabus._runtime.http_connections import ConnectionLimits, RequestLimit
from kafkabus._runtime.http_server import HttpServer
from kafkabus._runtime.networks import network_of
from tests.certificates import Authority

PATIENCE = 20.0
HALF = b"GET / HTTP/1.1\r\nHost:"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
PIECE, PIECES = b"x" * (1 << 20), 64


def answering(pieces: int) -> ASGIApp:
    """Return an application that answers every request with so many pieces of a body."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(pieces * len(PIECE)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for left in reversed(range(pieces)):
            await send({"type": "http.response.body", "body": PIECE, "more_body": left > 0})
        if not pieces:
            await send({"type": "http.response.body", "body": b""})

    return app


async def test_headers_of_all_answers_are_sent() -> None:
    """With `connection: close`, clients know that a connection is for one request."""
    async with HttpServer(answering(0), "127.0.0.1", 0, lifespan="off", headers=[("connection", "close")]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(REQUEST)
        assert b"connection: close" in await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_an_idle_connection_does_not_delay_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor does its client have to answer the end of TLS."""
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.certify("server").both)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    with caplog.at_level(logging.WARNING, "uvicorn.error"):
        async with HttpServer(answering(0), "127.0.0.1", 0, tls=tls, lifespan="off") as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n")
            # Its client reads nothing more, and so does not see the end.
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport of a connection reads
    assert caplog.messages == []
    writer.transport.abort()


async def test_a_client_that_does_not_read_does_not_outlive_the_server() -> None:
    """Its connection is closed, once it had the second that all requests have."""
    server = HttpServer(answering(PIECES), "127.0.0.1", 0, lifespan="off")
    async with server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
    assert server._server.server_state.connections == set()
    writer.transport.abort()


class Client:
    """A client's socket.

    Args:
        reader: Reads.
        writer: Writes.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connected(cls, port: int, source: str = "127.0.0.1") -> Client:
        """Return a client that is connected from an address."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))

    async def answer(self, data: bytes = REQUEST) -> bytes:
        """Send bytes; return the head of the answer."""
        self.writer.write(data)
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)

    async def until_closed(self) -> None:
        """Wait until the server has closed the connection."""
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(self.reader.read(), PATIENCE)
        self.writer.transport.abort()


async def test_a_head_that_does_not_come_ends_a_connection() -> None:
    """Neither of the first request, nor of a later one; a byte now and then does not help."""
    limits = ConnectionLimits(head_within=0.1)
    async with HttpServer(answering(0), "127.0.0.1", 0, lifespan="off", limits=limits) as server:
        silent, half, again = [await Client.connected(server.port) for _ in range(3)]
        half.writer.write(HALF)
        assert b"200" in await again.answer()
        again.writer.write(HALF)
        for client in (silent, half, again):
            await client.until_closed()


async def test_a_connection_without_a_request_is_kept_for_the_next() -> None:
    """The time for a head begins with its first byte."""
    limits = ConnectionLimits(head_within=0.05)
    async with HttpServer(answering(0), "127.0.0.1", 0, lifespan="off", limits=limits) as server:
        kept, silent = await Client.connected(server.port), await Client.connected(server.port)
        await kept.answer()
        await silent.until_closed()
        assert b"200" in await kept.answer()
        kept.writer.transport.abort()


async def test_an_address_has_a_share_of_the_connections() -> None:
    """One more ends its oldest without a request; one too many of all ends one of the address that has most."""
    limits = ConnectionLimits(total=4, by_address=3)
    async with HttpServer(answering(0), "127.0.0.1", 0, lifespan="off", limits=limits) as server:
        other = await Client.connected(server.port, "127.0.0.2")
        half = [await Client.connected(server.port) for _ in range(5)]
        assert b"200" in await half[-1].answer()
        for client in half[:2]:
            await client.until_closed()
        third = await Client.connected(server.port, "127.0.0.3")
        assert b"200" in await third.answer()
        await half[2].until_closed()
        assert b"200" in await other.answer()
        for client in (other, third, *half[3:]):
            client.writer.transport.abort()


async def test_requests_beyond_the_most_are_refused_but_for_those_that_are_spared() -> None:
    """As those for the health are."""
    going_on = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await going_on.wait()
        await answering(0)(scope, receive, send)

    def limited(most: int, by_address: int) -> HttpServer:
        spared = RequestLimit(app, most, by_address, lambda scope: scope["path"] == "/health")
        return HttpServer(spared, "127.0.0.1", 0, lifespan="off")

    for most, by_address, other_status in ((1, 1, b"503"), (9, 1, b"200")):
        going_on.clear()
        async with limited(most, by_address) as server:
            slow, health = await Client.connected(server.port), await Client.connected(server.port)
            answer = asyncio.create_task(slow.answer(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"))
            assert b"200" in await health.answer(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            one, other = await Client.connected(server.port), await Client.connected(server.port, "127.0.0.2")
            assert b"503" in await one.answer()
            assert other_status in await other.answer()
            going_on.set()
            assert b"200" in await answer
            assert b"200" in await health.answer()
            for client in (slow, health, one, other):
                client.writer.transport.abort()


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    """The application, which waits for it, goes on."""
    over = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(PIECES)(scope, receive, send)
        over.set()

    limits = ConnectionLimits(read_within=0.1)
    async with HttpServer(app, "127.0.0.1", 0, lifespan="off", limits=limits) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.wait_for(over.wait(), PATIENCE)
        assert server._server.server_state.connections == set()
        writer.transport.abort()


async def test_a_body_that_goes_on_after_its_answer_ends_the_connection() -> None:
    """It is read for a while, so that the client sees the answer."""
    limits = ConnectionLimits(rest_within=0.2)
    async with HttpServer(answering(0), "127.0.0.1", 0, lifespan="off", limits=limits) as server:
        client = await Client.connected(server.port)
        assert b"200" in await client.answer(
            b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
        )

        async def go_on() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    client.writer.write(b"1\r\nx\r\n")
                    await client.writer.drain()
                    await asyncio.sleep(0.01)

        going_on = asyncio.ensure_future(go_on())
        await client.until_closed()
        going_on.cancel()
        kept = await Client.connected(server.port)
        for _ in range(2):
            body = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"
            kept.writer.write(body)
            assert b"200" in await kept.answer(b"abc")
        kept.writer.transport.abort()


async def test_what_breaks_a_later_request_ends_its_connection_alone() -> None:
    """A malformed chunk behind the answer; and requests that were sent together."""
    async with HttpServer(answering(0), "127.0.0.1", 0, lifespan="off") as server:
        broken, other = await Client.connected(server.port), await Client.connected(server.port)
        head = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert b"200" in await broken.answer(head + b"1\r\nx\r\n" * 10_000)
        broken.writer.write(b"ZZZ\r\n")
        await broken.until_closed()
        assert b"200" in await other.answer()
        for _ in range(3):
            other.writer.write(head + b"1\r\nx\r\n" * 1_000 + b"0\r\n\r\n")
        for _ in range(3):
            assert b"200" in await other.answer(b"")
        other.writer.transport.abort()


async def test_small_chunks_do_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of the socket may bring thousands, each of which takes a while."""
    monkeypatch.setattr(turns, "ROUND", 0.001)
    got = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal got
        if scope["method"] == "PUT":
            while (await receive()).get("more_body"):
                got += 1
        await answering(0)(scope, receive, send)

    async with HttpServer(app, "127.0.0.1", 0, lifespan="off") as server:
        busy, other = await Client.connected(server.port), await Client.connected(server.port)
        head = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        busy.writer.write(head + b"1\r\nx\r\n" * 40_000)
        while not got:  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(0)
        assert b"200" in await other.answer()
        assert got < 40_000
        assert b"200" in await busy.answer(b"0\r\n\r\n")
        for client in (busy, other):
            client.writer.transport.abort()


async def test_a_client_that_does_not_agree_on_tls_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would count nowhere."""
    monkeypatch.setattr(http_server, "TLS_WITHIN", 0.1)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(Authority(tmp_path).certify("server").both)
    async with HttpServer(answering(0), "127.0.0.1", 0, tls=tls, lifespan="off") as server:
        await (await Client.connected(server.port)).until_closed()


@pytest.mark.parametrize(
    ("client", "network"),
    [
        (("10.0.0.1", 1), "10.0.0.1"),
        (("::ffff:10.0.0.1", 1, 0, 0), "10.0.0.1"),
        (("2001:db8::1:2", 1, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (None, ""),
        ("/run/socket", ""),
    ],
)
def test_a_client_counts_by_its_network(client: object, network: str) -> None:
    """In IPv6, a client has a network of addresses."""
    assert network_of(client) == network
