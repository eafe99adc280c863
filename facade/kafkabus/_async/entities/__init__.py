"""Entities: their descriptions, their ledgers' recovery, whether their partitions can be reached."""
