# Generated from facade/kafkabus/_async/kafka/__init__.py by tools/generate_blocking.py. Do not edit.
"""Connections to Kafka: producers, readers of offsets, compacted topics."""
