"""``python -m kafkabus.gateway``: the gateway alone, as the embedded runtime starts it.

Variables name the namespace and what to listen on: every user of the machine sees the arguments of a program.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from kafkabus._runtime.repetitions import limit_repetitions
from kafkabus.gateway.process import Ports, serve
from kafkabus.gateway.sas_tokens import Policies
from kafkabus.gateway.server.settings import GatewaySettings
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("no arguments are taken: 'kafkabus gateway' takes options")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    limit_repetitions()
    host, amqp, http = (os.environ[f"KAFKABUS_{name}"] for name in ("GATEWAY_HOST", "AMQP_PORT", "HTTP_PORT"))
    file = os.environ.get("KAFKABUS_POLICIES")
    settings = GatewaySettings(policies=Policies.load(Path(file)) if file else None)
    asyncio.run(serve(os.environ[CONNECTION_STRING_VARIABLE], Ports(host, int(amqp), None, int(http)), settings))
