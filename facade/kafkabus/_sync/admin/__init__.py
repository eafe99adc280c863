# Generated from facade/kafkabus/_async/admin/__init__.py by tools/generate_blocking.py. Do not edit.
"""The administration client."""
