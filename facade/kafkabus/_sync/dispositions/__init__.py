# Generated from facade/kafkabus/_async/dispositions/__init__.py by tools/generate_blocking.py. Do not edit.
"""What becomes of a message that was received, or is moved."""
