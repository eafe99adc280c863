"""Dispositions of messages that were received, or are moved: expiry, duplicates, transactions, transfers."""
