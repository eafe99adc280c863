# Generated from facade/kafkabus/_async/engine/__init__.py by tools/generate_blocking.py. Do not edit.
"""The engine under receivers, the gateway and the lock renewer: claims, settles, gives back and renews messages."""
