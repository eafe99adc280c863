# Generated from facade/kafkabus/_async/__init__.py by tools/generate_blocking.py. Do not edit.
"""The client; each of its packages imports only packages below it in the layers of pyproject.toml."""
