"""The program as a user or a script runs it, on a separate namespace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from kafkabus import ServiceBusClient
from kafkabus._ledger.keys import upkeep_key
from kafkabus.exceptions import MessageLockLostError
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.names import EntityPath, topic_name
from tests.ports import free_ports
from tests.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

PROGRAM = [sys.executable, "-m", "kafkabus.cli"]
PATIENCE_S = 120.0


def runs(pid: int) -> bool:
    """Return whether a process runs; a process that ended and was not reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Namespace:
    """A namespace that ``kafkabus up`` runs, and the program used on it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.redis_url = ""
        self.administration: ServiceBusAdministrationClient | None = None
        self.started: list[subprocess.Popen[str]] = []
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKABUS_CONN")}
        self.environment |= {"COLUMNS": "80", "TERM": "dumb"}

    def run(self, *arguments: str, text: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command; it must end with that exit status."""
        with tempfile.TemporaryDirectory(dir=self.data.parent) as folder:
            result = run_command(arguments, self.environment, text, Path(folder), PATIENCE_S)
        assert result.returncode == code, (arguments, result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        self._expect_no_password(result.stderr)
        if arguments[0] not in {"up", "status"}:
            self._expect_no_password(result.stdout)
        return result

    def _expect_no_password(self, text: str) -> None:
        password = urlsplit(self.redis_url).password
        assert password is None or password not in text

    def json(self, *arguments: str) -> Any:
        """Run the program and return its JSON document."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def start(
        self, *arguments: str, output: IO[str] | int = subprocess.PIPE, errors: IO[str] | int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Start the program and leave it running."""
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            text=True,
        )
        self.started.append(process)
        return process

    def active(self, queue: str) -> int:
        """Return how many messages a queue has."""
        assert self.administration is not None
        return self.administration.get_queue_runtime_properties(queue).active_message_count

    def stored(self, queue: str) -> int:
        """Return how many records the log of a plain queue has ever had, which is known sooner than counts."""
        assert self.administration is not None
        context = self.administration._connections()
        return context.topics.ends(topic_name(context.settings.namespace, EntityPath(queue)), [0])[0]

    def end_what_is_left(self) -> None:
        """End the processes that a failed test left running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Generator[Namespace]:
    """A namespace that every command finds by the environment's variable; it is stopped at the end."""
    found = Namespace(tmp_path_factory.mktemp("cli") / "data")
    started = found.json("up", "--detach", "--data", str(found.data))
    try:
        assert runs(started["pid"])
        assert {"bootstrap_servers", "redis_url"} <= started.keys()
        found.redis_url = started["redis_url"]
        connection_string = found.environment["KAFKABUS_CONNECTION_STRING"] = started["connection_string"]
        with ServiceBusAdministrationClient.from_connection_string(connection_string) as found.administration:
            yield found
    finally:
        found.end_what_is_left()
        assert "Stopped" in found.run("down", "--data", str(found.data)).stderr
    assert not runs(started["pid"])


def test_a_queue_from_creation_to_deletion(namespace: Namespace) -> None:
    """Create, send, count, receive, receive nothing, delete: the first commands of a new user."""
    namespace.run("queue", "create", "first", "--lock-duration", "30s", "--max-delivery-count", "3")
    shown = namespace.json("queue", "show", "first")
    assert (shown["lock_duration"], shown["max_delivery_count"], shown["enable_partitioning"]) == ("PT30S", 3, True)

    assert namespace.run("send", "first", "one", "two", "--partition-key", "k").stdout == "sent 2 messages to first\n"
    counts = namespace.json("stats", "first")
    assert (counts["active"], counts["dead_letter"], len(counts["partitions"])) == (2, 0, 16)

    assert namespace.run("receive", "first").stdout == "one\ntwo\n"
    assert namespace.run("receive", "first", "--wait", "0.5", code=3).stdout == ""
    assert namespace.json("stats", "first")["active"] == 0

    namespace.run("queue", "delete", "first")
    assert "there is no queue or topic 'first'" in namespace.run("queue", "show", "first", code=4).stderr


def test_lines_of_the_standard_input_are_messages(namespace: Namespace) -> None:
    """Thousands go in and come out in order on a plain queue, with any line endings."""
    namespace.run("queue", "create", "lines", "--plain")
    lines = [f"line {number}" for number in range(2345)]
    sent = namespace.run("send", "lines", text="\r\n".join(lines))
    assert sent.stdout == "sent 2345 messages to lines\n"
    assert namespace.run("receive", "lines", "--max", "2000").stdout.splitlines() == lines[:2000]
    assert namespace.run("receive", "lines", "--delete").stdout.splitlines() == lines[2000:]


def test_an_empty_input_is_an_error(namespace: Namespace, tmp_path: Path) -> None:
    """A program before this one may have failed."""
    namespace.run("queue", "create", "none", "--plain")
    (tmp_path / "empty").touch()
    assert "the standard input is empty" in namespace.run("send", "none", code=2).stderr
    assert (
        f"{tmp_path / 'empty'} is empty"
        in namespace.run("send", "none", "--file", str(tmp_path / "empty"), code=2).stderr
    )


def test_a_message_too_large_is_counted_apart(namespace: Namespace) -> None:
    """Earlier messages were sent, and the error says how many."""
    namespace.run("queue", "create", "large", "--plain")
    failed = namespace.run("send", "large", "--file", "-", text="small\n" * 3 + "x" * 300_000 + "\n", code=1)
    assert "properties included: 262144 are allowed; shorten it" in failed.stderr
    assert "batch" not in failed.stderr
    waiting = namespace.json("stats", "large")["active"]
    assert (f"({waiting} messages before it were sent)" in failed.stderr) == (waiting > 0)


def test_properties_come_out_as_json(namespace: Namespace) -> None:
    """Each line is one object, without properties that the message does not have."""
    namespace.run("queue", "create", "json")
    namespace.run("send", "json", "hällo", "--session-id", "s", "--message-id", "m", "--property", "colour=red=ish")
    message = json.loads(namespace.run("receive", "json", "--max", "1", "--json").stdout)
    assert message.items() >= {"body": "hällo", "session_id": "s", "message_id": "m", "delivery_count": 0}.items()
    assert message["application_properties"] == {"colour": "red=ish"}
    assert "subject" not in message


