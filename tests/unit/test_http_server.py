"""The HTTP server within a program: what its clients see while it serves, and when it ends."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from kafkabus._runtime.http_server import HttpServer
from tests.certificates import Authority

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
    """Clients are told so that a connection is for one request."""
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
        async with HttpServer(answering(0), "127.0.0.1", 0, tls=tls, lifespan="off", http="h11") as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting)
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n")
            # Its client reads nothing more, and so does not see the end.
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport of a connection reads
    assert caplog.messages == []
    writer.transport.abort()


async def test_a_client_that_does_not_read_does_not_outlive_the_server() -> None:
    """Its connection is closed, once it had the second that all requests have."""
    server = HttpServer(answering(PIECES), "127.0.0.1", 0, lifespan="off", http="h11")
    async with server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
    assert server._server.server_state.connections == set()
    writer.transport.abort()
