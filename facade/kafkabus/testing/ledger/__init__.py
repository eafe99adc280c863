"""A ledger without Redis: the state of each message, and the changes that operations make to it.

This is a plain model of the scripts in ``kafkabus/_ledger/lua``. It keeps no ranges and no bits, searches through all
messages, and gives the same replies as the scripts; tests run both and compare. Each file has the name of a Lua file, its
functions and fields have the names of that file's. The opening comments of the Lua files give the arguments and the reply
of each operation.
"""

from kafkabus.testing.ledger.figures import read_figures
from kafkabus.testing.ledger.layout import MemoryLedger, RetryDelays
from kafkabus.testing.ledger.look import find_due
from kafkabus.testing.ledger.prelude import refused_copies
from kafkabus.testing.ledger.request import run_request
from kafkabus.testing.ledger.restore import restore

__all__ = [
    "MemoryLedger",
    "RetryDelays",
    "find_due",
    "read_figures",
    "refused_copies",
    "restore",
    "run_request",
]
