"""Filters and actions of a subscription's rules: what they say, and what they say of a message."""
