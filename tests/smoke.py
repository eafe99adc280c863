"""A smoke test of an installed kafkabus, for an environment that has nothing else: ``python -I smoke.py VERSION``.

It imports nothing of this repository, needs no pytest, and starts its own Kafka and Redis.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import kafkabus
from kafkabus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus.testing import InMemoryNamespace

SCRIPT = str(Path(sys.executable).with_name("kafkabus"))


def main(version: str) -> None:
    """Run all of it."""
    assert Path(kafkabus.__file__).is_relative_to(sys.prefix), f"{kafkabus.__file__} is not the installed one"
    assert kafkabus.__version__ == version, kafkabus.__version__
    with InMemoryNamespace() as namespace:
        use(namespace.connection_string)
    with tempfile.TemporaryDirectory(prefix="kafkabus-smoke-") as folder:
        run_commands(version, {**os.environ, "KAFKABUS_DATA": folder})
    import_spark()


def use(connection_string: str) -> None:
    """Send to a queue, a session and a topic, and receive."""
    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
        ServiceBusClient.from_connection_string(connection_string) as client,
    ):
        administration.create_queue("orders", enable_partitioning=True)
        administration.create_queue("sessions", requires_session=True)
        administration.create_topic("news")
        administration.create_subscription("news", "audit")
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("good"), ServiceBusMessage("bad")])
        with client.get_queue_receiver("orders") as receiver:
            good, bad = receiver.receive_messages(2, max_wait_time=60)
            receiver.complete_message(good)
            receiver.dead_letter_message(bad, reason="Bad")
        with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
            (letter,) = receiver.receive_messages(1, max_wait_time=60)
            assert (str(letter), letter.dead_letter_reason) == ("bad", "Bad")
            receiver.complete_message(letter)
        with client.get_queue_sender("sessions") as sender:
            sender.send_messages(ServiceBusMessage("first", session_id="s"))
        with client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as receiver:
            assert [str(one) for one in receiver.receive_messages(1, max_wait_time=60)] == ["first"]
        with client.get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("headline"))
        with client.get_subscription_receiver("news", "audit") as receiver:
            (headline,) = receiver.receive_messages(1, max_wait_time=60)
            assert str(headline) == "headline"
            receiver.complete_message(headline)


def run_commands(version: str, environment: dict[str, str]) -> None:
    """Use the command line, and a namespace that it starts."""

    def run(*arguments: str) -> str:
        return subprocess.run(
            [SCRIPT, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
        ).stdout

    assert run("--version") == f"kafkabus {version}\n"
    try:
        use(run("up", "--detach").strip())
        run("send", "orders", "hello")
        assert run("receive", "orders") == "hello\n"
    finally:
        run("down")


def import_spark() -> None:
    """Import Spark's half if Spark is there; else see that it says what is missing."""
    missing = ""
    try:
        importlib.import_module("kafkabus_spark")
    except ModuleNotFoundError as error:
        missing = str(error)
    assert ("kafkabus[spark]" in missing) == (importlib.util.find_spec("pyspark") is None), missing


if __name__ == "__main__":
    main(sys.argv[1])
