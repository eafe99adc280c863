"""The client; each of its packages imports only packages below it in the layers of pyproject.toml."""
