# Generated from facade/kafkabus/_async/receiving/__init__.py by tools/generate_blocking.py. Do not edit.
"""From a partition's log and ledger to a receiver."""
