"""Run Microsoft's samples of azure.servicebus with kafkabus in its place, and print the result of each.

Only the name of the imported package is changed in a sample; environment variables, which the samples read, name the
namespace. Each sample has its own namespace with its own entities. The samples come from azure-servicebus's source
distribution, and are unpacked into a scratch folder.

Usage:
    python -m tools.run_samples [WORDS in the samples' paths]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from concurrent.futures import ThreadPoolExecutor
from itertools import count, repeat
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import ServiceBusAdministrationClient

VERSION = "7.15.0"
ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("azure-core", "azure-identity", "aiohttp")
"""Packages that the samples import besides azure.servicebus."""
SECONDS = 90
"""How long a sample may run, in seconds; some run for ever."""
AT_ONCE = 3
TRACEBACK = "Traceback (most recent call last)"
MESSAGES = 12
"""The number of messages in each queue at first."""


class Outcome(NamedTuple):
    """The result of a sample.

    Attributes:
        sample: The sample's path below the folder of samples.
        verdict: ``ran``, ``stopped`` (after ``SECONDS`` without an error) or ``failed``.
        why: The last line of the sample's error.
    """

    sample: str
    verdict: str
    why: str = ""


def fetch(folder: Path) -> Path:
    """Download the samples and return their folder."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--dest",
        str(folder),
    ]
    subprocess.run([*command, f"azure-servicebus=={VERSION}"], check=True)
    (archive,) = folder.glob("azure_servicebus-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / "samples"


def python_for(folder: Path) -> Path:
    """Return a Python that has kafkabus and the packages that the samples import."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pins, "--editable", str(ROOT), *NEEDED], check=True)
    return python


def prepare(connection_string: str, *, sessions: bool) -> None:
    """Create the entities that samples use, some with messages; the subscription can require sessions."""
    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
        ServiceBusClient.from_connection_string(connection_string) as client,
    ):
        administration.create_queue("queue")
        administration.create_queue("sessions", requires_session=True)
        administration.create_topic("topic")
        administration.create_subscription("topic", "subscription", requires_session=sessions)
        for sender in (client.get_queue_sender("queue"), client.get_topic_sender("topic")):
            sender.send_messages([ServiceBusMessage(f"waiting {number}") for number in range(MESSAGES)])
        client.get_queue_sender("sessions").send_messages(
            [ServiceBusMessage(f"waiting {number}", session_id="session") for number in range(MESSAGES)]
        )


def run(sample: Path, samples: Path, python: Path, runtime: EmbeddedRuntime, number: int) -> Outcome:
    """Run a sample in its own namespace."""
    name, namespace = str(sample.relative_to(samples)), f"sample{number}"
    host = f"{namespace}.localhost"
    connection_string = re.sub(r"sb://[^/;]*", f"sb://{host}", runtime.connection_string)
    prepare(connection_string, sessions="list_sessions" in name)
    changed = sample.with_name(f"{sample.stem}_changed.py")
    changed.write_text(re.sub(r"\bazure\.servicebus\b", "kafkabus", sample.read_text()))
    settings = {
        "SERVICEBUS_CONNECTION_STR": connection_string,
        "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": host,
        "SERVICEBUS_QUEUE_NAME": "queue",
        "SERVICEBUS_SESSION_QUEUE_NAME": "sessions",
        "SERVICEBUS_SESSION_ID": "session",
        "SERVICEBUS_TOPIC_NAME": "topic",
        "SERVICEBUS_SUBSCRIPTION_NAME": "subscription",
        "SERVICEBUS_SAS_POLICY": "policy",
        "SERVICEBUS_SAS_KEY": "key",
        "KAFKABUS_BOOTSTRAP_SERVERS": runtime.bootstrap_servers,
        "KAFKABUS_REDIS_URL": runtime.redis_url,
    }
    upkeep = subprocess.Popen(
        [sys.executable, "-m", "kafkabus.upkeep"],
        env={**os.environ, "KAFKABUS_CONNECTION_STRING": connection_string},
        stderr=subprocess.DEVNULL,
    )
    try:
        done = subprocess.run(
            [python, changed],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        said, verdict = done.stderr, "failed" if done.returncode or TRACEBACK in done.stderr else "ran"
    except subprocess.TimeoutExpired as ended:
        said = (ended.stderr or b"").decode(errors="replace")
        verdict = "failed" if TRACEBACK in said else "stopped"
    finally:
        upkeep.terminate()
        upkeep.wait()
    lines = said.strip().splitlines()
    return Outcome(name, verdict, lines[-1] if lines and verdict == "failed" else "")


def main() -> None:
    """Run the command line."""
    words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch, EmbeddedRuntime(namespace="samples") as runtime:
        samples = fetch(Path(scratch))
        python = python_for(Path(scratch) / "venv")
        chosen = [
            path for path in sorted(samples.rglob("*.py")) if not words or any(word in str(path) for word in words)
        ]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(run, chosen, repeat(samples), repeat(python), repeat(runtime), count()))
    table = Table(title=f"azure-servicebus {VERSION}")
    for column in ("sample", "outcome", "why"):
        table.add_column(column)
    for outcome in outcomes:
        table.add_row(*outcome)
    console = Console(width=160, highlight=False)
    console.print(table)
    console.print(f"{sum(one.verdict != 'failed' for one in outcomes)} of {len(outcomes)} run")


if __name__ == "__main__":
    main()
