"""Operations on a ledger and their replies: the Python side of ``lua/``, without I/O; a file for each fragment."""

from kafkabus._ledger.operations.base import Ledger, LedgerFigures, LedgerState, Look, Operation, Request
from kafkabus._ledger.operations.checkpoint import Keep
from kafkabus._ledger.operations.claim import IN_FLIGHT_LIMIT, Claim, Granted, Seen, Tail, new_lease, read_granted
from kafkabus._ledger.operations.deferred import Recall, Seize
from kafkabus._ledger.operations.duplicates import DetectDuplicates
from kafkabus._ledger.operations.inspect import MARKS, Found, Mark, MarkName, Peek, Purge, Rule
from kafkabus._ledger.operations.schedule import Activate, Cancel, Postpone, Schedule
from kafkabus._ledger.operations.session import Accept, Extend, Filing, Leave, Next, Place, Sessions
from kafkabus._ledger.operations.session_state import GetState, SessionState, SetState, StateStored, StatesUpdated
from kafkabus._ledger.operations.settle import Deferral, Renewal, Settlement
from kafkabus._ledger.operations.transaction import Prepare, Resolve
from kafkabus._ledger.operations.transfer import Adopt, Begin, Moved, Orphan, Refused, Retreat, Skip
from kafkabus._ledger.operations.wire_format import read_ranges, read_runs, words_of, words_of_offsets

__all__ = [
    "IN_FLIGHT_LIMIT",
    "MARKS",
    "Accept",
    "Activate",
    "Adopt",
    "Begin",
    "Cancel",
    "Claim",
    "Deferral",
    "DetectDuplicates",
    "Extend",
    "Filing",
    "Found",
    "GetState",
    "Granted",
    "Keep",
    "Leave",
    "Ledger",
    "LedgerFigures",
    "LedgerState",
    "Look",
    "Mark",
    "MarkName",
    "Moved",
    "Next",
    "Operation",
    "Orphan",
    "Peek",
    "Place",
    "Postpone",
    "Prepare",
    "Purge",
    "Recall",
    "Refused",
    "Renewal",
    "Request",
    "Resolve",
    "Retreat",
    "Rule",
    "Schedule",
    "Seen",
    "Seize",
    "SessionState",
    "Sessions",
    "SetState",
    "Settlement",
    "Skip",
    "StateStored",
    "StatesUpdated",
    "Tail",
    "new_lease",
    "read_granted",
    "read_ranges",
    "read_runs",
    "words_of",
    "words_of_offsets",
]
