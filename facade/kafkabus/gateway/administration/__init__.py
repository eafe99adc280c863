"""The administration over HTTP, as the administration clients of Azure's SDKs speak it."""

from kafkabus.gateway.administration.app import create_app
from kafkabus.gateway.administration.server import serve

__all__ = ["create_app", "serve"]
