"""Connections to Kafka: producers, readers of offsets, compacted topics."""
