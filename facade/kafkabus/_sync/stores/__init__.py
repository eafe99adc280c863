# Generated from facade/kafkabus/_async/stores/__init__.py by tools/generate_blocking.py. Do not edit.
"""What is kept in the namespace's own topics, and what is known of clocks."""
