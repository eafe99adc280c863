# Generated from facade/kafkabus/_async/redis/__init__.py by tools/generate_blocking.py. Do not edit.
"""Connections to Redis, and requests to the ledgers there."""