def test_abandoned_messages_stay_until_they_are_dead(namespace: Namespace) -> None:
    """After as many looks as it may have deliveries, a message moves to the dead-letter queue and is found there."""
    namespace.run("queue", "create", "looked-at", "--max-delivery-count", "1")
    namespace.run("send", "looked-at", "poison")
    assert namespace.run("receive", "looked-at", "--abandon").stdout == "poison\n"
    namespace.run("receive", "looked-at", "--wait", "1", code=3)
    counts = namespace.json("stats", "looked-at")
    assert (counts["active"], counts["dead_letter"]) == (0, 1)
    dead = json.loads(namespace.run("receive", "looked-at", "--dead-letter", "--json").stdout)
    assert (dead["body"], dead["dead_letter_reason"]) == ("poison", "MaxDeliveryCountExceeded")


def test_settings_can_be_changed(namespace: Namespace) -> None:
    """The given settings change, the others stay; the error names a setting that breaks a rule."""
    namespace.run("queue", "create", "changed", "--time-to-live", "1h", "--dead-letter-expired")
    namespace.run("queue", "update", "changed", "--auto-delete-on-idle", "90d")
    assert namespace.json("queue", "show", "changed")["auto_delete_on_idle"] == "P90D"
    told = namespace.run("queue", "update", "changed", "--lock-duration", "7s", "--status", "SendDisabled").stdout
    assert told == "updated queue changed: lock_duration, status\n"
    shown = namespace.json("queue", "show", "changed")
    assert (shown["lock_duration"], shown["status"], shown["default_message_time_to_live"]) == (
        "PT7S",
        "SendDisabled",
        "PT1H",
    )
    assert shown["dead_lettering_on_message_expiration"] is True
    assert "SendDisabled" in namespace.run("send", "changed", "x", code=1).stderr
    assert "up to 0:05:00" in namespace.run("queue", "update", "changed", "--lock-duration", "1h", code=1).stderr
    assert "nothing to change" in namespace.run("queue", "update", "changed", code=2).stderr


def test_where_unmatched_messages_go_is_set_shown_and_removed(namespace: Namespace) -> None:
    """A destination that leads back is refused before anything is created."""
    namespace.run("queue", "create", "rest", "--plain")
    namespace.run("topic", "create", "gossip", "--plain", "--unmatched-to", "rest")
    assert namespace.json("topic", "show", "gossip")["unmatched_to"].endswith("/rest")
    namespace.run("send", "gossip", "unheard")
    assert namespace.run("receive", "rest", "-m", "1", "--wait", "30").stdout == "unheard\n"
    assert namespace.json("subscription", "list", "gossip") == []
    namespace.run("dead-letter", "list", "gossip/Subscriptions/~unmatched", "--transfer", code=3)
    told = namespace.run("topic", "update", "gossip", "--unmatched-to", "").stdout
    assert told == "updated topic gossip: unmatched_to\n"
    assert namespace.json("topic", "show", "gossip")["unmatched_to"] is None
    refused = namespace.run("topic", "update", "gossip", "--unmatched-to", "gossip", code=1).stderr
    assert "--unmatched-to='gossip': messages that no subscription wants would come back" in refused
    namespace.run("topic", "delete", "gossip", "--yes")


def test_retry_policies_are_set_shown_and_removed(namespace: Namespace) -> None:
    """Of queues and of subscriptions; a bad one is refused before anything is created."""
    namespace.run("queue", "create", "patient", "--plain", "--retry-policy", "exponential:1s:5m")
    assert namespace.json("queue", "show", "patient")["retry_policy"] == {
        "kind": "exponential",
        "delays": ["PT1S", "PT5M"],
    }
    assert "exponential:1s:5m" in namespace.run("queue", "show", "patient").stdout
    told = namespace.run("queue", "update", "patient", "--retry-policy", "list:10s,1m,10m").stdout
    assert told == "updated queue patient: retry_policy\n"
    assert "list:10s,1m,10m" in namespace.run("queue", "show", "patient").stdout
    namespace.run("queue", "update", "patient", "--retry-policy", "none")
    assert namespace.json("queue", "show", "patient")["retry_policy"] is None
    namespace.run("topic", "create", "slow", "--plain")
    namespace.run("subscription", "create", "slow", "one", "--retry-policy", "fixed:10s")
    assert "fixed:10s" in namespace.run("subscription", "show", "slow", "one").stdout
    namespace.run("subscription", "update", "slow", "one", "--retry-policy", "none")
    assert namespace.json("subscription", "show", "slow", "one")["retry_policy"] is None
    namespace.run("topic", "delete", "slow")
    refused = namespace.run("queue", "create", "hasty", "--retry-policy", "linear:1s", code=2).stderr
    assert "--retry-policy 'linear:1s' is no retry policy" in " ".join(refused.replace("│", " ").split())
    namespace.run("queue", "show", "hasty", code=4)


def test_abandoned_messages_are_postponed(namespace: Namespace) -> None:
    """Counts, peek and a message as JSON show it; others come at once."""
    namespace.run("queue", "create", "postponed", "--plain")
    namespace.run("send", "postponed", "one", "two", "three")
    assert "POSTPONED" not in namespace.run("stats", "postponed").stdout
    received = namespace.run("receive", "postponed", "--abandon", "--delay", "1h", "--max", "2")
    assert received.stdout == "one\ntwo\n"
    assert namespace.run("receive", "postponed", "--abandon", "--max", "1").stdout == "three\n"
    counts = namespace.json("stats", "postponed")
    assert (counts["active"], counts["postponed"], counts["partitions"][0]["postponed"]) == (3, 2, 2)
    assert "POSTPONED" in namespace.run("stats", "postponed").stdout
    peeked = namespace.run("peek", "postponed")
    assert peeked.stdout == "one\ntwo\nthree\n"
    assert re.search(r"^postponed: 2 of 3, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", peeked.stderr, re.MULTILINE)
    first, _, last = (json.loads(line) for line in namespace.run("peek", "postponed", "--json").stdout.splitlines())
    until = datetime.fromisoformat(first["postponed_until_utc"].replace("Z", "+00:00"))
    assert timedelta(minutes=55) < until - datetime.now(timezone.utc) < timedelta(hours=1)
    assert "postponed_until_utc" not in last
    namespace.run("queue", "create", "postponed-sessions", "--plain", "--sessions")
    namespace.run("send", "postponed-sessions", "one", "--session-id", "s")
    namespace.run("session", "receive", "postponed-sessions", "s", "--abandon", "--delay", "1h", "--max", "1")
    assert namespace.json("stats", "postponed-sessions")["postponed"] == 1
    for arguments, said in (
        (("--delay", "1h"), "--delay 1h without --abandon"),
        (("--delay", "8d", "--abandon"), "--delay 8d: a message is postponed by up to 7d"),
    ):
        refused = namespace.run("receive", "postponed", *arguments, code=2).stderr
        assert said in " ".join(refused.replace("│", " ").split())


