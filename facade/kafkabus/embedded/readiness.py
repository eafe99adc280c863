"""A check whether the servers of a cluster serve."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafkabus.embedded.cluster import broker_names
from kafkabus.embedded.ports import HOST
from kafkabus.embedded.redis_server import answers_ping

if TYPE_CHECKING:
    from kafkabus.embedded.cluster import EmbeddedCluster

_silent = logging.getLogger(f"{__name__}.client")
_silent.disabled = True


class ServiceProbe:
    """Asks the servers of a cluster whether they serve.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._awaited = broker_names(len(cluster.broker_ports))
        self._admin = AdminClient(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                # While brokers start, refused connections are expected.
                "log_level": 0,
            },
            logger=_silent,
        )

    def find_missing(self, timeout: float) -> str | None:
        """Return one server that does not serve yet.

        Args:
            timeout: How long to wait for an answer, in seconds.

        Returns:
            Its name, or None when Redis answers, and Kafka says that all brokers and a controller
            are there.
        """
        if not answers_ping(self._cluster.redis_port, timeout, self._cluster.redis_password):
            return "redis"
        for name, port in zip(self._awaited, self._cluster.broker_ports, strict=True):
            if not _accepts_connections(port, timeout):
                return name
        try:
            metadata = self._admin.list_topics(timeout=timeout)
        except KafkaException:
            return self._awaited[0]
        absent = [name for n, name in enumerate(self._awaited, 1) if n not in metadata.brokers]
        if metadata.controller_id < 0:
            absent.append(self._awaited[0])
        return absent[0] if absent else None


def _accepts_connections(port: int, timeout: float) -> bool:
    try:
        socket.create_connection((HOST, port), timeout).close()
    except OSError:
        return False
    return True
