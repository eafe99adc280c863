"""The client; each of its packages imports only packages that stand below it in the layers of pyproject.toml."""
