"""The configuration and the command lines of the embedded Kafka."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkabus._kafka.topic_admin import DEFAULTS_MARK, ENTITY_TOPIC
from kafkabus.embedded import fenced_start
from kafkabus.embedded.cluster import broker_names
from kafkabus.embedded.exposure import ANY_HOST
from kafkabus.embedded.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kafkabus.embedded.class_archive import ClassArchive
    from kafkabus.embedded.cluster import EmbeddedCluster
    from kafkabus.embedded.exposure import Listener
    from kafkabus.embedded.java import Java

_SETTINGS = "server.properties"
_CONTROLLER_SETTINGS = "controller.properties"
_LOGGING = "log4j2.properties"
_FORMATTED = "formatted"
_RECORDS = "records"

_LOGGING_TEXT = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:kafkabus.log}
appender.file.filePattern = ${sys:kafkabus.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %m (%c{1.})%n
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
# These print every setting at every start.
logger.config.name = org.apache.kafka.common.config
logger.config.level = warn
logger.clients.name = org.apache.kafka.clients
logger.clients.level = warn
# These print several lines for each partition at every start.
logger.states.name = state.change.logger
logger.states.level = warn
logger.partitions.name = kafka.cluster.Partition
logger.partitions.level = warn
logger.logs.name = org.apache.kafka.storage.internals.log
logger.logs.level = warn
logger.manager.name = kafka.log.LogManager
logger.manager.level = warn
logger.configurations.name = kafka.server.metadata.DynamicConfigPublisher
logger.configurations.level = warn
logger.controlled.name = org.apache.kafka.controller.ConfigurationControlManager
logger.controlled.level = warn
logger.replicas.name = org.apache.kafka.controller.ReplicationControlManager
logger.replicas.level = warn
logger.changes.name = org.apache.kafka.controller.PartitionChangeBuilder
logger.changes.level = warn
"""


@dataclass(frozen=True)
class Broker:
    """A broker, which is also a controller.

    Attributes:
        number: The broker's id, from 1.
        cluster: The cluster that the broker belongs to.
        folder: The folder of its settings and records.
        log: The file of its log.
        java: The Java that runs it.
        jars: The folder of Kafka's jars.
        archive: The archive of Kafka's classes.
        listeners: Listeners for clients elsewhere.
    """

    number: int
    cluster: EmbeddedCluster
    folder: Path
    log: Path
    java: Java
    jars: Path
    archive: ClassArchive
    listeners: tuple[Listener, ...] = ()

    @property
    def name(self) -> str:
        """The broker's name among the runtime's processes."""
        return broker_names(self.number)[-1]

    @property
    def is_formatted(self) -> bool:
        """Whether the broker's storage has been formatted."""
        return (self.folder / _FORMATTED).exists()

    def prepare(self) -> None:
        """Write the broker's settings, with the ports of this run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(_SETTINGS, self._settings())
        self._write(_CONTROLLER_SETTINGS, self._controller_settings())
        (self.folder / _LOGGING).write_text(_LOGGING_TEXT)
        if not self.is_formatted:
            # Left over from an interrupted formatting.
            shutil.rmtree(self.folder / _RECORDS, ignore_errors=True)

    def mark_formatted(self) -> None:
        """Note that the storage is formatted, which must happen only once."""
        (self.folder / _FORMATTED).touch()

    def format_command(self) -> list[str]:
        """Return the command that formats the storage, to be run in the broker's folder."""
        return [
            *self._java("-Xmx128m", "-XX:TieredStopAtLevel=1", *self._loaded_ahead()),
            *("kafka.tools.StorageTool", "format", "--cluster-id", self.cluster.cluster_id),
            *("--config", _SETTINGS),
        ]

    def command(self) -> list[str]:
        """Return the command that runs the broker, in its folder."""
        is_cluster = len(self.cluster.broker_ports) > 1
        heap = ("-Xms128m", "-Xmx512m") if is_cluster else ("-Xms256m", "-Xmx768m")
        options = (*heap, "-XX:+ExitOnOutOfMemoryError", *self.archive.options(self.class_list))
        broker = [*self._java(*options), "kafka.Kafka", _SETTINGS]
        if is_cluster:
            return broker
        log = self.log.with_name(f"{self.name}-controller.log")
        short = ("-Xmx128m", "-XX:TieredStopAtLevel=1", *self._loaded_ahead())
        controller = [*self._java(*short, log=log), "kafka.Kafka", _CONTROLLER_SETTINGS]
        return [sys.executable, "-I", "-S", fenced_start.__file__, str(log), *controller, "--", *broker]

    @property
    def class_list(self) -> Path:
        """The file in which the broker lists the classes that it loads, as long as there is no archive of them."""
        return self.folder / "classes.list"

    def _loaded_ahead(self) -> list[str]:
        return self.archive.options(self.class_list) if self.archive.exists else []

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        lines = [f"{key}={value}" for key, value in settings.items()]
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def _java(self, *options: str, log: Path | None = None) -> list[str]:
        return [
            str(self.java.program),
            *options,
            "-Djava.awt.headless=true",
            "-Dlog4j2.disableJmx=true",
            # Without it, each of a log's dozen loggers is found by a walk through the stack.
            "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector",
            f"-Dlog4j2.configurationFile={_LOGGING}",
            f"-Dkafkabus.log={log or self.log}",
            "-cp",
            f"{self.jars}/*",
        ]

    def _settings(self) -> dict[str, object]:
        place = self.number - 1
        clients = f"PLAINTEXT://{HOST}:{self.cluster.broker_ports[place]}"
        controller = f"CONTROLLER://{HOST}:{self.cluster.controller_ports[place]}"
        elsewhere = {f"ELSEWHERE{number}": listener for number, listener in enumerate(self.listeners)}
        exposed = [f"{name}://{ANY_HOST}:{listener.port + place}" for name, listener in elsewhere.items()]
        told = [f"{name}://{listener.host}:{listener.advertised_port + place}" for name, listener in elsewhere.items()]
        return {
            "process.roles": "broker,controller",
            "node.id": self.number,
            "controller.quorum.voters": _voters(self.cluster),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([clients, controller, *exposed]),
            "advertised.listeners": ",".join([clients, *told]),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("CONTROLLER", "PLAINTEXT", *elsewhere)
            ),
            # Relative to the broker's folder: Kafka splits the list at commas, which a path may contain.
            "log.dirs": _RECORDS,
            **_replication(len(self.cluster.broker_ports)),
            **_sessions(len(self.cluster.broker_ports)),
            **_TUNING,
        }

    def _controller_settings(self) -> dict[str, object]:
        """Return settings of a controller without a broker, which soon fences a silent broker; see ``fenced_start``."""
        settings = self._settings() | {
            "process.roles": "controller",
            "broker.session.timeout.ms": 100,
            "broker.heartbeat.interval.ms": 50,
        }
        settings["listeners"] = f"CONTROLLER://{HOST}:{self.cluster.controller_ports[self.number - 1]}"
        del settings["advertised.listeners"], settings["inter.broker.listener.name"]
        return settings


