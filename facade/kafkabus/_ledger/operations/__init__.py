"""Operations on a ledger and their replies: the Python side of ``lua/``, without I/O; a file for each fragment."""

from kafkabus._ledger.operations.base import Ledger, LedgerFigures, LedgerRequest, LedgerState, Look, Operation
from kafkabus._ledger.operations.checkpoint import TakeSnapshot
from kafkabus._ledger.operations.claim import IN_FLIGHT_LIMIT, Claim, Granted, Seen, Tail, new_lease, read_granted
from kafkabus._ledger.operations.deferred import Recall, Seize
from kafkabus._ledger.operations.duplicates import DetectDuplicates
from kafkabus._ledger.operations.inspect import MARKS, Mark, MarkName, Peek, PeekedRange, Purge, SetRulesVersion
from kafkabus._ledger.operations.locks import BreakLock, HeldLock, ListLocks, LockedRange
from kafkabus._ledger.operations.schedule import Activate, Cancel, Schedule, ScheduleHeld
from kafkabus._ledger.operations.session import (
    Accept,
    Extend,
    FileMessages,
    GrantNext,
    Leave,
    ListSessions,
    PlaceMessages,
)
from kafkabus._ledger.operations.session_state import (
    GetState,
    ListUpdatedStates,
    NoteStoredState,
    SetState,
    StoredSessionState,
)
from kafkabus._ledger.operations.settle import Deferral, Renewal, Settlement
from kafkabus._ledger.operations.transaction import Prepare, Resolve
from kafkabus._ledger.operations.transfer import (
    AdoptTransfers,
    BeginTransfer,
    EndTransfer,
    NoteRefusal,
    Orphan,
    Retreat,
    SkipRecord,
)
from kafkabus._ledger.operations.wire_format import read_ranges, read_runs, words_of, words_of_offsets
from kafkabus._ledger.verbs import PreparedVerb, SettlementVerb

__all__ = [
    "IN_FLIGHT_LIMIT",
    "MARKS",
    "Accept",
    "Activate",
    "AdoptTransfers",
    "BeginTransfer",
    "BreakLock",
    "Cancel",
    "Claim",
    "Deferral",
    "DetectDuplicates",
    "EndTransfer",
    "Extend",
    "FileMessages",
    "GetState",
    "GrantNext",
    "Granted",
    "HeldLock",
    "Leave",
    "Ledger",
    "LedgerFigures",
    "LedgerRequest",
    "LedgerState",
    "ListLocks",
    "ListSessions",
    "ListUpdatedStates",
    "LockedRange",
    "Look",
    "Mark",
    "MarkName",
    "NoteRefusal",
    "NoteStoredState",
    "Operation",
    "Orphan",
    "Peek",
    "PeekedRange",
    "PlaceMessages",
    "Prepare",
    "PreparedVerb",
    "Purge",
    "Recall",
    "Renewal",
    "Resolve",
    "Retreat",
    "Schedule",
    "ScheduleHeld",
    "Seen",
    "Seize",
    "SetRulesVersion",
    "SetState",
    "Settlement",
    "SettlementVerb",
    "SkipRecord",
    "StoredSessionState",
    "Tail",
    "TakeSnapshot",
    "new_lease",
    "read_granted",
    "read_ranges",
    "read_runs",
    "words_of",
    "words_of_offsets",
]
