# Generated from facade/kafkabus/_async/entities/__init__.py by tools/generate_blocking.py. Do not edit.
"""Entities: their descriptions, their ledgers' recovery, whether their partitions can be reached."""
