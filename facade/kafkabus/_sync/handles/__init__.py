# Generated from facade/kafkabus/_async/handles/__init__.py by tools/generate_blocking.py. Do not edit.
"""Client, sender, receiver, session, processor, transaction."""
