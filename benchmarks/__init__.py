"""Benchmarks that compare kafkabus with raw Kafka, share groups and RabbitMQ in one run."""