_TUNING: dict[str, object] = {
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "num.partitions": 1,
    # The settings of an entity's topic, which then needs none itself: with 10,000 topics with settings a broker starts a
    # minute and a half later. Records are deleted only explicitly.
    DEFAULTS_MARK: "true",
    "log.message.timestamp.type": ENTITY_TOPIC["message.timestamp.type"],
    "log.retention.ms": ENTITY_TOPIC["retention.ms"],
    "log.retention.bytes": ENTITY_TOPIC["retention.bytes"],
    "message.max.bytes": ENTITY_TOPIC["max.message.bytes"],
    # Files of two indexes are mapped for each log, at first in this size.
    "log.index.size.max.bytes": 1 << 20,
    # Each start changes each partition's leader twice, and a start reads all changes since the last snapshot.
    "metadata.log.max.record.bytes.between.snapshots": 2 << 20,
    "log.retention.check.interval.ms": 10_000,
    "log.initial.task.delay.ms": 1_000,
    "log.segment.delete.delay.ms": 1_000,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    # Readers wait behind an abandoned transaction until the broker aborts it.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "share.coordinator.state.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    # Brokers stop together: a broker that hands its partitions over first would wait for a
    # controller that may have stopped already. The logs are closed in order nevertheless.
    "controlled.shutdown.enable": "false",
    "num.network.threads": 2,
    "num.io.threads": 4,
    "num.recovery.threads.per.data.dir": 2,
    "background.threads": 2,
}


def _replication(brokers: int) -> dict[str, object]:
    """Return the number of replicas for a number of brokers; with several, the cluster works with one missing."""
    copies = min(3, brokers)
    in_sync = max(1, copies - 1)
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _sessions(brokers: int) -> dict[str, object]:
    """Return the session timeouts after which a silent broker is considered dead.

    If one of several brokers was killed, the cluster admits it again only when its last session has expired. No other broker
    can take over from a single broker, which may be slow on a busy machine.
    """
    session_ms = 4_000 if brokers > 1 else 60_000
    return {
        "broker.session.timeout.ms": session_ms,
        "broker.heartbeat.interval.ms": 500,
        # A broker that was not fenced is admitted when its last session has expired; by default it gives up after 60 s.
        "initial.broker.registration.timeout.ms": session_ms + 60_000,
    }


def _voters(cluster: EmbeddedCluster) -> str:
    return ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(cluster.controller_ports, start=1))