def test_looking_takes_nothing(namespace: Namespace) -> None:
    """Users may look as often as they like, from any number on."""
    namespace.run("queue", "create", "peeked", "--plain")
    assert "no message" in namespace.run("peek", "peeked", code=3).stderr
    namespace.run("send", "peeked", "one", "two", "three")
    for _ in range(2):
        assert namespace.run("peek", "peeked").stdout == "one\ntwo\nthree\n"
    assert namespace.run("peek", "peeked", "--from", "2", "--max", "1").stdout == "two\n"
    message = json.loads(namespace.run("peek", "peeked", "--max", "1", "--json").stdout)
    assert (message["body"], message["sequence_number"], message["state"]) == ("one", 1, "active")
    assert namespace.run("receive", "peeked", "--wait", "1").stdout == "one\ntwo\nthree\n"


def test_messages_are_found_by_filter_state_and_body(namespace: Namespace) -> None:
    """A filter that cannot judge a message says so, and one that cannot be parsed is refused."""
    namespace.run("queue", "create", "searched", "--plain")
    for body, amount in (("one", "=5"), ("two", ":=5"), ("three", ":=7")):
        namespace.run("send", "searched", body, "--property", f"amount{amount}")
    found = namespace.run("peek", "searched", "--where", "amount > 4")
    assert found.stdout == "two\nthree\n"
    assert "left out, as the filter could not be evaluated: 1; the first: message 1: > does not" in found.stderr
    assert namespace.run("peek", "searched", "--where", "amount > 4", "--body", "w").stdout == "two\n"
    assert namespace.run("peek", "searched", "--state", "waiting", "--max", "1").stdout == "one\n"
    assert "no such message" in namespace.run("peek", "searched", "--state", "locked", code=3).stderr
    namespace.run("queue", "create", "searched-sessions", "--plain", "--sessions")
    for session in ("s", "t"):
        namespace.run("send", "searched-sessions", f"of {session}", "--session-id", session)
    assert namespace.run("peek", "searched-sessions", "--body", "of").stdout == "of s\nof t\n"
    assert namespace.run("peek", "searched-sessions", "--body", "of", "--session", "t").stdout == "of t\n"
    for arguments, said in (
        (("--where", "amount >"), "filter: line 1, column"),
        (("--state", "lost"), "state 'lost': choose from active, waiting, locked"),
    ):
        refused = namespace.run("peek", "searched", *arguments, code=2).stderr
        assert said in " ".join(refused.replace("│", " ").split())


def test_locks_are_listed_and_broken(namespace: Namespace) -> None:
    """Of messages and of sessions; each once."""
    namespace.run("queue", "create", "locked", "--plain")
    namespace.run("queue", "create", "locked-sessions", "--plain", "--sessions")
    assert "nothing is locked" in namespace.run("lock", "list", "locked", code=3).stderr
    namespace.run("send", "locked", "one", "two")
    namespace.run("send", "locked-sessions", "one", "--session-id", "s")
    with (
        ServiceBusClient.from_connection_string(namespace.environment["KAFKABUS_CONNECTION_STRING"]) as client,
        client.get_queue_receiver("locked", client_identifier="stuck") as receiver,
        client.get_queue_receiver("locked-sessions", session_id="s", client_identifier="slow"),
    ):
        received = receiver.receive_messages(2, max_wait_time=60)
        assert len(received) == 2
        (lock,) = namespace.json("lock", "list", "locked")
        assert (lock["sequence_numbers"], lock["client_identifier"], lock["message_count"]) == ([[1, 2]], "stuck", 2)
        assert {"locked_since_utc", "locked_until_utc"} <= lock.keys()
        shown = namespace.run("lock", "list", "locked-sessions").stdout
        assert re.search(r"^ +0 +s +slow +\d{4}-", shown.splitlines()[-1]), shown
        assert namespace.run("lock", "break", "locked", "2").stdout == "broke the lock of message 2 of locked\n"
        assert "message 2 is not locked" in namespace.run("lock", "break", "locked", "2", code=1).stderr
        assert "session 's'" in namespace.run("lock", "break", "locked-sessions", "--session", "s", "--yes").stdout
        assert "nothing is locked" in namespace.run("lock", "list", "locked-sessions", code=3).stderr
        refused = namespace.run("lock", "break", "locked", code=2).stderr
        assert "give the sequence number of a message, or --session ID" in " ".join(refused.replace("│", " ").split())
        receiver.complete_message(received[0])
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(received[1])


def test_dead_letters_are_listed_and_sent_again(namespace: Namespace) -> None:
    """They are listed with the reason. None is lost, and none is left."""
    namespace.run("queue", "create", "resent", "--max-delivery-count", "1")
    assert "no dead letter" in namespace.run("dead-letter", "list", "resent", code=3).stderr
    namespace.run("send", "resent", "one", "two", "--partition-key", "k", "--subject", "s")
    namespace.run("receive", "resent", "--abandon", "--wait", "1")
    listed = namespace.run("dead-letter", "list", "resent").stdout
    assert listed.count("MaxDeliveryCountExceeded") == 2
    assert namespace.run("dead-letter", "resubmit", "resent", "--max", "1").stdout == (
        "sent 1 message to resent again\n"
    )
    assert namespace.run("dead-letter", "resubmit", "resent").stdout == "sent 1 message to resent again\n"
    assert namespace.json("stats", "resent")["dead_letter"] == 0
    messages = [json.loads(line) for line in namespace.run("receive", "resent", "--json").stdout.splitlines()]
    assert [(one["body"], one["subject"], one["delivery_count"]) for one in messages] == [
        ("one", "s", 0),
        ("two", "s", 0),
    ]


