"""Killing every party of a queue under load, and counting afterwards.

``python -m tests.faults.kill --seed 7 --kills 100`` runs for as long as it takes and prints what it did. What Jepsen calls a
total queue: *lost* is what a send acknowledged and nobody ever received; *unexpected* what was received and never sent;
*again* what was delivered after its completion had returned. All three must be nothing. *Doubled* is counted: what has no key
is stored in a second partition where the first one did not answer in time, and the first may have it all the same.
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
from collections import Counter, defaultdict
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
STEP = 20_000
"""How much, in bytes, senders write down for some 500 messages."""
PATIENCE = 120.0
"""For how long, in seconds, they may take for that, whoever was killed; and how long what is left may keep away."""
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
        again: Messages that were delivered after their completion had returned, with their sequence numbers.
        doubled: Messages that were stored more than once, with their sequence numbers.
    """

    kills: dict[str, int]
    sent: int
    received: int
    redelivered: int
    lost: list[str]
    unexpected: list[str]
    again: list[str]
    doubled: list[list[str]]

    @property
    def fine(self) -> bool:
        """Whether nothing is lost, made up or delivered again."""
        return not (self.lost or self.unexpected or self.again)

    def __str__(self) -> str:
        """The counts, with the first few of each that must be nothing."""
        return (
            f"killed: {self.kills}\nsent {self.sent}, received {self.received}, redelivered {self.redelivered}\n"
            f"lost {len(self.lost)} {self.lost[:10]}\nunexpected {len(self.unexpected)} {self.unexpected[:10]}\n"
            f"delivered after completion {len(self.again)} {self.again[:10]}\n"
            f"stored twice {len(self.doubled)} {self.doubled[:10]}"
        )


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
    """Receive what is left, until the queue says that it is empty, or nothing came for as long as patience lasts."""
    copies: list[str] = []
    deadline = time.monotonic() + PATIENCE
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        ServiceBusAdministrationClient.from_connection_string(connection_string) as administration,
    ):
        receiver = client.get_queue_receiver(QUEUE)
        while time.monotonic() < deadline:
            try:
                messages = receiver.receive_messages(500, max_wait_time=1)
                # Before they are settled: a settlement that fails may have been done for some of them.
                copies += (f"{message}@{message.sequence_number}" for message in messages)
                if messages:
                    deadline = time.monotonic() + PATIENCE
                    receiver.complete_messages(messages)
                elif not administration.get_queue_runtime_properties(QUEUE).active_message_count:
                    break
            except ServiceBusError:
                continue
    return copies


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
    parties: list[Party] = []
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
        for party in parties:
            party.kill()
        shutil.rmtree(data, ignore_errors=True)


def _count(kills: Counter[str], parties: list[Party], left: list[str]) -> Count:
    sends = events([file for party in parties if party.role == "send" for file in party.files])
    receives = events([file for party in parties if party.role == "receive" for file in party.files])
    tried = {body for event, bodies in sends if event == "try" for body in bodies}
    sent = {body for event, bodies in sends if event == "sent" for body in bodies}
    deliveries = Counter(copy for event, copies in receives if event == "got" for copy in copies)
    done = Counter(copy for event, copies in receives if event == "done" for copy in copies)
    deliveries.update(left)
    stored: defaultdict[str, list[str]] = defaultdict(list)
    for copy in deliveries:
        stored[copy.partition("@")[0]].append(copy)
    return Count(
        kills=dict(kills),
        sent=len(sent),
        received=len(deliveries),
        redelivered=deliveries.total() - len(deliveries),
        lost=sorted(sent - stored.keys()),
        unexpected=sorted(stored.keys() - tried),
        # Completed twice, or left in the queue after a completion that returned.
        again=sorted({copy for copy, count in done.items() if count > 1} | (done.keys() & set(left))),
        doubled=sorted(copies for copies in stored.values() if len(copies) > 1),
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
    say(str(count))
    sys.exit(not count.fine)


if __name__ == "__main__":
    main()
