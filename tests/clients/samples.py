"""Run Microsoft's samples for Python, as azure-servicebus brings them, with a gateway: ``python -m tests.clients.samples``.

They connect over TLS, to the ports that cannot be changed (5671, and 443 for the administration), and ask for a token at the
address in ``IDENTITY_ENDPOINT``, as on Azure. So no line of them is changed; needs root for port 443.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from typing_extensions import override

from kafkabus import ServiceBusClient, ServiceBusMessage
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE
from tests.clients.programs import home
from tests.servers import scratch_folder
from tools.run_samples import VERSION, fetch

HOST = "localhost"
PATIENCE_S = 600.0
"""How long, in seconds, a sample may take: some sleep for minutes."""
WATCHED_S = 30.0
"""For how long, in seconds, a sample runs that never ends by itself."""
AT_ONCE = 12
ENDLESS = {"failure_and_recovery", "receive_iterator_queue", "receive_iterator_queue_async"}
"""Samples that receive until they are stopped."""
UNSUPPORTED = {
    **dict.fromkeys(("proxy", "proxy_async"), "needs a proxy with a password, and WebSockets"),
    **dict.fromkeys(
        ("connection_to_custom_endpoint_address", "connection_to_custom_endpoint_address_async"),
        "has a placeholder in place of an address",
    ),
    **dict.fromkeys(
        ("client_identity_authentication", "client_identity_authentication_async"),
        "asks Microsoft for a token",
    ),
}
"""Samples that cannot run here, with the reason."""
_FAILED = re.compile(r"^Traceback|^[\w.]*(?:Error|Exception)\b", re.MULTILINE)
_QUEUE_MESSAGES = 3


class Outcome(NamedTuple):
    """How a sample ended.

    Attributes:
        name: Its file's name, without the ending.
        passed: Whether it did what it does on Azure.
        words: The last line that it printed, or what went wrong.
    """

    name: str
    passed: bool
    words: str


def install() -> tuple[Path, Path]:
    """Install azure-servicebus, its samples and what they import; return the interpreter, and the samples' folder."""
    folder = home() / f"samples-{VERSION}"
    interpreter, done = folder / "venv" / "bin" / "python", folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder / "venv", with_pip=True)
        packages = (f"azure-servicebus=={VERSION}", "azure-identity", "azure-core[aio]==1.41.0")
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *packages], check=True)
        fetch(folder)
        done.touch()
    return interpreter, next(folder.glob("azure_servicebus-*/samples"))


@contextmanager
def identity() -> Generator[str]:
    """Give a token to any client, as Azure does to its own machines; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            later = int(time.time()) + 86_400
            token = {"access_token": "a.token", "expires_on": str(later), "resource": "any", "token_type": "Bearer"}
            body = json.dumps(token).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()


@contextmanager
def gateway(connection_string: str, folder: Path, interpreter: Path) -> Generator[dict[str, str]]:
    """Run a gateway with TLS, whose authority the samples' interpreter trusts; yield the variables that this takes as well."""
    kafkabus = [sys.executable, "-m", "kafkabus.cli"]
    subprocess.run([*kafkabus, "certificate", str(folder), "--host", HOST], check=True, capture_output=True)
    bundle = subprocess.run([interpreter, "-m", "certifi"], check=True, capture_output=True, text=True).stdout.strip()
    trusted = Path(bundle).read_text()
    authority = (folder / "ca.pem").read_text()
    Path(bundle).write_text(trusted + "\n" + authority)
    ports = ("--amqp-port", "off", "--tls-port", "5671", "--http-port", "off", "--https-port", "443")
    files = ("--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server-key.pem"))
    environment = {**os.environ, CONNECTION_STRING_VARIABLE: connection_string}
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen([*kafkabus, "gateway", *ports, *files], env=environment, stdout=log, stderr=log)
        try:
            _await_port(process, 5671)
            yield {"SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": bundle}
        finally:
            process.terminate()
            process.wait()
            Path(bundle).write_text(trusted)


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    while process.poll() is None:
        try:
            socket.create_connection((HOST, port)).close()
        except OSError:  # noqa: PERF203 - it is tried again
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the gateway has ended")


