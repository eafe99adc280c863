"""The administration client."""
