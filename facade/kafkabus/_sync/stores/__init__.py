# Generated from facade/kafkabus/_async/stores/__init__.py by tools/generate_blocking.py. Do not edit.
"""Stores in the namespace's own topics, and the skew of clocks."""