def test_messages_are_forwarded_or_are_found_apart(namespace: Namespace) -> None:
    """They are found with the reason, and can be sent again."""
    namespace.run("queue", "create", "arrived", "--sessions")
    namespace.run("queue", "create", "onwards", "--forward-to", "arrived", "--forward-dead-letters-to", "arrived")
    shown = namespace.json("queue", "show", "onwards")
    assert shown["forward_to"] == shown["forward_dead_lettered_messages_to"]
    assert str(shown["forward_to"]).endswith("/arrived")
    namespace.run("send", "onwards", "lost")
    assert namespace.run("receive", "onwards", "--transfer-dead-letter", "--abandon", "--max", "1").stdout == "lost\n"
    assert "TRANSFER DEAD-LETTER" in namespace.run("stats", "onwards").stdout
    counts = namespace.json("stats", "onwards")
    assert (counts["active"], counts["transfer_dead_letter"]) == (0, 1)
    assert "Session ID is null" in namespace.run("dead-letter", "list", "onwards", "--transfer").stdout
    assert "choose one" in namespace.run("peek", "onwards", "--dead-letter", "--transfer-dead-letter", code=2).stderr
    assert (
        namespace.run("dead-letter", "resubmit", "onwards", "--transfer").stdout == "sent 1 message to onwards again\n"
    )
    namespace.run("queue", "update", "onwards", "--forward-to", "")
    assert namespace.json("queue", "show", "onwards")["forward_to"] is None


def test_a_purge_empties_a_queue(namespace: Namespace) -> None:
    """The command prints how many messages that were."""
    namespace.run("queue", "create", "purged")
    namespace.run("send", "purged", "x", "--count", "17")
    assert namespace.run("purge", "purged").stdout == "purged 17 messages from purged\n"
    assert namespace.json("stats", "purged")["active"] == 0


def test_a_namespace_is_of_one_tier(namespace: Namespace, tmp_path: Path) -> None:
    """The tier is given at the first start; another one is refused afterwards."""
    up = namespace.start("up", "--data", str(tmp_path), "--tier", "premium", "--partitions", "3")
    assert up.stdout is not None
    connection_string = up.stdout.readline().strip()
    there = ("--connection-string", connection_string)
    assert namespace.json(*there, "namespace", "show")["partitions"] == 3
    assert namespace.run(*there, "queue", "create", "q").stdout == "created partitioned queue q\n"
    assert len(namespace.json(*there, "stats", "q")["partitions"]) == 3
    failed = namespace.run(*there, "namespace", "create", "--tier", "Standard", code=1)
    assert "was created in tier Premium" in failed.stderr
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=PATIENCE_S)
    assert up.returncode == 130


def test_entities_of_a_file_are_created_and_changed(namespace: Namespace, tmp_path: Path) -> None:
    """The command prints what it changed, and an error the place of a mistake."""
    file = tmp_path / "entities.json"

    def write(settings: str) -> None:
        queue = f'{{"Name": "filed", "Properties": {{{settings}}}}}'
        file.write_text(f'{{"UserConfig": {{"Namespaces": [{{"Name": "any", "Queues": [{queue}]}}]}}}}')

    write('"MaxDeliveryCount": 3')
    assert namespace.run("namespace", "apply", str(file)).stdout == "created queue filed\n"
    assert "Nothing to change." in namespace.run("namespace", "apply", str(file)).stderr
    write('"MaxDeliveryCount": 4')
    assert namespace.run("namespace", "apply", str(file)).stdout == "changed queue filed: MaxDeliveryCount\n"
    write('"MaxDeliveries": 4')
    refused = namespace.run("namespace", "apply", str(file), code=1).stderr
    assert f"error: {file}: UserConfig.Namespaces[0].Queues[0].Properties: there is no setting" in refused


