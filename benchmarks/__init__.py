"""Benchmarks: kafkabus beside raw Kafka, share groups and RabbitMQ, in one run."""
