# Generated from facade/kafkabus/_async/dispositions/__init__.py by tools/generate_blocking.py. Do not edit.
"""Dispositions of messages that were received, or are moved: expiry, duplicates, transactions, transfers."""
