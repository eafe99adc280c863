"""Listeners for clients elsewhere: the accepted options, and the addresses that clients get."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kafkabus.embedded import EmbeddedRuntimeError
from kafkabus.embedded.cluster import REDIS_PASSWORD_VARIABLE, Addresses
from kafkabus.embedded.exposure import NOT_EXPOSED, Exposure, Listener
from kafkabus_mapping.connection import parse_kafka_location
from tests.ports import free_ports


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("9092=localhost", Listener(9092, "localhost", 9092)),
        ("9092=broker.example:19092", Listener(9092, "broker.example", 19092)),
        ("9092=[::1]:19092", Listener(9092, "[::1]", 19092)),
    ],
)
def test_a_listener_is_a_port_and_an_address(text: str, listener: Listener) -> None:
    assert Listener.parse(text) == listener
    assert Listener.parse(str(listener)) == listener


@pytest.mark.parametrize("text", ["9092", "localhost:9092", "=localhost", "9092=", "9092=a b", "9092=host:port", "x=y"])
def test_what_is_no_listener_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(EmbeddedRuntimeError, match=r"such as 9092=localhost") as refusal:
        Listener.parse(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize("text", ["0=localhost", "65536=localhost", "9092=localhost:70000"])
def test_a_port_has_bounds(text: str) -> None:
    with pytest.raises(EmbeddedRuntimeError, match="a number from 1 to 65535"):
        Listener.parse(text)


@pytest.mark.parametrize(("listeners", "redis_port"), [(["9092=localhost"], None), ([], 6379)])
def test_kafka_and_redis_are_exposed_together(listeners: list[str], redis_port: int | None) -> None:
    with pytest.raises(EmbeddedRuntimeError, match="Clients elsewhere need Kafka and Redis"):
        Exposure.parse(listeners, redis_port)


def test_each_listener_has_a_port_of_its_own() -> None:
    with pytest.raises(EmbeddedRuntimeError, match="Port 9092 is given twice"):
        Exposure.parse(["9092=localhost", "9092=kafkabus"], 6379)
    with pytest.raises(EmbeddedRuntimeError, match="Port 6379 is given twice"):
        Exposure.parse(["6379=localhost"], 6379)


def test_each_broker_has_a_port_of_its_own_at_each_listener(tmp_path: Path) -> None:
    exposure = Exposure.parse(["9092=localhost", "9093=kafkabus"], 6379)
    with pytest.raises(EmbeddedRuntimeError, match=r"Port 9093 is given twice: .* 3 brokers take 3 ports"):
        Addresses(tmp_path, 3, exposure)


def test_an_exposure_is_given_on_as_options() -> None:
    exposure = Exposure.parse(["9092=localhost", "29092=kafkabus:9092"], 6379)
    assert exposure.to_options() == [
        "--listener=9092=localhost:9092",
        "--listener=29092=kafkabus:9092",
        "--redis-port=6379",
    ]
    assert NOT_EXPOSED.to_options() == []


def test_clients_elsewhere_have_a_connection_string_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REDIS_PASSWORD_VARIABLE, "pass/word")
    [kafka, redis] = free_ports(2)
    exposure = Exposure.parse([f"{kafka}=kafkabus:19092"], redis)
    addresses = Addresses(tmp_path, 2, exposure)
    addresses.release()
    text = addresses.cluster.connection_string("kafkabus", exposure.listeners[0])
    assert parse_kafka_location(text, {}, str).bootstrap_servers == "kafkabus:19092,kafkabus:19093"
    assert f"redis://:pass%2Fword@kafkabus:{redis}/0" in text
    here = addresses.cluster.connection_string("kafkabus")
    assert f"@127.0.0.1:{redis}/0" in here


def test_a_taken_port_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedRuntimeError, match=f"Port {port} cannot be used: Address already in use"):
            Addresses(tmp_path, 1, Exposure((Listener(port, "localhost", port),), free_ports(1)[0]))


@pytest.mark.parametrize("password", ["two words", "tab\tbed", "pässword"])
def test_a_password_that_redis_cannot_take_is_refused_and_not_shown(
    password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REDIS_PASSWORD_VARIABLE, password)
    with pytest.raises(EmbeddedRuntimeError, match="use visible ASCII characters") as refusal:
        Addresses(tmp_path, 1, NOT_EXPOSED)
    assert password not in str(refusal.value)
