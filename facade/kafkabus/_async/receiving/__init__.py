"""From a partition's log and ledger to a receiver."""
