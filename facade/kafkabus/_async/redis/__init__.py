"""Connections to Redis, and requests to the ledgers there."""
