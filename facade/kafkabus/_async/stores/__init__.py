"""Stores in the namespace's own topics, and the skew of clocks."""
