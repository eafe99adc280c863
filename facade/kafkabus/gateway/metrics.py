"""The metrics and the health of a gateway process."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from typing_extensions import override

from kafkabus import __version__
from kafkabus.gateway.health import NamespaceHealth
from kafkabus.gateway.server.gateway import Gateway
from kafkabus.metrics import instrument, uninstrument


class GatewayMetrics:
    """A gateway's metrics: its connections, and all that its client counts; see ``kafkabus.metrics``.

    Args:
        gateway: The gateway.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_Figures(gateway))
        instrument(self._registry)

    async def page(self, accept: str, *, compressed: bool) -> tuple[bytes, str]:
        """Return the metrics, and the type of their format; see ``HealthEndpoint``."""
        encode, content_type = choose_encoder(accept)
        text = encode(self._registry)
        return await asyncio.to_thread(gzip.compress, text, 1) if compressed else text, content_type

    def close(self) -> None:
        """Count no longer."""
        uninstrument()


class _Figures(Collector):
    """Reads a gateway's figures when they are asked for."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @override
    def collect(self) -> Iterator[Any]:
        """Yield the figures."""
        gateway = self._gateway
        yield InfoMetricFamily("kafkabus_gateway", "The gateway.", {"version": __version__})
        yield GaugeMetricFamily("kafkabus_gateway_connections", "Open connections.", len(gateway.commons.clients))
        links = GaugeMetricFamily("kafkabus_gateway_links", "Attached links, by the client's role.", labels=["role"])
        attached = [link.sends for peer in list(gateway.commons.clients) for link in list(peer.links.nodes)]
        links.add_metric(["receiver"], sum(attached))
        links.add_metric(["sender"], len(attached) - sum(attached))
        yield links
        held = sum(
            link.unsettled for peer in list(gateway.commons.clients) for link in list(peer.links.nodes) if link.sends
        )
        yield GaugeMetricFamily("kafkabus_gateway_unsettled_messages", "Messages that clients hold over links.", held)
        waiting = sum(peer.load.held_bytes for peer in list(gateway.commons.clients))
        yield GaugeMetricFamily("kafkabus_gateway_waiting_bytes", "Bytes of messages that wait to be stored.", waiting)
        opened = CounterMetricFamily("kafkabus_gateway_connections_opened", "Connections that were made.")
        opened.add_metric([], gateway.commons.tally.opened)
        yield opened
        refused = CounterMetricFamily("kafkabus_gateway_connections_refused", "Connections beyond the most.")
        refused.add_metric([], gateway.commons.tally.refused)
        yield refused
        broken = CounterMetricFamily(
            "kafkabus_gateway_connections_broken", "Connections closed for an error of the client."
        )
        broken.add_metric([], gateway.commons.tally.broken)
        yield broken


async def reasons_of(gateway: Gateway, health: NamespaceHealth) -> Mapping[str, str]:
    """Return why a gateway is not ready; nothing if it is."""
    if gateway.commons.is_closing:
        return {"gateway": "it is stopped"}
    problem = await health.problem()
    return {"namespace": problem} if problem else {}
