"""Command lines for the project's developers; nothing here is shipped."""
