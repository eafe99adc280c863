"""Check a gateway with a Python SDK, or send and receive messages of every type.

``CONNECTION_STRING=… PREFIX=python- python -m tests.clients.python [--sdk kafkabus] [--asyncio] [CHECK ...]``
``… send-types QUEUE`` and ``… receive-types QUEUE COUNT``
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from tests.clients.python.checks import CHECKS
from tests.clients.python.harness import Sdk, run
from tests.clients.python.message_types import receive_types, send_types


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.clients.python", description=__doc__)
    parser.add_argument("--sdk", default="azure.servicebus", help="the package")
    parser.add_argument("--asyncio", action="store_true", help="its asyncio half")
    parser.add_argument(
        "what", nargs="*", help="checks (default: all), or send-types QUEUE, or receive-types QUEUE COUNT"
    )
    options = parser.parse_args()
    sdk = Sdk(options.sdk, options.asyncio, os.environ["CONNECTION_STRING"], os.environ.get("PREFIX", "python-"))
    match options.what:
        case ["send-types", queue]:
            asyncio.run(send_types(sdk, queue))
            return 0
        case ["receive-types", queue, count]:
            asyncio.run(receive_types(sdk, queue, int(count)))
            return 0
        case names:
            # 7.14 lists no sessions.
            able = {
                name
                for name in CHECKS
                if name != "session-list" or hasattr(sdk.ServiceBusClient, "list_queue_sessions")
            }
            return 0 if run(sdk, {name: CHECKS[name] for name in names or CHECKS if name in able}) else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Threads of checks that hang must not keep the process.
    os._exit(status)
