"""``python -m kafkabus.upkeep``: the service alone, as the embedded runtime starts it.

The variable ``KAFKABUS_CONNECTION_STRING`` names the namespace: every user of the machine sees the arguments of a program.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from kafkabus._core.settings import parse_settings
from kafkabus._runtime.repetitions import limit_repetitions
from kafkabus.upkeep.process import serve
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(f"no arguments are taken: set {CONNECTION_STRING_VARIABLE} to the namespace's connection string")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    limit_repetitions()
    asyncio.run(serve(parse_settings(os.environ.get(CONNECTION_STRING_VARIABLE, ""))))
