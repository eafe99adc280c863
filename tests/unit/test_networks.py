"""Addresses that mean something else in a container."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.exceptions import ConnectionError

from kafkabus._redis.errors import to_sdk_error
from kafkabus._runtime import networks
from kafkabus._runtime.networks import loopback_hint


@pytest.fixture
def in_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file by which the program knows that it runs in a container."""
    mark = tmp_path / ".dockerenv"
    monkeypatch.setattr(networks, "_MARKS", (mark,))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    mark.touch()
    return mark


@pytest.mark.parametrize(
    ("addresses", "host"),
    [
        ("127.0.0.1:9092", "127.0.0.1"),
        ("kafka:9092,localhost:9093", "localhost"),
        ("redis://127.0.1.1:6379/0", "127.0.1.1"),
        ("redis://user@LOCALHOST/0", "LOCALHOST"),
        ("rediss://[::1]:6379/0", "[::1]"),
        ("kafka:9092", None),
        ("redis://localhost.example:6379/0", None),
        ("redis://10.127.0.0:6379/0", None),
        ("redis://redis:6379/127.0.0.1", None),
    ],
)
def test_an_address_of_the_container_itself_is_named(in_container: Path, addresses: str, host: str | None) -> None:
    """Users take it for that of their machine; outside of containers nothing is said."""
    hint = loopback_hint(addresses)
    assert hint.startswith(f" In a container, {host} is the container itself: give ") if host else hint == ""
    in_container.unlink()
    assert loopback_hint(addresses) == ""


def test_the_error_for_redis_has_the_hint(in_container: Path) -> None:
    """Behind its own remedy."""
    assert in_container.exists()
    error = to_sdk_error(ConnectionError("refused"), address="redis://127.0.0.1:1/0", namespace="shop", tried_for=7)
    assert "is the address right? In a container, 127.0.0.1 is the container itself" in error.message