def prepare(administration: ServiceBusAdministrationClient, client: ServiceBusClient, name: str) -> dict[str, str]:
    """Create the entities of a sample, with a few messages; return its environment."""
    queue, sessions, topic = f"{name}-queue", f"{name}-sessions", f"{name}-topic"
    administration.create_queue(queue, enable_partitioning=True, lock_duration=timedelta(seconds=30))
    administration.create_queue(
        sessions, enable_partitioning=True, requires_session=True, lock_duration=timedelta(seconds=30)
    )
    administration.create_topic(topic, enable_partitioning=True)
    administration.create_subscription(topic, "all", requires_session=name.startswith("list_sessions"))
    for entity, messages in {
        queue: [ServiceBusMessage(f"message {number}") for number in range(_QUEUE_MESSAGES)],
        topic: [ServiceBusMessage(f"message {number}", session_id="one") for number in range(_QUEUE_MESSAGES)],
    }.items():
        with client.get_queue_sender(entity) as sender:
            if name.startswith(("receive", "authenticate", "list")):
                sender.send_messages(messages)
    return {
        "SERVICEBUS_QUEUE_NAME": queue,
        "SERVICEBUS_SESSION_QUEUE_NAME": sessions,
        "SERVICEBUS_TOPIC_NAME": topic,
        "SERVICEBUS_SUBSCRIPTION_NAME": "all",
        "SERVICEBUS_SESSION_ID": "one",
    }


def run(interpreter: Path, sample: Path, environment: dict[str, str]) -> Outcome:
    """Run a sample to its end, or for as long as one that has none is watched."""
    name = sample.stem
    patience = WATCHED_S if name in ENDLESS else PATIENCE_S
    process = subprocess.Popen(
        [interpreter, "-u", str(sample)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=patience)
        ended = True
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        ended = False
    lines = output.strip().splitlines() or [""]
    failed = _FAILED.search(output)
    if failed or (ended and process.returncode):
        return Outcome(name, False, output[failed.start() if failed else 0 :][-1500:])
    if name in ENDLESS:
        return Outcome(name, not ended and len(lines) >= _QUEUE_MESSAGES, f"{lines[-1]} (receives until it is stopped)")
    return Outcome(name, ended, lines[-1] if ended else f"did not end; last line: {lines[-1]}")


def run_all(names: Sequence[str] = ()) -> list[Outcome]:
    """Run all samples, or some, several at a time."""
    interpreter, folder = install()
    samples = sorted(one for one in folder.glob("*/*.py") if not names or one.stem in names)
    data = scratch_folder()
    try:
        with (
            EmbeddedRuntime(data / "servers") as runtime,
            identity() as endpoint,
            gateway(runtime.connection_string, data / "gateway", interpreter) as trust,
            ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration,
            ServiceBusClient.from_connection_string(runtime.connection_string) as client,
            ThreadPoolExecutor(AT_ONCE) as pool,
        ):
            administration.create_namespace("Premium", 2)
            common = {
                **trust,
                "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": HOST,
                "SERVICEBUS_CONNECTION_STR": f"Endpoint=sb://{HOST}/;SharedAccessKeyName=any;SharedAccessKey=any",
                "SERVICEBUS_SAS_POLICY": "any",
                "SERVICEBUS_SAS_KEY": "any",
                "IDENTITY_ENDPOINT": endpoint,
                "IDENTITY_HEADER": "any",
            }
            runs = [
                pool.submit(run, interpreter, one, {**common, **prepare(administration, client, one.stem)})
                for one in samples
            ]
            return [one.result() for one in runs]
    finally:
        shutil.rmtree(data, ignore_errors=True)


def main() -> None:
    """Run all samples, or those that are named, and print a table."""
    say = Console(highlight=False, soft_wrap=True, markup=False).print
    outcomes = run_all(sys.argv[1:])
    for outcome in outcomes:
        say(f"{'passed' if outcome.passed else 'FAILED'}  {outcome.name}: {outcome.words}")
    say(f"{sum(outcome.passed for outcome in outcomes)} of {len(outcomes)} samples pass")


if __name__ == "__main__":
    main()
