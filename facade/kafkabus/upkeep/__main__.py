"""``python -m kafkabus.upkeep CONNECTION_STRING``: the service alone, as the embedded runtime starts it."""

from __future__ import annotations

import asyncio
import logging
import sys

from kafkabus.connection_string import parse_settings
from kafkabus.repetitions import limit_repetitions
from kafkabus.upkeep.service import serve

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    limit_repetitions()
    asyncio.run(serve(parse_settings(sys.argv[1])))