def test_looking_after_a_namespace_ends_with_ctrl_c(namespace: Namespace) -> None:
    """The command logs that it begins and that it ends."""
    serving = namespace.start("serve")
    assert serving.stderr is not None
    assert "serve_started namespace=kafkabus " in serving.stderr.readline()
    # The first heartbeat of the process shows that it took the signals over.
    with redis.Redis.from_url(namespace.redis_url) as store:
        deadline = time.monotonic() + PATIENCE_S
        while store.zcard(upkeep_key("kafkabus")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    serving.send_signal(signal.SIGINT)
    told = serving.communicate(timeout=PATIENCE_S)[1]
    assert (serving.returncode, "serve_ended namespace=kafkabus" in told, "Traceback" in told) == (0, True, False)


def test_a_mistyped_queue_is_recognised(namespace: Namespace) -> None:
    """The error suggests the similar name, for sending and for receiving."""
    namespace.run("queue", "create", "payments")
    for command in (["send", "paymnets", "x"], ["receive", "paymnets"], ["stats", "paymnets"]):
        assert "did you mean 'payments'?" in namespace.run(*command, code=4).stderr
    assert "there is a queue 'payments' already" in namespace.run("queue", "create", "payments", code=1).stderr
    assert [queue["name"] for queue in namespace.json("queue", "list")].count("payments") == 1


def test_a_closed_output_is_no_crash(namespace: Namespace) -> None:
    """If the reader goes away, the program ends quietly. Messages that did not fit into the pipe are still there."""
    namespace.run("queue", "create", "piped")
    namespace.run("send", "piped", "x" * 1000, "--count", "2000")
    receiving = namespace.start("receive", "piped")
    assert receiving.stdout is not None
    assert receiving.stderr is not None
    with receiving.stdout as output:
        assert output.readline() == "x" * 1000 + "\n"
    assert receiving.wait(PATIENCE_S) == 141
    with receiving.stderr as complaints:
        assert complaints.read() == ""
    left = namespace.run("receive", "piped").stdout.splitlines()
    # A pipe holds 64 KiB, and the reader took at most one buffer of 8 KiB out of it.
    assert 2000 - 73 <= len(left) <= 2000


def test_following_ends_with_ctrl_c(namespace: Namespace) -> None:
    """The command prints messages that come while it runs, exits with 130 and shows no traceback."""
    namespace.run("queue", "create", "followed")
    following = namespace.start("receive", "followed", "--follow")
    assert following.stdout is not None
    for body in ("now", "then"):
        namespace.run("send", "followed", body)
        assert following.stdout.readline() == f"{body}\n"
    # The next step settles the printed messages; then it waits.
    while namespace.json("stats", "followed")["active"]:
        assert following.poll() is None
    following.send_signal(signal.SIGINT)
    assert following.communicate(timeout=PATIENCE_S) == ("", "")
    assert following.returncode == 130


def test_up_stays_until_it_is_told_to_stop(namespace: Namespace, tmp_path: Path) -> None:
    """In the foreground its first line is the connection string; Ctrl-C stops Kafka and Redis before it ends."""
    entities = tmp_path / "entities.json"
    entities.write_text('{"UserConfig": {"Namespaces": [{"Name": "fore", "Queues": [{"Name": "orders"}]}]}}')
    policies = tmp_path / "policies.toml"
    policies.write_text('[[policies]]\nname = "all"\nprimary-key = "a-key-of-a-test"\nrights = ["Manage"]\n')
    http, *_ = free_ports(1)
    options = ("--entities", str(entities), "--policies", str(policies), "--http-port", str(http))
    up = namespace.start("up", "--data", str(tmp_path), "--namespace", "fore", *options)
    assert up.stdout is not None
    assert up.stdout.readline().startswith("Endpoint=sb://fore.localhost/;")
    running = namespace.json("status", "--data", str(tmp_path))
    pid = running["pid"]
    assert "orders" in namespace.run("-c", running["connection_string"], "queue", "list").stdout
    assert "already" in namespace.run("up", "--data", str(tmp_path), code=1).stderr
    assert "SharedAccessKeyName=<policy>" in running["amqp_connection_string"]
    assert status_without_key(http) == 401

    up.send_signal(signal.SIGINT)
    rest, told = up.communicate(timeout=PATIENCE_S)
    assert (up.returncode, rest) == (130, "")
    assert "Stopped." in told
    assert "Traceback" not in told
    assert not runs(pid)


def status_without_key(port: int) -> int:
    """Return the administration's answer to a request without a key; wait until it listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/$Resources/Queues")
            return connection.getresponse().status
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        finally:
            connection.close()


def test_policies_need_a_gateway(namespace: Namespace, tmp_path: Path) -> None:
    """And a file that can be read; nothing is started otherwise."""
    file = tmp_path / "policies.toml"
    file.write_text("[[policies]]\n")
    arguments = ("up", "--data", str(tmp_path / "data"), "--policies", str(file))
    assert "there is no gateway" in namespace.run(*arguments, "--amqp-port", "off", code=2).stderr
    assert "policies.toml" in namespace.run(*arguments, code=1).stderr
    assert not (tmp_path / "data").exists()


def test_down_ends_an_up_in_the_foreground(namespace: Namespace, tmp_path: Path) -> None:
    """It reports that another command stopped it; its warning names the addresses that are open."""
    kafka, redis, amqp, http = free_ports(4)
    ports = ("--redis-port", str(redis), "--amqp-port", str(amqp), "--http-port", str(http))
    up = namespace.start("up", "--data", str(tmp_path), "--listener", f"{kafka}=localhost", *ports)
    assert up.stdout is not None
    assert up.stdout.readline().startswith("Endpoint=")
    assert "Stopped" in namespace.run("down", "--data", str(tmp_path)).stderr
    told = up.communicate(timeout=PATIENCE_S)[1]
    assert "Stopped by another command." in told
    [warning] = [line for line in told.splitlines() if line.startswith("Warning:")]
    for port, name in ((amqp, "AMQP"), (http, "administration"), (kafka, "Kafka")):
        assert f"0.0.0.0:{port} ({name})" in warning
    assert up.returncode == 0


def test_messages_are_scheduled_and_cancelled(namespace: Namespace) -> None:
    """The time is given, or how long it is until then."""
    namespace.run("queue", "create", "later", "--plain")
    numbers = namespace.json("schedule", "later", "a", "b", "--in", "1h", "--session-id", "s")
    (number,) = namespace.run("schedule", "later", "c", "--at", "2020-01-31T12:00:00+01:00").stdout.split()
    assert namespace.run("receive", "later", "--wait", "20", "--max", "1", "--complete").stdout == "c\n"
    numbers += namespace.json("schedule", "later", "d", "--at", "in 5 minutes")
    counts = namespace.json("stats", "later")
    assert (counts["active"], counts["scheduled"]) == (0, 3)
    assert "cancelled 3 messages" in namespace.run("cancel", "later", *map(str, numbers)).stdout
    assert f"[{number}]" in namespace.run("cancel", "later", number, code=1).stderr
    assert "'tomorrow' is no time: write 'in 5 minutes'" in namespace.run(
        "schedule", "later", "x", "--at", "tomorrow", code=2
    ).stderr.replace("\n", " ").replace("│", "").replace("  ", " ")
    for wrong in ([], ["--in", "5"], ["--in", "1h", "--at", "2030-01-01"]):
        assert namespace.run("schedule", "later", "x", *wrong, code=2).stderr
    assert namespace.run("stats", "later").stdout.splitlines()[-1].split() == ["all", "0", "0", "0"]


def test_sessions_are_listed_and_received(namespace: Namespace) -> None:
    """A receive takes a session by its name, or the next available one; without any it fails."""
    assert "with sessions" in namespace.run("queue", "create", "ordered", "--sessions").stdout
    for session in ("a", "b"):
        namespace.run("send", "ordered", f"{session}1", f"{session}2", "--session-id", session)
    assert "has no --session-id: set one" in namespace.run("send", "ordered", "none", code=1).stderr
    assert namespace.run("session", "receive", "ordered", "a", "--wait", "10", "--max", "2").stdout == "a1\na2\n"
    assert namespace.run("session", "receive", "ordered", "--abandon", "--max", "1").stdout == "b1\n"
    assert namespace.json("session", "list", "ordered") == ["b"]
    assert namespace.run("session", "list", "ordered").stdout == "b\n"
    assert namespace.run("peek", "ordered", "--session", "b").stdout == "b1\nb2\n"
    assert "with 'kafkabus session receive ordered'" in namespace.run("receive", "ordered", code=1).stderr
    assert namespace.run("purge", "ordered", "--yes").stdout == "purged 2 messages from ordered\n"
    assert "no session" in namespace.run("session", "receive", "ordered", "--wait", "0.5", code=3).stderr
    assert "there is no session" in namespace.run("session", "list", "ordered", code=3).stderr


def test_topics_from_the_first_to_the_last_command(namespace: Namespace) -> None:
    """The commands of the how-to page work, and mistakes are prevented."""
    assert namespace.run("topic", "create", "news", "--plain").stdout == "created plain topic news\n"
    assert "has no subscription yet" in namespace.run("subscription", "list", "news").stderr
    assert "has no subscription, so" in namespace.run("stats", "news").stderr
    for name in ("all", "big"):
        namespace.run("subscription", "create", "news", name)
    large = "--sql", "amount > 100 AND sys.Label = 'order'", "--replace-default"
    namespace.run("rule", "create", "news", "big", "large", *large)
    namespace.run("rule", "create", "news", "big", "none", "--nothing", "--replace-default")
    wrong = namespace.run("rule", "create", "news", "big", "wrong", "--sql", "amount >", code=1).stderr
    assert "line 1, column" in wrong
    for number, subject in ((5, "order"), (500, "order"), (600, "refund")):
        namespace.run("send", "news", f"n{number}", "--subject", subject, "--property", f"amount:={number}")
    assert "there is no subscription 'news/Subscriptions/bgi': did you mean 'news/Subscriptions/big'?" in (
        namespace.run("receive", "news/Subscriptions/bgi", code=4).stderr
    )
    for command in ("receive news/big", "peek news/big", "stats news/bgi", "queue delete news/big"):
        assert "did you mean 'news/Subscriptions/big'?" in namespace.run(*command.split(), code=4).stderr, command
    for command in ("queue delete zzz", "topic show zzz", "stats zzz", "purge zzz", "receive zzz"):
        said = namespace.run(*command.split(), code=4).stderr
        assert "'kafkabus queue list'" in said
        assert ("queue create" in said) == command.startswith("receive")
    listed = namespace.run("rule", "list", "news", "big").stdout
    assert "amount > 100 AND sys.Label = 'order'" in listed
    topics = namespace.json("topic", "list")
    assert [one["name"] for one in topics] == ["news"]
    assert namespace.json("stats", "news/Subscriptions/all")["active"] == 3
    assert namespace.run("receive", "news/Subscriptions/all", "--max", "2").stdout == "n5\nn500\n"
    assert namespace.run("receive", "news/Subscriptions/big").stdout == "n500\n"
    assert "has no rule 'larger'" in namespace.run("rule", "delete", "news", "big", "larger", code=4).stderr
    unknown = namespace.run("subscription", "create", "news", "on", "--forward-to", "nowhere", code=4).stderr
    assert "there is no queue or topic 'nowhere'" in unknown
    shown = namespace.json("stats", "news")
    assert [one["subscription"] for one in shown["subscriptions"]] == ["all", "big"]
    assert "KEEPS LOG OF" in namespace.run("stats", "news").stdout


def test_dead_letters_of_a_subscription_go_to_it_alone(namespace: Namespace) -> None:
    """That holds even if its rules do not want them any more."""
    namespace.run("topic", "create", "letters", "--plain")
    for name in ("one", "two"):
        namespace.run("subscription", "create", "letters", name, "--max-delivery-count", "1")
    namespace.run("send", "letters", "x")
    assert namespace.run("receive", "letters/Subscriptions/two").stdout == "x\n"
    namespace.run("receive", "letters/Subscriptions/one", "--abandon")
    namespace.run("receive", "letters/Subscriptions/one", "--wait", "1", code=3)
    namespace.run("rule", "delete", "letters", "one", "$Default")
    assert namespace.run("dead-letter", "resubmit", "letters/Subscriptions/one").stdout == (
        "sent 1 message to letters/Subscriptions/one again\n"
    )
    assert namespace.run("receive", "letters/Subscriptions/one").stdout == "x\n"
    assert namespace.run("receive", "letters/Subscriptions/two", "--wait", "1", code=3).stdout == ""


def test_queues_are_listed_with_their_counts(namespace: Namespace) -> None:
    """Dead letters as well."""
    namespace.run("queue", "create", "counted", "--plain", "--max-delivery-count", "1")
    namespace.run("send", "counted", "one", "two")
    namespace.run("receive", "counted", "--abandon", "--max", "1")
    (found,) = (one for one in namespace.json("queue", "list", "--counts") if one["name"] == "counted")
    assert found == {"name": "counted", "active": 1, "scheduled": 0, "dead_letter": 1}
    assert re.search(r"^counted +1 +0 +1$", namespace.run("queue", "list", "--counts").stdout, re.MULTILINE)


def test_programs_that_use_the_namespace_are_listed(namespace: Namespace) -> None:
    """Upkeep, and a client with what it uses."""
    namespace.run("queue", "create", "used", "--plain")
    with (
        ServiceBusClient.from_connection_string(namespace.environment["KAFKABUS_CONNECTION_STRING"]) as client,
        client.get_queue_receiver("used", client_identifier="reader"),
    ):
        found = namespace.json("clients")
        (own,) = (one for one in found if one.get("process_id") == os.getpid() and one["kind"] == "client")
        assert own["entities"] == [{"name": "used", "sends": False, "receives": True, "client_identifiers": ["reader"]}]
        assert "upkeep" in {one.get("kind") for one in found}
        assert re.search(r"client .*<used$", namespace.run("clients").stdout, re.MULTILINE)


def test_an_exported_namespace_is_applied_without_a_change(namespace: Namespace, tmp_path: Path) -> None:
    """To a file, or to the standard output."""
    namespace.run("queue", "create", "exported", "--plain", "--lock-duration", "7s")
    file = tmp_path / "namespace.json"
    assert "wrote" in namespace.run("namespace", "export", str(file)).stderr
    assert json.loads(file.read_text()) == json.loads(namespace.run("namespace", "export").stdout)
    assert "Nothing to change" in namespace.run("namespace", "apply", str(file)).stderr
    namespace.run("queue", "delete", "exported", "--yes")
    assert namespace.run("namespace", "apply", str(file)).stdout == "created queue exported\n"
    assert namespace.json("queue", "show", "exported")["lock_duration"] == "PT7S"


def test_a_namespace_may_allow_longer_locks(namespace: Namespace) -> None:
    """An entity with such a lock keeps the bound from being lowered; without it, the error names the option."""
    refused = namespace.run("queue", "create", "slow", "--plain", "--lock-duration", "6h", code=1).stderr
    assert "--lock-duration=6:00:00: up to 0:05:00 in this namespace, unless a longer --longest-lock" in refused
    assert "has locks of up to 8h" in namespace.run("namespace", "update", "--longest-lock", "8h").stdout
    assert namespace.json("namespace", "show")["longest_lock"] == "PT8H"
    namespace.run("queue", "create", "slow", "--plain", "--lock-duration", "6h")
    refused = namespace.run("namespace", "update", "--longest-lock", "1h", code=1).stderr
    assert "--longest-lock=1:00:00: queue 'slow' has --lock-duration=6:00:00; shorten that first" in refused
    namespace.run("queue", "delete", "slow", "--yes")
    namespace.run("namespace", "update", "--longest-lock", "5m")


def test_what_is_left_of_a_session_is_ended(namespace: Namespace) -> None:
    """Its state is set before, without locking it; counts name available and locked sessions."""
    namespace.run("queue", "create", "endless", "--plain", "--sessions")
    assert "has no state" in namespace.run("session", "state", "endless", "s", code=3).stderr
    namespace.run("session", "state", "endless", "s", "--set", "given up")
    assert namespace.run("session", "state", "endless", "s").stdout == "given up\n"
    namespace.run("session", "state", "endless", "s", "--clear")
    namespace.run("session", "state", "endless", "s", code=3)
    refused = namespace.run("session", "state", "endless", "s", "--set", "x", "--clear", code=2).stderr
    assert "exclude each other" in " ".join(refused.replace("│", " ").split())
    for session in ("s", "t"):
        namespace.run("send", "endless", "one", "two", "--session-id", session)
    assert "sessions: 1 available, 0 locked" in namespace.run("stats", "endless").stderr
    ended = namespace.run("session", "dead-letter", "endless", "s", "--reason", "GivenUp")
    assert ended.stdout == "dead-lettered 2 messages of session 's' of endless\n"
    counts = namespace.json("stats", "endless")
    assert (counts["available_sessions"], counts["locked_sessions"], counts["dead_letter"]) == (1, 0, 2)
    assert "GivenUp" in namespace.run("dead-letter", "list", "endless").stdout
    assert "deleted 2 messages" in namespace.run("session", "purge", "endless", "t", "--yes").stdout
    assert "deleted 0 messages" in namespace.run("session", "purge", "endless", "t", "--yes", code=3).stdout
    namespace.run("queue", "create", "sessionless", "--plain")
    assert "has no sessions" in namespace.run("session", "purge", "sessionless", "t", code=1).stderr


def test_sessions_of_a_subscription(namespace: Namespace) -> None:
    """They are listed and received as those of a queue."""
    namespace.run("topic", "create", "visits")
    namespace.run("subscription", "create", "visits", "one", "--sessions")
    namespace.run("send", "visits", "a", "--session-id", "s")
    assert namespace.json("session", "list", "visits/Subscriptions/one") == ["s"]
    assert namespace.run("session", "receive", "visits/Subscriptions/one", "s").stdout == "a\n"


BODIES = [f"message {number:05}" for number in range(3000)]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def filled(namespace: Namespace, queue: str, bodies: list[str] = BODIES) -> list[str]:
    """A new queue with messages."""
    namespace.run("queue", "create", queue, "--plain")
    namespace.run("send", queue, text="\n".join(bodies))
    return bodies


def eventually(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds, while a process runs."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def first_line(output: IO[str]) -> str:
    """Return the first line of a pipe, and read no more of it."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(output.fileno(), 1)
    return line.decode().rstrip("\n")


@pytest.mark.parametrize(
    ("mode", "number"),
    [
        *(("--complete", number) for number in SIGNALS),
        ("--delete", signal.SIGINT),
        *(
            pytest.param("--delete", number, marks=pytest.mark.extended)
            for number in SIGNALS
            if number != signal.SIGINT
        ),
    ],
)
def test_a_signal_loses_nothing_that_was_received(
    namespace: Namespace, tmp_path: Path, number: signal.Signals, mode: str
) -> None:
    """All messages that were taken are printed, and the rest can be received at once.

    3,000 messages take over a second.
    """
    queue = f"stopped-{number.name}{mode}".lower()
    bodies, printed = filled(namespace, queue), tmp_path / "printed"
    with printed.open("w") as output:
        receiving = namespace.start("receive", queue, mode, "--follow", output=output)
    eventually(lambda: printed.stat().st_size, receiving)
    receiving.send_signal(number)
    assert receiving.communicate(timeout=PATIENCE_S)[1] == ""
    assert receiving.returncode == 128 + number
    lines = printed.read_text().splitlines()
    left = namespace.run("receive", queue, "--wait", "2").stdout.splitlines()
    assert sorted({*lines, *left}) == bodies
    # None of them comes twice: a batch that was printed was completed as well.
    assert len(lines) + len(left) == len(bodies)


def test_a_signal_waits_for_a_reader_that_does_not_read_and_a_second_one_does_not(
    namespace: Namespace, tmp_path: Path
) -> None:
    """A second signal prints the deleted message to standard error.

    The test takes the second that must pass in between.
    """
    (body,) = filled(namespace, "unread", ["x" * 100_000])
    told = tmp_path / "told"
    with told.open("w") as errors:
        receiving = namespace.start("receive", "unread", "--delete", "--follow", errors=errors)
    eventually(lambda: namespace.active("unread") == 0, receiving)
    deadline = time.monotonic() + PATIENCE_S
    while not told.stat().st_size:
        assert time.monotonic() < deadline
        receiving.send_signal(signal.SIGINT)
        time.sleep(0.1)
    receiving.communicate(timeout=PATIENCE_S)
    assert receiving.returncode == 130
    assert told.read_text().splitlines() == ["error: 1 message was taken off the queue and not read here:", body]


@pytest.mark.parametrize("mode", ["--delete", "--complete"])
def test_what_nobody_read_of_a_closed_output_is_still_there_or_told(namespace: Namespace, mode: str) -> None:
    """Its reader reads one line and goes. All others are on standard error, or still in the queue."""
    queue = f"closed{mode}"
    bodies = filled(namespace, queue)
    receiving = namespace.start("receive", queue, mode)
    assert receiving.stdout is not None
    assert receiving.stderr is not None
    with receiving.stdout as output:
        line = first_line(output)
    with receiving.stderr as errors:
        told = errors.read()
    assert receiving.wait(PATIENCE_S) == 141
    assert "Traceback" not in told
    left = namespace.run("receive", queue, "--wait", "2").stdout.splitlines()
    assert sorted({line, *told.splitlines(), *left} & {*bodies}) == bodies


def test_a_message_that_cannot_be_printed_is_told(namespace: Namespace) -> None:
    """The disk may be full: the message was deleted, and is on standard error."""
    filled(namespace, "full", ["one", "two"])
    with Path("/dev/full").open("w") as output:
        receiving = namespace.start("receive", "full", "--delete", output=output)
    told = receiving.communicate(timeout=PATIENCE_S)[1]
    assert receiving.returncode == 1
    left = namespace.run("receive", "full", "--wait", "1", code=3 if "two" in told else 0).stdout.splitlines()
    assert {"one", "two"} <= {*told.splitlines(), *left}
    assert "No space left on device" in told


@pytest.mark.parametrize(
    "number", [one if one == signal.SIGINT else pytest.param(one, marks=pytest.mark.extended) for one in SIGNALS]
)
def test_dead_letters_are_sent_again_one_after_the_other_until_a_signal(
    namespace: Namespace, number: signal.Signals
) -> None:
    """It prints how many were sent, and the others can be received at once. 300 dead letters take over a second."""
    queue = f"resent-{number.name}".lower()
    bodies = BODIES[:300]
    namespace.run("queue", "create", queue, "--plain", "--max-delivery-count", "1")
    namespace.run("send", queue, text="\n".join(bodies))
    namespace.run("receive", queue, "--abandon", "--max", "300")
    resubmitting = namespace.start("dead-letter", "resubmit", queue)
    eventually(lambda: namespace.stored(queue) > len(bodies), resubmitting)
    resubmitting.send_signal(number)
    printed, told = resubmitting.communicate(timeout=PATIENCE_S)
    assert (resubmitting.returncode, told) == (128 + number, "")
    sent = namespace.run("receive", queue, "--wait", "2").stdout.splitlines()
    assert printed == f"sent {len(sent)} message{'s' if len(sent) > 1 else ''} to {queue} again\n"
    left = namespace.run("receive", queue, "--dead-letter", "--wait", "2").stdout.splitlines()
    assert sorted(sent + left) == bodies


def test_dead_letters_are_chosen_and_changed(namespace: Namespace) -> None:
    """They are chosen by their sequence numbers, and the others stay. Eight commands take some seconds."""
    namespace.run("queue", "create", "mended", "--plain", "--max-delivery-count", "1")
    namespace.run(
        "send",
        "mended",
        "one",
        "two",
        "three",
        "-p",
        "colour=red",
        "-p",
        "size:=5",
        "-p",
        "kept=x",
        "--subject",
        "before",
    )
    namespace.run("receive", "mended", "--abandon", "--max", "3")
    numbers = {one["body"]: one["sequence_number"] for one in _lines(namespace, "dead-letter", "list", "mended")}
    changes = ("-p", "colour=blue", "--remove-property", "size", "--subject", "after", "--body", "mended")
    said = namespace.run("dead-letter", "resubmit", "mended", "-s", str(numbers["two"]), "-s", "99", *changes)
    assert said.stdout == "sent 1 message to mended again\n"
    assert "1 of the 2 sequence numbers" in said.stderr
    (message,) = _lines(namespace, "receive", "mended", "--wait", "10", "--max", "1")
    assert (message["body"], message["subject"], message["application_properties"]) == (
        "mended",
        "after",
        {"colour": "blue", "kept": "x"},
    )
    assert sorted(one["body"] for one in _lines(namespace, "dead-letter", "list", "mended")) == ["one", "three"]


def _lines(namespace: Namespace, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in namespace.run(*arguments, "--json").stdout.splitlines()]


def test_what_is_of_another_kind_is_named(namespace: Namespace) -> None:
    """The error names the command for the right kind."""
    namespace.run("topic", "create", "kinds", "--plain")
    assert (
        "'kinds' is a topic and no queue: 'kafkabus topic show kinds'"
        in namespace.run("queue", "show", "kinds", code=4).stderr
    )
    assert "as kinds/Subscriptions/NAME" in namespace.run("receive", "kinds", code=1).stderr


def test_waiting_for_a_session_ends_with_ctrl_c(namespace: Namespace) -> None:
    """It ends soon, however long it would wait for a session."""
    namespace.run("queue", "create", "no-session", "--sessions")
    waiting = namespace.start("session", "receive", "no-session", "--wait", "600")
    with redis.Redis.from_url(namespace.redis_url) as store:
        eventually(lambda: any(b"no-session" in key for key in store.scan_iter("*receivers*")), waiting)
    waiting.send_signal(signal.SIGINT)
    assert waiting.communicate(timeout=PATIENCE_S / 4) == ("", "")
    assert waiting.returncode == 130
