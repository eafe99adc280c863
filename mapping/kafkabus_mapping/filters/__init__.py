"""Filters and actions of a subscription's rules: their parser and their evaluation on messages."""
