"""Killing every party of a queue under load, and counting afterwards.

``python -m tests.faults.kill --seed 7 --kills 100`` runs for as long as it takes and prints what it did. What Jepsen calls a
total queue: *lost* is what a send acknowledged and nobody ever received; *unexpected* what was received and never sent;
*again* what was delivered after its completion had returned. All three must be nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from kafkabus import ServiceBusClient
from kafkabus.embedded import EmbeddedRuntime
from kafkabus.exceptions import ServiceBusError
from kafkabus.management import ServiceBusAdministrationClient
from tests.integration.embedded.serving import kill
from tests.servers import scratch_folder

QUEUE = "killed"
LOCK = timedelta(seconds=3)
PAUSE = 4.0
"""How long, in seconds, a paused receiver sleeps: longer than its locks last."""
QUIET = 12.0
"""After how many seconds without a message nothing more is expected: locks have expired by then."""
STEP = 20_000
"""How much, in bytes, senders write down for some 500 messages."""
PATIENCE = 120.0
"""For how long, in seconds, they may take for that, whoever was killed."""
PARTIES = ("receiver", "sender", "broker-1", "redis", "upkeep", "pause")


@dataclass
class Party:
    """A process that sends or receives, started anew whenever it was killed."""

    role: str
    number: int
    folder: Path
    connection_string: str
    life: int = 0
    process: subprocess.Popen[bytes] | None = None
    files: list[Path] = field(default_factory=list)

    def start(self) -> None:
        """Start it, as somebody new."""
        self.life += 1
        name = f"{self.role}{self.number}.{self.life}"
        self.files.append(self.folder / name)
        with self.files[-1].open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.party", self.role, self.connection_string, QUEUE, name],
                stdout=output,
                stderr=subprocess.DEVNULL,
            )

    def kill(self) -> None:
        """End it as abruptly as can be."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Count:
    """What became of all messages.

    Attributes:
        kills: How often each party was killed.
        sent: How many messages were acknowledged.
        received: How many were received.
        redelivered: How many deliveries came on top of that.
        lost: Messages that were acknowledged and never received.
        unexpected: Messages that were received and never sent.
        again: Messages that were delivered after their completion had returned.
    """

    kills: dict[str, int]
    sent: int
    received: int
    redelivered: int
    lost: list[str]
    unexpected: list[str]
    again: list[str]


def events(files: list[Path]) -> list[tuple[str, list[str]]]:
    """What was written down, but for a last line that was cut off."""
    found: list[tuple[str, list[str]]] = []
    for file in files:
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                event, *words = line.split()
                found.append((event, words))
    return found


def drain(connection_string: str) -> list[str]:
    """Receive what is left, until nothing comes for longer than a lock lasts."""
    bodies: list[str] = []
    deadline = time.monotonic() + QUIET
    with ServiceBusClient.from_connection_string(connection_string) as client:
        receiver = client.get_queue_receiver(QUEUE)
        while time.monotonic() < deadline:
            try:
                messages = receiver.receive_messages(500, max_wait_time=1)
                receiver.complete_messages(messages)
            except ServiceBusError:
                continue
            if messages:
                bodies += map(str, messages)
                deadline = time.monotonic() + QUIET
    return bodies


def strike(party: str, chance: random.Random, runtime: EmbeddedRuntime, parties: list[Party]) -> bool:
    """Kill a party; False where it does not run at the moment."""
    if party in {"sender", "receiver"}:
        role = "send" if party == "sender" else "receive"
        victim = chance.choice([one for one in parties if one.role == role])
        victim.kill()
        victim.start()
    elif party == "pause":
        victim = chance.choice([one for one in parties if one.role == "receive"])
        if victim.process is None:
            return False
        victim.process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE)
        victim.process.send_signal(signal.SIGCONT)
    else:
        pid = runtime.processes.get(party)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            kill(pid)
    return True


def go_on(parties: list[Party]) -> None:
    """Wait until senders have done more, so that parties are killed under load on a slow machine too.

    Raises:
        TimeoutError: They do not get on.
    """
    files = [file for party in parties if party.role == "send" for file in party.files]
    before, deadline = sum(file.stat().st_size for file in files), time.monotonic() + PATIENCE
    while sum(file.stat().st_size for file in files) < before + STEP:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody could send for {PATIENCE:.0f} s")
        time.sleep(0.05)


def run(seed: int, kills: int) -> Count:
    """Kill parties in an order that the seed decides, and count."""
    chance, data = random.Random(seed), scratch_folder()
    logs = data / "parties"
    counts: Counter[str] = Counter()
    try:
        with EmbeddedRuntime(data / "runtime", namespace="kill") as runtime:
            logs.mkdir(parents=True)
            with ServiceBusAdministrationClient.from_connection_string(runtime.connection_string) as administration:
                administration.create_queue(
                    QUEUE, enable_partitioning=True, lock_duration=LOCK, max_delivery_count=2000
                )
            parties = [
                Party(role, number, logs, runtime.connection_string)
                for role in ("send", "receive")
                for number in (1, 2)
            ]
            for party in parties:
                party.start()
            order = [PARTIES[index % len(PARTIES)] for index in range(kills)]
            chance.shuffle(order)
            for which in order:
                if chance.random() < 0.5:
                    go_on(parties)
                time.sleep(chance.uniform(0.2, 2.0))
                while not strike(which, chance, runtime, parties):
                    time.sleep(0.1)
                counts[which] += 1
            time.sleep(2.0)
            for party in parties:
                if party.role == "send":
                    party.kill()
            time.sleep(2.0)
            for party in parties:
                party.kill()
            left = drain(runtime.connection_string)
        return _count(counts, parties, left)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _count(kills: Counter[str], parties: list[Party], left: list[str]) -> Count:
    sends = events([file for party in parties if party.role == "send" for file in party.files])
    receives = events([file for party in parties if party.role == "receive" for file in party.files])
    tried = {body for event, bodies in sends if event == "try" for body in bodies}
    sent = {body for event, bodies in sends if event == "sent" for body in bodies}
    deliveries = Counter(body for event, bodies in receives if event == "got" for body in bodies)
    done = Counter(body for event, bodies in receives if event == "done" for body in bodies)
    deliveries.update(left)
    return Count(
        kills=dict(kills),
        sent=len(sent),
        received=len(deliveries),
        redelivered=deliveries.total() - len(deliveries),
        lost=sorted(sent - deliveries.keys()),
        unexpected=sorted(deliveries.keys() - tried),
        # Completed twice, or left in the queue after a completion that returned.
        again=sorted({body for body, count in done.items() if count > 1} | (done.keys() & set(left))),
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--kills", type=int, default=60)
    options = parser.parse_args()
    say = Console(highlight=False, soft_wrap=True).print
    say(f"seed {options.seed}, {options.kills} kills")
    count = run(options.seed, options.kills)
    say(f"killed: {count.kills}")
    say(f"sent {count.sent}, received {count.received}, redelivered {count.redelivered}")
    say(f"lost {len(count.lost)} {count.lost[:10]}")
    say(f"unexpected {len(count.unexpected)} {count.unexpected[:10]}")
    say(f"delivered after completion {len(count.again)} {count.again[:10]}")
    sys.exit(bool(count.lost or count.unexpected or count.again))


if __name__ == "__main__":
    main()
